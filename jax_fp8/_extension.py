"""The compiled modules: found, checked against this source and this jaxlib, and registered with XLA; all at import.

`_host` (choice of configurations, pure C++) is always there; `_cuda` (the kernels) where nvcc was at build time.
"""

from __future__ import annotations

import importlib
import math
import re
from pathlib import Path
from types import ModuleType

import jax
from jax.extend import backend

from jax_fp8 import _build_id

MATMUL_TARGET = "jax_fp8.blockwise_matmul.v1"
QUANTIZE_TARGET = "jax_fp8.quantize.v1"
HOPPER = "9.0"
TMA_ROW_BYTES = 16


def _load(name: str) -> ModuleType | None:
    try:
        module = importlib.import_module(f"jax_fp8.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"jax_fp8.{name}":
            raise
        return None
    _build_id.check(Path(__file__).parent, module.__name__, module.build_id)
    return module


def _runtime_ffi_version() -> tuple[int, int]:
    text = (Path(jax.ffi.include_dir()) / "xla/ffi/api/c_api.h").read_text()
    major, minor = (re.search(rf"#define XLA_FFI_API_{part} (\d+)", text) for part in ("MAJOR", "MINOR"))
    return (int(major[1]), int(minor[1])) if major and minor else (0, 0)


def _register(module: ModuleType) -> None:
    built, running = tuple(module.ffi_api_version()), _runtime_ffi_version()
    if built > running:  # XLA would refuse the handlers and, with them, its whole backend
        raise ImportError(
            f"jax_fp8 was built with XLA FFI headers {built[0]}.{built[1]}, newer than "
            f"the {running[0]}.{running[1]} of the installed jaxlib; build it again (pip install .), which uses the "
            "oldest supported headers, or upgrade jaxlib"
        )
    jax.ffi.register_ffi_target(MATMUL_TARGET, module.blockwise_matmul(), platform="CUDA")
    jax.ffi.register_ffi_target(QUANTIZE_TARGET, module.quantize(), platform="CUDA")


def _require_host() -> ModuleType:
    module = _load("_host")
    if module is None:
        raise ImportError("jax_fp8: the compiled module jax_fp8._host is missing; run `pip install .` in the checkout")
    return module


host = _require_host()
cuda = _load("_cuda")
if cuda is not None:
    _register(cuda)


def use_kernels() -> bool:
    """Whether a lowering for CUDA takes our kernels: on Hopper, and when compiling for a GPU that isn't here.

    Raises:
      RuntimeError: a Hopper GPU and no kernels in this installation: never a silent fall-back.
    """
    client = backend.backends().get("cuda")
    if client is not None and not any(d.compute_capability == HOPPER for d in client.local_devices()):
        return False
    if cuda is None:
        raise RuntimeError(
            "jax_fp8: this installation has no CUDA kernels (no nvcc was found when it was built); with nvcc on PATH "
            "or CUDA_HOME set, run `pip install '.[cuda13]'` again"
        )
    return True


def scratch_bytes(a_shape: tuple[int, ...], b_shape: tuple[int, ...]) -> int:
    """Bytes of scratch the product needs: both operands again with k padded, where TMA can't read their rows."""
    k = a_shape[-1]
    if k % TMA_ROW_BYTES == 0:
        return 0
    padded = -(-k // TMA_ROW_BYTES) * TMA_ROW_BYTES
    sizes = (math.prod(a_shape[:-1]) * padded, math.prod(b_shape[:-1]) * padded)
    return sum(-(-size // 256) * 256 for size in sizes)  # each part starts on a 256-byte boundary
