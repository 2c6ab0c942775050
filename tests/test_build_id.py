"""The build id: what counts, and that a stale extension is refused.

Would catch: a checkout that silently runs an extension built from other sources, or one whose
compiled modules cannot be found because the source folder hides the installed package.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from jax_fp8 import _build_id

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def checkout(tmp_path):
    (tmp_path / "cuda" / "sm90").mkdir(parents=True)
    (tmp_path / "jax_fp8").mkdir()
    (tmp_path / "CMakeLists.txt").write_text("project(x)")
    (tmp_path / "cuda" / "sm90" / "launch.cu").write_text("int x;")
    return tmp_path


def test_names_and_contents_count_and_other_files_do_not(checkout):
    before = _build_id.source_id(checkout)
    (checkout / "cuda" / "notes.txt").write_text("not compiled")
    assert _build_id.source_id(checkout) == before
    (checkout / "cuda" / "sm90" / "launch.cu").write_text("int y;")
    changed = _build_id.source_id(checkout)
    (checkout / "cuda" / "sm90" / "launch.cu").rename(checkout / "cuda" / "sm90" / "other.cu")
    assert len({before, changed, _build_id.source_id(checkout)}) == 3


def test_stale_extension_is_refused(checkout):
    built = f"{_build_id.source_id(checkout)}+ffi0.3"
    _build_id.check(checkout / "jax_fp8", "jax_fp8._host", built)
    (checkout / "cuda" / "sm90" / "launch.cu").write_text("int y;")
    with pytest.raises(ImportError, match=r"jax_fp8\._host is stale.*Run `pip install \.` again"):
        _build_id.check(checkout / "jax_fp8", "jax_fp8._host", built)


def test_installed_package_compares_with_its_record(tmp_path):
    package = tmp_path / "jax_fp8"
    package.mkdir()
    with pytest.raises(ImportError, match="unknown"):
        _build_id.check(package, "jax_fp8._host", "0123456789abcdef+ffi0.3")
    (package / "_build_id.txt").write_text("0123456789abcdef\n")
    _build_id.check(package, "jax_fp8._host", "0123456789abcdef+ffi0.3")


@pytest.mark.parametrize("start", [ROOT, None], ids=["in the checkout", "elsewhere"])
def test_import_finds_the_extension(tmp_path, start):
    code = "import jax_fp8, jax_fp8._host as h; print(jax_fp8.__file__); print(h.__file__)"
    done = subprocess.run([sys.executable, "-c", code], cwd=start or tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    package, host = map(Path, done.stdout.split("\n")[:2])
    assert (package.parent.parent == ROOT) is (start is not None)
    assert host.parent != ROOT / "jax_fp8"
