"""Importing: cheap, from anywhere, without a GPU, and refusing modules that don't belong."""

import statistics
import types
from pathlib import Path

import jax
import pytest
from helpers import run_python

import jax_fp8
from jax_fp8 import _build_id, _extension

CHECKOUT = Path(__file__).parent.parent


def test_import_takes_little_time_and_starts_no_backend():
    code = """
import time
import jax, jax.numpy
start = time.perf_counter()
import jax_fp8
print(time.perf_counter() - start)
jax.config.update("jax_num_cpu_devices", 3)  # refused once a backend has started
assert len(jax.devices("cpu")) == 3
"""
    times = []
    for _ in range(3):
        done = run_python(code)
        assert done.returncode == 0, done.stderr
        times.append(float(done.stdout))
    assert statistics.median(times) < 0.3, times


@pytest.mark.parametrize("place", ["checkout", "elsewhere"])
def test_works_from_the_checkout_and_from_elsewhere(place, tmp_path):
    code = """
import sys
import jax.numpy as jnp, jax_fp8
assert (jax_fp8.dot(jnp.full((2, 130), 7.0), jnp.full((130, 3), 7.0)) == 49 * 130).all()
print(jax_fp8.__version__)
"""
    done = run_python(code, cwd=CHECKOUT if place == "checkout" else tmp_path, JAX_PLATFORMS="cpu")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [jax_fp8.__version__]


def test_works_without_a_gpu_or_its_plugin():
    """No device visible, no platform forced, the plugins of jax hidden."""
    code = """
import importlib.metadata, pkgutil, sys
sys.modules["jax_plugins"] = None
entry_points = importlib.metadata.entry_points
importlib.metadata.entry_points = lambda **kw: [] if kw.get("group") == "jax_plugins" else entry_points(**kw)
import jax, jax.numpy as jnp, jax_fp8
assert jax.default_backend() == "cpu"
assert (jax_fp8.dot(jnp.full((2, 130), 7.0), jnp.full((130, 3), 7.0)) == 49 * 130).all()
"""
    done = run_python(code, JAX_PLATFORMS="", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0, done.stderr


def test_a_stale_module_is_refused(monkeypatch):
    for name, build_id in (("_host", "0123456789abcdef+ffi0.3"), ("_cuda", "")):
        stale = types.ModuleType(f"jax_fp8.{name}")
        stale.build_id = build_id
        monkeypatch.setattr(_extension.importlib, "import_module", lambda _: stale)  # noqa: B023
        with pytest.raises(ImportError, match=rf"jax_fp8.{name} is stale: .*`pip install \.`"):
            _extension._load(name)


def test_the_loaded_modules_match_their_source():
    expected, _ = _build_id.expected_id(Path(_extension.__file__).parent)
    for module in (_extension.host, _extension.cuda):
        if module is not None:
            assert module.build_id.partition("+")[0] == expected


def test_a_missing_module_is_none_but_a_broken_one_raises(monkeypatch):
    assert _extension._load("_no_such_module") is None

    def broken(name):
        raise ModuleNotFoundError("No module named 'something_else'", name="something_else")

    monkeypatch.setattr(_extension.importlib, "import_module", broken)
    with pytest.raises(ModuleNotFoundError, match="something_else"):
        _extension._load("_host")


class Cuda(types.ModuleType):
    def __init__(self, version):
        super().__init__("jax_fp8._cuda")
        self.ffi_api_version = lambda: version
        self.blockwise_matmul = self.quantize = lambda: {"execute": None}


@pytest.mark.parametrize("newer", [(0, 1), (1, 0)], ids=["minor", "major"])
def test_newer_ffi_headers_are_refused_before_anything_is_registered(monkeypatch, newer):
    """XLA would refuse the handlers when its backend starts, and the CPU backend with them."""
    registered = []
    monkeypatch.setattr(jax.ffi, "register_ffi_target", lambda *args, **kwargs: registered.append(args))
    running = _extension._runtime_ffi_version()
    built = (running[0] + newer[0], running[1] + newer[1])
    message = rf"built with XLA FFI headers {built[0]}.{built[1]}, newer than the {running[0]}.{running[1]} of"
    with pytest.raises(ImportError, match=message):
        _extension._register(Cuda(built))
    assert not registered
    for version in (running, (0, 1)):
        _extension._register(Cuda(version))
    assert len(registered) == 4


def test_the_running_ffi_version_is_found():
    assert _extension._runtime_ffi_version() >= (0, 3)
