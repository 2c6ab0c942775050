"""scikit-build-core's backend, plus NVIDIA's compiler as a requirement where no nvcc is at hand.

The wheels (104 MB) are asked for only on Linux x86_64/aarch64, when `find_system_nvcc` finds
nothing and the CUDA part is not switched off, by JAX_FP8_CUDA=OFF in the environment or by `pip
install . -C cmake.define.JAX_FP8_CUDA=OFF`.
"""

from __future__ import annotations

import os
import platform
import sys
from typing import Any

from find_nvcc import find_system_nvcc
from scikit_build_core import build as _build
from scikit_build_core.build import *  # noqa: F403  (the other hooks, unchanged)

# 13.0: driver 580 and newer load what it makes.
_NVCC_WHEELS = [
    f"{name}==13.0.*"
    for name in (
        "nvidia-cuda-nvcc",
        "nvidia-nvvm",
        "nvidia-cuda-crt",
        "nvidia-cuda-runtime",
        "nvidia-cuda-cccl",
    )
]
_OFF = {"OFF", "0", "NO", "FALSE"}


def _cuda_mode(settings: dict[str, Any] | None) -> str:
    """AUTO, ON or OFF, read as CMake will: config settings win over the environment."""
    settings = settings or {}
    mode = os.environ.get("JAX_FP8_CUDA") or "AUTO"
    nested = settings.get("cmake", {})  # {"cmake": {"define": {...}}} is how some front ends pass it
    if isinstance(nested, dict):
        mode = nested.get("define", {}).get("JAX_FP8_CUDA", mode)
    for key in ("cmake.define.JAX_FP8_CUDA", "skbuild.cmake.define.JAX_FP8_CUDA"):
        mode = settings.get(key, mode)
    return str(mode).upper()


def _compiler_requires(settings: dict[str, Any] | None) -> list[str]:
    supported = sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64")
    if not supported or _cuda_mode(settings) in _OFF or find_system_nvcc():
        return []
    return _NVCC_WHEELS


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    return [
        *_build.get_requires_for_build_wheel(config_settings),
        *_compiler_requires(config_settings),
    ]


def get_requires_for_build_editable(config_settings: dict[str, Any] | None = None) -> list[str]:
    return [
        *_build.get_requires_for_build_editable(config_settings),
        *_compiler_requires(config_settings),
    ]
