"""Layering of cuda/: who may include whom, and which names may appear where.

Includes go one way, ffi > host > sm90 | sm100 | quantize > pipeline > tile > ptx, and are written
from cuda/ ("tile/config.h"). Everything of CUDA's own language and headers stays in cuda/ptx, so
that the kernels compile unmodified where that one folder is replaced (tests/host_ptx, the CPU
emulator). Would catch: an architecture that leans on the other, a stray `__shared__` or `asm`, a
driver call in host code.
"""

from __future__ import annotations

import re
from pathlib import Path

from checklib import CUDA, Unavailable, main, strip_comments_and_strings

RANK = {
    "ptx": 0,
    "tile": 1,
    "pipeline": 2,
    "sm90": 3,
    "sm100": 3,
    "quantize": 3,
    "host": 4,
    "ffi": 5,
}
HOST_LAYERS = {"host", "ffi"}

# Outside cuda/ptx, comments and strings aside.
FORBIDDEN = {
    r"\b(?:threadIdx|blockIdx|blockDim|gridDim|warpSize|clusterIdx)\b": "a special register",
    r"\b__(?:shared|constant)__\b": "a memory space",
    r"\b__(?:sync|shfl|ballot|any_|all_|activemask|thread|cvta|trap|ldg)\w*": "an intrinsic",
    r"<<<": "a launch",
    r"\b(?:asm|__asm__)\b": "inline assembly",
    r"\b(?:__nv_fp8|__nv_bfloat16|__half|nv_bfloat16)\w*": "a CUDA number type",
    r"\b(?:cuTensorMap\w*|CU_TENSOR_MAP_\w+)": "the tensor-map driver API",
    r"\bcu[A-Z]\w*\s*\(": "a driver call",
    r"\bcuda(?:Launch|FuncSet)\w*": "a launch call",
    r"\bcuda(?:Malloc|Free|Mem(?!\w+Async\b|cpy\w+To\w+\b))\w*": "a blocking memory call",
    r"\bcuda(?:StreamSynchronize|DeviceSynchronize|GetDriverEntryPoint)\w*": "a driver call",
}
# In kernel layers the runtime API appears only as types in signatures.
KERNEL_RUNTIME_NAMES = re.compile(r"cudaStream_t|cudaError\w*|cudaSuccess")
HEADERS_OF_PTX_ONLY = re.compile(r"cuda\.h|cuda_runtime\.h|cuda_(?:fp\d+|bf16)\.h|cooperative_groups.*|cuda/.*")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _check_include(layer: str, kind: str, target: str) -> str | None:
    if kind == "<":
        if layer != "ptx" and HEADERS_OF_PTX_ONLY.fullmatch(target):
            return f"<{target}> belongs in cuda/ptx"
        return None
    if target.startswith("xla/"):
        return None if layer == "ffi" else f'"{target}" belongs in cuda/ffi'
    folder = target.partition("/")[0]
    if folder not in RANK or not (CUDA / target).is_file():
        return f'"{target}" is no file of cuda/ (write the path from cuda/)'
    if folder != layer and RANK[folder] >= RANK[layer]:
        return f'"{target}": {layer} must not include {folder}'
    return None


def check_file(path: Path, layer: str) -> list[str]:
    text = path.read_text()
    found = []
    for match in INCLUDE.finditer(text):
        if problem := _check_include(layer, match[1], match[2]):
            found.append((_line(text, match.start()), problem))
    if layer != "ptx":
        code = strip_comments_and_strings(text)
        for pattern, what in FORBIDDEN.items():
            found += [
                (_line(code, m.start()), f"{m[0]!r}: {what} outside cuda/ptx") for m in re.finditer(pattern, code)
            ]
        if layer not in HOST_LAYERS:
            runtime = {m[0]: m.start() for m in re.finditer(r"\bcuda[A-Z]\w*", code)}
            found += [
                (_line(code, position), f"{name!r}: the CUDA runtime API in a kernel layer")
                for name, position in runtime.items()
                if not KERNEL_RUNTIME_NAMES.fullmatch(name)
            ]
    return [f"cuda/{path.relative_to(CUDA).as_posix()}:{line}: {problem}" for line, problem in sorted(found)]


def check() -> list[str]:
    files = sorted(p for p in CUDA.rglob("*") if p.suffix in {".h", ".cc", ".cu", ".cuh"})
    if not files:
        raise Unavailable(f"no sources under {CUDA}")
    problems = []
    for path in files:
        layer = path.relative_to(CUDA).parts[0]
        if layer in RANK:
            problems += check_file(path, layer)
        else:
            problems.append(f"cuda/{path.relative_to(CUDA).as_posix()}: no layer named {layer}")
    return problems


if __name__ == "__main__":
    main(check)
