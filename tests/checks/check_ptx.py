"""The kernels as nvcc compiles them for release: no trap, no spill, no ignored instruction.

A stage that is not released on every path traps in its destructor; nvcc removes the trap where
every path releases, so a `trap` left in the PTX is a forgotten release (or a check left on). ptxas
reports ignored setmaxnreg and serialised wgmma (C75xx) as information, which no warning flag turns
into an error: they are read from its output here.
"""

from __future__ import annotations

import re
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from checklib import CUDA, ROOT, kernel_sources, main, need_tool, run

# As in CMakeLists.txt, Release.
FLAGS = ["-std=c++20", "-O3", "-DNDEBUG", "--expt-relaxed-constexpr", f"-I{CUDA}"]
CAPABILITY = {"sm90": "90a", "quantize": "90a", "sm100": "100a"}


def traps(ptx: str) -> list[str]:
    """Names of entry functions that contain a trap."""
    parts = re.split(r"(?m)^\s*(?:\.visible |\.weak )*\.entry\s+(\w+)", ptx)
    return [name for name, body in zip(parts[1::2], parts[2::2], strict=True) if re.search(r"\btrap;", body)]


def ptxas_problems(log: str) -> list[str]:
    """Lines of ptxas -v output that report spills, local memory or C75xx, with their function."""
    problems = []
    function = "?"
    for line in log.splitlines():
        if match := re.search(r"(?:Compiling entry function|Function properties for) '?(\w+)", line):
            function = match[1]
        counts = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line)
        if counts and any(map(int, counts.groups())):
            problems.append(f"{function}: {line.strip()}")
        if re.search(r"\(C75\d\d\)", line):
            problems.append(line.strip())
    return problems


def check_source(source: Path, nvcc: str) -> list[str]:
    name = source.relative_to(ROOT).as_posix()
    capability = CAPABILITY[source.relative_to(CUDA).parts[0]]
    virtual = f"-gencode=arch=compute_{capability},code=compute_{capability}"
    real = f"-gencode=arch=compute_{capability},code=sm_{capability}"
    with tempfile.TemporaryDirectory() as folder:
        ptx = Path(folder) / "kernels.ptx"
        done = run(nvcc, *FLAGS, virtual, "-ptx", source, "-o", ptx)
        if done.returncode:
            return [f"{name}: nvcc -ptx failed:\n{done.stderr}"]
        found = [f"{name}: trap in {function}" for function in traps(ptx.read_text())]
        done = run(
            nvcc,
            real,
            "-cubin",
            "-Xptxas",
            "-v,-warn-spills,-warn-lmem-usage",
            ptx,
            "-o",
            f"{folder}/kernels.cubin",
        )
        if done.returncode:
            return [*found, f"{name}: ptxas failed:\n{done.stderr}"]
        return found + [f"{name}: {problem}" for problem in ptxas_problems(done.stderr + done.stdout)]


def check() -> list[str]:
    nvcc = need_tool("nvcc")
    with ThreadPoolExecutor(2) as pool:
        return [p for found in pool.map(lambda s: check_source(s, nvcc), kernel_sources()) for p in found]


if __name__ == "__main__":
    main(check)
