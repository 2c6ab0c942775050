"""What the installed `_cuda` module needs of a machine: the C++ runtime only, and a GPU of a named architecture.

Would catch: cudart linked dynamically (then CUDA 12 and 13 installations exclude each other), libcuda linked (then
the import fails without a driver), machine code for another architecture than sm_90a, PTX that would load elsewhere.
"""

from __future__ import annotations

import re

from check_sass import find_module
from checklib import main, need_tool, run

RUNTIME = {
    "libc",
    "libm",
    "libstdc++",
    "libgcc_s",
    "libdl",
    "librt",
    "libpthread",
    "ld-linux-x86-64",
    "ld-linux-aarch64",
}
ARCHITECTURES = {"sm_90a"}


def problems_in(dynamic_section: str, cubins: str) -> list[str]:
    """From `readelf -d` and `cuobjdump --list-elf --list-ptx`."""
    needed = re.findall(r"\(NEEDED\).*\[(\S+?)\.so[.\d]*\]", dynamic_section)
    problems = [f"needs {name}" for name in needed if name not in RUNTIME]
    architectures = set(re.findall(r"ELF file.*\.(sm_\w+)\.cubin", cubins))
    if architectures != ARCHITECTURES:
        problems.append(f"has machine code for {sorted(architectures)}, not {sorted(ARCHITECTURES)}")
    if "PTX file" in cubins:
        problems.append("embeds PTX")
    return problems


def check() -> list[str]:
    readelf, cuobjdump, module = need_tool("readelf"), need_tool("cuobjdump"), find_module()
    return problems_in(run(readelf, "-d", module).stdout, run(cuobjdump, "--list-elf", "--list-ptx", module).stdout)


if __name__ == "__main__":
    main(check)
