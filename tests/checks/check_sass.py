"""Machine code of the installed `_cuda` module: FP8 tensor cores fed by TMA, no local memory.

Reads the module that this Python would import (or the one given as argument) with cuobjdump. Would
catch: a kernel that fell back to ordinary loads or CUDA cores, a spill that a flag hid, a module
built without the kernels.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from checklib import Unavailable, main, need_tool, run

# Kernels whose mangled name has this word are matrix products: they need both instructions.
MATMUL = "fp8_matmul"


def find_module() -> Path:
    for folder in sys.path:
        for module in sorted(Path(folder or ".").glob("jax_fp8/_cuda*.so")):
            return module
    raise Unavailable("no jax_fp8/_cuda*.so on sys.path (not installed, or installed without CUDA kernels)")


def functions(sass: str) -> dict[str, set[str]]:
    """Opcodes (without modifiers) of every function in `cuobjdump -sass` output."""
    parts = re.split(r"(?m)^\s*Function : (\S+)", sass)
    opcode = re.compile(r"(?m)^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9]*)")
    return {name: set(opcode.findall(body)) for name, body in zip(parts[1::2], parts[2::2], strict=True)}


def problems_in(found: dict[str, set[str]]) -> list[str]:
    problems = []
    for name, opcodes in found.items():
        if MATMUL in name or "QGMMA" in opcodes:
            problems += [f"{name}: no {op}" for op in ("QGMMA", "UTMALDG") if op not in opcodes]
        problems += [f"{name}: {op} (local memory)" for op in sorted(opcodes & {"LDL", "STL"})]
    if not any("QGMMA" in opcodes for opcodes in found.values()):
        problems.append(f"no kernel with QGMMA among {len(found)} functions")
    return problems


def check(module: Path | None = None) -> list[str]:
    cuobjdump = need_tool("cuobjdump")
    module = module or find_module()
    done = run(cuobjdump, "-sass", module)
    if done.returncode:
        return [f"cuobjdump -sass {module} failed:\n{done.stderr}"]
    return problems_in(functions(done.stdout))


if __name__ == "__main__":
    main(lambda: check(Path(sys.argv[1]) if len(sys.argv) > 1 else None))
