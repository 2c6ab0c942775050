"""The kernels as plain C++: g++ parses every .cu with tests/host_ptx in place of cuda/ptx.

Holds the kernels to standard C++20 outside cuda/ptx, which the CPU emulator relies on, and finds
names that only nvcc's implicit headers provided. Nothing is linked or run.
"""

from __future__ import annotations

from checklib import CUDA, ROOT, Unavailable, kernel_sources, main, need_tool, run

STUBS = ROOT / "tests" / "host_ptx"
FLAGS = [
    "-std=c++20",
    "-fsyntax-only",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-unknown-pragmas",
    "-Wno-attributes",
]


def check() -> list[str]:
    compiler = need_tool("g++")
    if not any(STUBS.rglob("*.h")):
        raise Unavailable(f"no stub headers in {STUBS}")
    problems = []
    for source in kernel_sources():
        done = run(compiler, *FLAGS, "-I", STUBS, "-I", CUDA, "-x", "c++", source)
        if done.returncode:
            problems.append(f"{source.relative_to(ROOT).as_posix()} is not plain C++:\n{done.stderr}")
    return problems


if __name__ == "__main__":
    main(check)
