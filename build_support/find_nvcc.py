"""Where nvcc is: the one search order that the build backend and CMake share.

`find_nvcc()` looks at what the user said (CUDACXX, CUDA_HOME, CUDA_PATH), then PATH, then
/usr/local/cuda, and last at the nvidia-cuda-nvcc wheel of this Python. Run as a script it prints
the path, or nothing.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path


def find_system_nvcc() -> str | None:
    """An nvcc outside this Python's packages."""
    if compiler := shutil.which(os.environ.get("CUDACXX", "")):
        return compiler
    folders = [Path(os.environ[name]) / "bin" for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    for folder in folders:
        if compiler := shutil.which("nvcc", path=str(folder)):
            return compiler
    return shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")


def find_wheel_nvcc() -> str | None:
    """The nvcc that the nvidia-cuda-nvcc wheel put into this Python, newest CUDA first."""
    try:
        spec = importlib.util.find_spec("nvidia")
    except (ImportError, ValueError):
        return None
    roots = (spec.submodule_search_locations or []) if spec else []
    found = [path for root in roots for path in Path(root).glob("cu*/bin/nvcc")]
    return str(max(found, key=lambda path: path.parts[-3])) if found else None


def find_nvcc() -> str | None:
    return find_system_nvcc() or find_wheel_nvcc()


if __name__ == "__main__":
    print(find_nvcc() or "", end="")
