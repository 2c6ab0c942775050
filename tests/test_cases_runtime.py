"""Cases that concern the running process: empty shapes, errors of the kernels, streams, command buffers, devices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_same_bits, equations, run_python
from jax import lax

import jax_fp8
from jax_fp8 import _extension, _matmul, _quantize
from jax_fp8.testing import assert_matmul_close, exact_operand, exactly_quantizable

# ---- case 6 ----------------------------------------------------------------------------------------------------------


def test_empty_products_leave_the_process_and_device_working():
    code = """
import jax, jax.numpy as jnp, jax_fp8
for m, n, k in ((0, 130, 7168), (4, 0, 256), (4, 130, 0), (0, 0, 0)):
    w = jnp.ones((k, n))
    for fn in (jax_fp8.dot, jax.jit(jax_fp8.dot), jax.vmap(jax_fp8.dot, (0, None))):
        x = jnp.ones((2, m, k)) if fn not in (jax_fp8.dot,) else jnp.ones((m, k))
        out = fn(x, w)
        assert out.shape == (*x.shape[:-1], n) and not out.any(), (m, n, k)
        jax.tree.map(lambda g, p: None if g.shape == p.shape else 1 / 0,
                     jax.grad(lambda x, w: fn(x, w).sum(), (0, 1))(x, w), (x, w))
    q = jax_fp8.quantize(jnp.zeros((m, k)))
    assert q.codes.shape == (m, k) and q.scales.shape == (m, -(-k // 128))
assert (jax_fp8.dot(jnp.full((3, 256), 7.0), jnp.full((256, 130), 7.0)) == 49 * 256).all()
print("alive")
"""
    done = run_python(code)
    assert done.returncode == 0, done.stderr
    assert "alive" in done.stdout


# ---- case 45 ---------------------------------------------------------------------------------------------------------


def test_float8_is_only_converted_never_computed_with():
    """XLA's float8 arithmetic differs between versions and platforms: the definitions upcast first."""
    x = jnp.ones((2, 130, 300))
    codes, scales = jnp.ones((130, 300), jnp.uint8), jnp.ones((2, 3))
    row_scales = jnp.ones((130, 3))
    definitions = [
        jax.make_jaxpr(lambda x: _quantize.quantize_definition(x, rows=128, axes=(-1, -2), scale_rounding="none"))(x),
        jax.make_jaxpr(lambda *a: _matmul.matmul_definition(*a, rows=128, out_dtype=jnp.float32))(
            codes, row_scales, codes, scales
        ),
        jax.make_jaxpr(lambda c, s: jax_fp8.BlockScaled(c, s).dequantize())(codes, scales),
    ]
    used = set()
    for jaxpr in definitions:
        for eqn in equations(jaxpr):
            if any("float8" in str(v.aval.dtype) for v in (*eqn.invars, *eqn.outvars)):
                used.add(eqn.primitive.name)
    assert used == {"convert_element_type", "bitcast_convert_type"}


# ---- cases 58, 61: errors, never a silent fall-back ------------------------------------------------------------------


class Device:
    def __init__(self, capability):
        self.compute_capability = capability


class Client:
    def __init__(self, *capabilities):
        self.devices = [Device(c) for c in capabilities]

    def local_devices(self):
        return self.devices


def test_hopper_without_kernels_raises(monkeypatch):
    monkeypatch.setattr(_extension, "cuda", None)
    monkeypatch.setattr(_extension.backend, "backends", lambda: {"cuda": Client("9.0")})
    with pytest.raises(RuntimeError, match=r"this installation has no CUDA kernels .*pip install"):
        _extension.use_kernels()


@pytest.mark.parametrize("capability", ["7.5", "8.0", "8.6", "8.9", "10.0", "12.0"])
def test_other_gpus_use_the_definition(monkeypatch, capability):
    monkeypatch.setattr(_extension.backend, "backends", lambda: {"cuda": Client(capability)})
    for cuda in (None, object()):
        monkeypatch.setattr(_extension, "cuda", cuda)
        assert not _extension.use_kernels()


def test_hopper_with_kernels(monkeypatch):
    monkeypatch.setattr(_extension, "cuda", object())
    for clients in ({"cuda": Client("9.0")}, {"cuda": Client("8.0", "9.0")}, {}):
        monkeypatch.setattr(_extension.backend, "backends", lambda: clients)  # noqa: B023
        assert _extension.use_kernels()


def call_handler(a, a_scales, b, b_scales, out, scratch=0, rows=128, config=""):
    call = jax.ffi.ffi_call(
        _extension.MATMUL_TARGET, (jax.ShapeDtypeStruct(*out), jax.ShapeDtypeStruct((scratch,), jnp.uint8))
    )
    return call(a, a_scales, b, b_scales, rows_per_b_scale=np.int64(rows), config=config)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("b_scales", "out", "config", "message"),
    [
        (
            (2, 2),
            ((5, 300), jnp.float32),
            "",
            r"b.scales has shape \(2, 2\); b \(300, 256\) in 128x128 blocks needs \(3, 2\)",
        ),
        ((3, 2), ((5, 301), jnp.float32), "", "blockwise_matmul"),
        ((3, 2), ((5, 300), jnp.int32), "", "result must be bfloat16, float16 or float32"),
        ((3, 2), ((5, 300), jnp.float32), "3x5", "3x5"),
    ],
)
def test_a_handler_that_cannot_run_raises(b_scales, out, config, message):
    a, b = jnp.zeros((5, 256), jnp.uint8), jnp.zeros((300, 256), jnp.uint8)
    with pytest.raises(jax.errors.JaxRuntimeError, match=message):
        jax.block_until_ready(call_handler(a, jnp.ones((5, 2)), b, jnp.ones(b_scales), out, config=config))
    x, w = np.full((5, 256), 7, np.float32), np.full((256, 130), 7, np.float32)
    assert (jax_fp8.dot(x, w) == 49 * 256).all()  # and the next call works


# ---- case 53 ---------------------------------------------------------------------------------------------------------


def test_runs_on_the_device_of_its_data(rng):
    device = jax.devices()[-1]
    x, w = (exactly_quantizable(rng, s) for s in ((65, 300), (300, 140)))
    on_device = [jax.device_put(v, device) for v in (x, w)]
    for _ in range(2):
        out = jax_fp8.dot(*on_device)
        assert out.devices() == {device}
        np.testing.assert_array_equal(out, x.astype(np.float64) @ w)
        np.testing.assert_array_equal(jax_fp8.dot(x, w), out)  # on the default device


# ---- case 55 ---------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
def test_long_chains_without_waiting(rng):
    """A kernel on another stream than XLA's would read stale or unfinished data."""

    @jax.jit
    def chain(x, w, v):
        x = (x @ w).astype(jnp.bfloat16)  # long enough that a launch on another stream overtakes it
        q = jax_fp8.quantize(x)
        y = jax_fp8.blockwise_matmul(q, jax_fp8.quantize(v, (128, 128)), jnp.float32)
        return y + 1, q

    w = jnp.asarray(rng.standard_normal((4096, 4096)), jnp.bfloat16)
    v = jnp.asarray(rng.standard_normal((200, 4096)), jnp.bfloat16)
    xs = [jnp.asarray(rng.standard_normal((4096, 4096)), jnp.bfloat16) for _ in range(4)]
    expected = [jax.block_until_ready(chain(x, w, v)) for x in xs]
    outs = [chain(xs[i % 4], w, v) for i in range(100)]
    for i, out in enumerate(outs):
        assert_same_bits(out, expected[i % 4])
    y, q = expected[0]
    head = jax_fp8.BlockScaled(q.codes[:50], q.scales[:50], (1, 128))
    assert_matmul_close((y - 1)[:50], head, jax_fp8.quantize(v, (128, 128)))


CHAIN = """
import jax, jax.numpy as jnp, numpy as np, jax_fp8
rng = np.random.default_rng(0)
step = lambda x, w: jax_fp8.blockwise_matmul(jax_fp8.quantize(x), w)
one = jax.jit(step)
for m, d in ((1, 1024), (16, 7168), (64, 512), (129, 640), (300, 1000), (2000, 2048)):
    w = jax_fp8.quantize(jnp.asarray(rng.standard_normal((d, d)) / d**0.5, jnp.bfloat16), (128, 128))
    x = jnp.asarray(rng.standard_normal((m, d)), jnp.bfloat16)
    expected = [x]
    for _ in range(40):
        expected.append(jax.block_until_ready(one(jax.block_until_ready(expected[-1]), w)))

    @jax.jit
    def chain(x, w):
        out = []
        for _ in range(40):
            x = step(x, w)
            out.append(x)
        return out

    for _ in range(3):
        for i, (got, want) in enumerate(zip(chain(x, w), expected[1:])):
            np.testing.assert_array_equal(np.asarray(got, np.float32), np.asarray(want, np.float32), f"{m} {i}")

# weights whose scales are made right in front of the product that reads them
for m, n in ((64, 1024), (300, 1024)):
    x = jax_fp8.quantize(jnp.asarray(rng.standard_normal((m, 1024)), jnp.bfloat16))
    w = jnp.asarray(rng.standard_normal((n, 1024)), jnp.bfloat16)

    @jax.jit
    def product(x, w, factor):
        return jax_fp8.blockwise_matmul(x, jax_fp8.quantize(w * factor, (128, 128)))

    @jax.jit
    def products(x, w, factors):
        out = []
        for factor in factors:
            out.append(product(x, w * (1 if not out else 1 + 0 * jnp.isnan(out[-1][0, 0])), factor))
        return out

    factors = [jnp.bfloat16(2.0**i) for i in (0, 9, -7, 3, 20, -15, 1, 12)]
    expected = [jax.block_until_ready(product(x, w, factor)) for factor in factors]
    for _ in range(5):
        for i, (got, want) in enumerate(zip(products(x, w, factors), expected)):
            np.testing.assert_array_equal(np.asarray(got, np.float32), np.asarray(want, np.float32), f"{m} {i}")
"""


@pytest.mark.gpu
@pytest.mark.parametrize("xla_flags", ["--xla_gpu_enable_command_buffer=", ""])
def test_kernels_in_a_row_wait_for_each_other(xla_flags):
    """Each starts before the one in front of it has ended (programmatic dependent launch): what it reads must be there,
    and nobody may read any more what it overwrites."""
    done = run_python(CHAIN, XLA_FLAGS=xla_flags, XLA_PYTHON_CLIENT_PREALLOCATE="false")
    assert done.returncode == 0, done.stderr[-3000:]


# ---- case 56 ---------------------------------------------------------------------------------------------------------

LOOPS = """
import sys
import jax, jax.numpy as jnp, numpy as np, jax_fp8
from jax import lax
rng = np.random.default_rng(0)
x = jnp.asarray(rng.standard_normal((70, 512)), jnp.bfloat16)
w = jnp.asarray(rng.standard_normal((6, 512, 512)) / 22, jnp.bfloat16)
layer = lambda x, w: jnp.tanh(jax_fp8.dot(x, w))
run = jax.jit(lambda x, w: lax.scan(lambda x, w: (layer(x, w), None), x, w)[0])
first = run(x, w)  # the first call of all happens inside the loop, and so inside a capture
loop = jax.jit(lambda x, w: lax.while_loop(lambda c: c[0] < 6, lambda c: (c[0] + 1, layer(c[1], w[c[0]])), (0, x))[1])
grads = jax.jit(jax.grad(lambda x, w: run(x, w).astype(jnp.float32).sum(), (0, 1)))
outs = [first, loop(x, w), *grads(x, w)]
for _ in range(20):
    again = [run(x, w), loop(x, w), *grads(x, w)]
    for a, b in zip(outs, again):
        np.testing.assert_array_equal(np.asarray(a, np.float32), np.asarray(b, np.float32))
np.savez(sys.argv[1], *[np.asarray(o, np.float32) for o in outs])
"""


@pytest.mark.gpu
def test_command_buffers_on_and_off_give_the_same_bits(tmp_path):
    flags = {
        "off": "--xla_gpu_enable_command_buffer=",
        "on": "--xla_gpu_enable_command_buffer=+CUSTOM_CALL,+WHILE --xla_gpu_graph_min_graph_size=1",
        "default": "",
    }
    results = {}
    for name, xla_flags in flags.items():
        path = tmp_path / f"{name}.npz"
        code = LOOPS.replace("sys.argv[1]", repr(str(path)))
        done = run_python(code, XLA_FLAGS=xla_flags, XLA_PYTHON_CLIENT_PREALLOCATE="false")
        assert done.returncode == 0, done.stderr[-3000:]
        results[name] = np.load(path)
    for name in ("on", "default"):
        for key in results["off"].files:
            np.testing.assert_array_equal(results[name][key], results["off"][key], err_msg=f"{name} {key}")


CAPTURED = """
import sys, pathlib
import jax, jax.numpy as jnp, jax_fp8
w = jax_fp8.quantize_weight(jnp.ones((512, 512), jnp.bfloat16), for_inference=True)
step = jax.jit(lambda x: jax_fp8.dot(jnp.tanh(jax_fp8.dot(x, w)), w))
x = jnp.ones((64, 512), jnp.bfloat16)
jax.block_until_ready(step(x))
with jax.profiler.trace(sys.argv[1]):
    for _ in range(3):
        jax.block_until_ready(step(x))
(trace,) = pathlib.Path(sys.argv[1]).rglob("*.xplane.pb")
names = {"host": [], "device": []}
for plane in jax.profiler.ProfileData.from_file(str(trace)).planes:
    for line in plane.lines:
        names["device" if plane.name.startswith("/device:GPU") else "host"] += [e.name for e in line.events]
count = lambda where, text: sum(text in name for name in names[where])
assert count("host", "cuGraphLaunch") == 3, names["host"]
assert count("device", "blockwise_fp8_matmul") == count("device", "fp8_quantize") == 6, names["device"]
"""


@pytest.mark.gpu
def test_profile_shows_our_kernels_in_command_buffers(tmp_path):
    code = CAPTURED.replace("sys.argv[1]", repr(str(tmp_path)))
    flags = "--xla_enable_command_buffers_during_profiling=true --xla_gpu_graph_min_graph_size=1"
    done = run_python(code, XLA_FLAGS=flags, XLA_PYTHON_CLIENT_PREALLOCATE="false")
    assert done.returncode == 0, done.stderr[-3000:]


# ---- threads ---------------------------------------------------------------------------------------------------------


def test_many_threads(rng):
    from concurrent.futures import ThreadPoolExecutor

    a = [exact_operand(rng, (m, 300)) for m in (3, 65, 130, 200)]
    b = exact_operand(rng, (140, 300), (128, 128))
    product = jax.jit(jax_fp8.blockwise_matmul)
    expected = [product(x, b) for x in a]
    with ThreadPoolExecutor(8) as pool:
        outs = list(pool.map(lambda i: jax.jit(lambda x: jax_fp8.blockwise_matmul(x, b))(a[i % 4]), range(32)))
    for i, out in enumerate(outs):
        assert_same_bits(out, expected[i % 4])


def test_fori_loop(rng):
    x, w = (jnp.asarray(exactly_quantizable(rng, s)) for s in ((5, 130), (130, 7)))
    out = lax.fori_loop(0, 5, lambda _, total: total + jax_fp8.dot(x, w), jnp.zeros((5, 7)))
    np.testing.assert_array_equal(out, 5 * (np.asarray(x, np.float64) @ np.asarray(w, np.float64)))
