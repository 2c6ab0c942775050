"""The build id: one hash of everything that the compiled modules are made from.

CMake runs this file to compile the id into `_host` and `_cuda` and to install it as
`_build_id.txt`; the package calls `check` after loading a module. A package that lies in a source
checkout compares with the sources beside it, an installed one with the id recorded at install: an
extension built from other sources is refused, never used.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

_RECORD = "_build_id.txt"
_SUFFIXES = (".h", ".cc", ".cu")


def source_files(root: Path) -> list[Path]:
    """Files that decide what the modules do, in one fixed order."""
    sources = (p for p in (root / "cuda").rglob("*") if p.suffix in _SUFFIXES)
    return [root / "CMakeLists.txt", *sorted(sources, key=lambda p: p.relative_to(root).as_posix())]


def source_id(root: Path) -> str:
    """Hash of names and contents of `source_files(root)`, 16 hex digits."""
    digest = hashlib.sha256()
    for path in source_files(root):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


def expected_id(package: Path) -> tuple[str | None, str]:
    """The id that modules used from `package` must have (None: unknown), and where it is from."""
    root = package.resolve().parent
    if (root / "CMakeLists.txt").is_file() and (root / "cuda").is_dir():
        return source_id(root), f"the sources in {root}"
    record = package / _RECORD
    return (record.read_text().strip() if record.is_file() else None), f"the package in {package}"


def check(package: Path, module: str, build_id: str) -> None:
    """Raise ImportError if `module` was not built from what `package` expects.

    `build_id` is the module's own, `<source id>+ffi<major>.<minor>`; the source id is compared.
    """
    expected, origin = expected_id(package)
    built = build_id.partition("+")[0]
    if expected != built:
        raise ImportError(
            f"jax_fp8: {module} is stale: it was built from sources with id {built}, but the id of "
            f"{origin} is {expected or 'unknown'}. Run `pip install .` again in the checkout."
        )


if __name__ == "__main__":
    print(source_id(Path(sys.argv[1])), end="")
