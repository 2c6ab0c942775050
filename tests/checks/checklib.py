"""What the static checks share: where things are, and how a check reports.

A check is a module with `check() -> list[str]`: one line per problem, none if all is well. It
raises `Unavailable` when something it needs is not there. As a script it prints the problems and
exits 1 on any (2: unavailable); tests/test_static_checks.py runs the same function.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CUDA = ROOT / "cuda"


class Unavailable(Exception):
    """A tool or file that the check needs is not on this machine; the message names it."""


def need_tool(name: str) -> str:
    """Path of a program on PATH, beside this Python, or in an NVIDIA wheel of this Python."""
    folders = [Path(sys.executable).parent]
    folders += [f for p in sys.path for f in sorted(Path(p).glob("nvidia/cu*/bin"), reverse=True)]
    for path in (None, *map(str, folders)):
        if found := shutil.which(name, path=path):
            return found
    raise Unavailable(f"{name} was not found on PATH or among the nvidia-cuda-* wheels")


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600, check=False)


def kernel_sources() -> list[Path]:
    """Every .cu file, i.e. every file that nvcc compiles."""
    sources = sorted(CUDA.rglob("*.cu"))
    if not sources:
        raise Unavailable(f"no .cu file under {CUDA}")
    return sources


def strip_comments_and_strings(text: str) -> str:
    """C++ source with comments and the contents of literals blanked, line numbers kept."""

    def blank(match: re.Match[str]) -> str:
        found = match[0]
        if found.startswith("/"):
            return "\n" * found.count("\n")
        return found[0] * 2

    pattern = r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|(?<![0-9a-zA-Z])'(?:\\.|[^'\\\n])+'"
    return re.sub(pattern, blank, text, flags=re.DOTALL)


def main(check: Callable[[], list[str]]) -> None:
    name = Path(sys.argv[0]).stem
    try:
        problems = check()
    except Unavailable as missing:
        print(f"{name}: not run: {missing}")
        raise SystemExit(2) from None
    for problem in problems:
        print(f"{name}: {problem}")
    print(f"{name}: {len(problems)} problems" if problems else f"{name}: ok")
    raise SystemExit(1 if problems else 0)
