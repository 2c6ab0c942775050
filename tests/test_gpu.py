"""Only on the kernels: real sizes, every shape the benchmark times, races, 64-bit indices, memory.

Finds: a tile that is skipped, written twice or read too early; an index that wraps at 2^31; scratch or outputs that
show through; different bytes than the CPU's.
"""

import threading

import helpers
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from helpers import assert_same_bits, bits

import jax_fp8
from jax_fp8.testing import assert_matmul_close, dequantize_reference, exact_operand, quantize_reference

pytestmark = pytest.mark.gpu

BLOCKS = [(1, 128), (128, 128)]
WEIGHTS = [(2112, 7168), (576, 7168), (24576, 1536), (32768, 512), (7168, 16384), (4096, 7168), (7168, 2048)]
matmul = jax.jit(jax_fp8.blockwise_matmul, static_argnames=("out_dtype", "config"))
quantize = jax.jit(jax_fp8.quantize, static_argnames=("block", "scale_rounding"))


@pytest.fixture(autouse=True)
def poison():
    """Memory that the next call gets starts as NaN: nothing that a kernel leaves unwritten looks like a zero."""
    jax.block_until_ready(jnp.full((4 << 30,), 0x7F, jnp.uint8)).delete()


def normal(seed, shape, block=(1, 128), dtype=jnp.bfloat16):
    x = jax.random.normal(jax.random.key(seed), shape, dtype)
    return x, quantize(x, block)


def take_rows(q, rows):
    """Some rows of a 1x128 operand, on the host."""
    return jax_fp8.BlockScaled(np.asarray(q.codes[rows]), np.asarray(q.scales[rows]), q.block)


def sample(extent, count=24):
    """First, last, both sides of every size of tile, and some in between."""
    edges = {e + d for e in (0, 64, 128, 192, 256, 512, extent // 128 * 128, extent) for d in (-1, 0)}
    spread = np.linspace(0, extent - 1, count).astype(int).tolist()
    return np.array(sorted(e for e in {*edges, *spread} if 0 <= e < extent))


def check_rows(out, a, b, rows):
    assert_matmul_close(np.asarray(out[rows]), take_rows(a, rows), b)


def selecting(m, k, seed=0):
    """Rows that select one k each: the product with b is an exact copy of b's columns, whatever its values."""
    hot = np.random.default_rng(seed).integers(0, k, m)
    codes = jnp.zeros((m, k), jnp.uint8).at[jnp.arange(m), hot].set(0x38)  # 1.0
    return jax_fp8.BlockScaled(codes, jnp.ones((m, -(-k // 128))), (1, 128)), jnp.asarray(hot)


@jax.jit
def count_wrong(out, b, hot):
    """Elements of a selecting product that differ from b's dequantised columns: no arithmetic, all on the device."""
    columns = b.codes[:, hot].view(jnp.float8_e4m3fn).astype(jnp.float32)
    scales = jnp.repeat(b.scales, b.rows_per_scale, 0)[: b.codes.shape[0]][:, hot // 128]
    expected = (columns * scales).T.astype(out.dtype)
    return jnp.sum(out != expected)


# ---- the same bytes as the definition --------------------------------------------------------------------------------


@pytest.mark.parametrize("scale_rounding", ["none", "power_of_two"])
@pytest.mark.parametrize("block", BLOCKS, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.float16])
def test_quantizer_equals_the_reference(rng, dtype, block, scale_rounding):
    for shape in ((1000, 7168), (7168, 1001), (3, 513, 255), (4097, 130), (1, 1), (129, 16)):
        x = rng.standard_normal(shape).astype(np.float32) * np.exp(rng.uniform(-9, 9, (*shape[:-1], 1)))
        x[..., -1:, :] = 0
        x.flat[rng.integers(0, x.size, x.size // 2000)] = np.nan
        x.flat[rng.integers(0, x.size, x.size // 2000)] = -np.inf
        x = x.astype(np.float32).astype(dtype)
        helpers.assert_quantized(quantize(x, block, scale_rounding=scale_rounding), x, scale_rounding)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_quantizer_equals_the_definition_compiled_for_the_cpu(rng, dtype):
    """Any bit pattern: subnormals, both zeros, NaN payloads, infinities."""
    width = 32 if dtype == jnp.float32 else 16
    x = rng.integers(0, 1 << width, (515, 1030), f"u{width // 8}").view(dtype)
    x[100:] = np.where(np.isfinite(x[100:].astype(np.float32)), x[100:], dtype(1))
    cpu = jax.devices("cpu")[0]
    for block in BLOCKS:
        there = jax.jit(jax_fp8.quantize, static_argnums=1)(jax.device_put(x, cpu), block)
        here = jax_fp8.quantize(jnp.asarray(x), block)
        assert_same_bits(jax.tree.map(np.asarray, here), jax.tree.map(np.asarray, there))


def test_both_orientations_in_one_read(rng):
    w = rng.standard_normal((1030, 515)).astype(np.float32)
    q = jax.jit(jax_fp8.quantize_weight)(w)
    codes, scales = quantize_reference(np.ascontiguousarray(w.T), (128, 128))
    np.testing.assert_array_equal(q.codes, codes)
    np.testing.assert_array_equal(q.scales, scales)
    np.testing.assert_array_equal(q.transposed[0], codes.T)
    np.testing.assert_array_equal(q.transposed[1], scales.T)


# ---- sets D, P, W of the benchmark -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "k"), WEIGHTS)
def test_decode_shapes(n, k):
    """Every element against float64."""
    _, b = normal(1, (n, k), (128, 128))
    for m in (1, 16, 64, 128):
        _, a = normal(m, (m, k))
        check_rows(matmul(a, b), a, b, sample(m) if m > 16 else np.arange(m))
        hot_a, hot = selecting(m, k)
        assert count_wrong(matmul(hot_a, b, jnp.float32), b, hot) == 0


@pytest.mark.parametrize(("m", "n", "k"), [(4096, *w) for w in WEIGHTS] + [(16384, *w) for w in WEIGHTS[:5]] +
                         [(4096, 4096, 4096), (8192, 8192, 8192)])  # fmt: skip
def test_prefill_shapes(m, n, k):
    """Sampled rows against float64, and every element of a selecting product exactly."""
    _, b = normal(1, (n, k), (128, 128))
    _, a = normal(2, (m, k))
    out = matmul(a, b)
    columns = sample(-(-n // 128), 6)  # float64 on the host: some blocks of n
    rows = sample(m, 12)
    for block in columns:
        part = slice(128 * block, 128 * block + 128)
        few = jax_fp8.BlockScaled(np.asarray(b.codes[part]), np.asarray(b.scales[block : block + 1]), (128, 128))
        assert_matmul_close(np.asarray(out[rows, part]), take_rows(a, rows), few)
    hot_a, hot = selecting(m, k)
    for out_dtype in (jnp.bfloat16, jnp.float32):
        assert count_wrong(matmul(hot_a, b, out_dtype), b, hot) == 0


@pytest.mark.parametrize(("n", "k"), [(2112, 7168), (7168, 2048), (576, 7168)])
@pytest.mark.parametrize("tokens", [4096, 16384])
def test_weight_gradient_shapes(n, k, tokens):
    _, ct = normal(1, (n, tokens))
    _, x = normal(2, (k, tokens))
    out = matmul(ct, x, jnp.float32)
    rows, columns = sample(n, 8), sample(k, 8)
    assert_matmul_close(np.asarray(out[rows][:, columns]), take_rows(ct, rows), take_rows(x, columns))
    hot_a, hot = selecting(n, tokens)
    assert count_wrong(matmul(hot_a, x, jnp.float32), x, hot) == 0


@pytest.mark.parametrize(
    ("m", "n", "k"), [(512, 1024, 147456), (1538, 256, 2048), (768, 4096, 2048), (1024, 512, 262144)]
)
def test_long_weight_gradients(m, n, k):  # case 8
    _, a = normal(1, (m, k))
    _, b = normal(2, (n, k))
    out = matmul(a, b, jnp.float32)
    rows, columns = sample(m, 4), sample(n, 4)
    assert_matmul_close(np.asarray(out[rows][:, columns]), take_rows(a, rows), take_rows(b, columns))
    hot_a, hot = selecting(m, k)
    assert count_wrong(matmul(hot_a, b, jnp.float32), b, hot) == 0


@pytest.mark.parametrize("kb", [1, 3, 9, 15, 57])
def test_odd_numbers_of_k_blocks(kb):  # case 5
    for m, n in ((1, 7168), (32, 7168), (4096, 7168)):
        _, b = normal(1, (n, 128 * kb), (128, 128))
        hot_a, hot = selecting(m, 128 * kb)
        assert count_wrong(matmul(hot_a, b, jnp.float32), b, hot) == 0


@pytest.mark.parametrize(
    ("m", "n", "k"), [(8352, 1536, 4096), (32, 8192, 8192), (4096, 7170, 1000), (1000, 24577, 520), (257, 4544, 8200)]
)
def test_shapes_off_the_grid(rng, m, n, k):  # cases 1, 5, 29
    for block in BLOCKS:
        _, b = normal(1, (n, k), block)
        hot_a, hot = selecting(m, k)
        assert count_wrong(matmul(hot_a, b), b, hot) == 0
        _, a = normal(2, (m, k))
        check_rows(matmul(a, b, jnp.float32)[:, :257], a, first_rows(b, 257), sample(m, 4))


def first_rows(q, rows):
    blocks = -(-rows // q.rows_per_scale)
    return jax_fp8.BlockScaled(np.asarray(q.codes[:rows]), np.asarray(q.scales[:blocks]), q.block)


@pytest.mark.parametrize("batch", [(3,), (2, 2)], ids=str)
def test_batches(rng, batch):
    for block in BLOCKS:
        a, b = exact_operand(rng, (*batch, 257, 1032)), exact_operand(rng, (*batch, 392, 1032), block)
        out = matmul(a, b, jnp.float32)
        np.testing.assert_array_equal(out, dequantize_reference(a) @ np.swapaxes(dequantize_reference(b), -1, -2))


# ---- races: cases 21, 22 ---------------------------------------------------------------------------------------------


class Traffic(threading.Thread):
    """Copies in both directions and bf16 products, as long as a test runs."""

    def __init__(self):
        super().__init__(daemon=True)
        self.done = threading.Event()
        self.failure = None

    def run(self):
        try:
            x = jnp.ones((4096, 4096), jnp.bfloat16)
            host = np.ones((32 << 20,), np.float32)
            product = jax.jit(lambda x: (x @ x) / 4096)
            while not self.done.is_set():
                np.asarray(jax.device_put(host)[:1000])
                jax.block_until_ready(product(x))
        except Exception as error:  # shown by the test
            self.failure = error

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        self.join(60)
        assert self.failure is None, self.failure


@pytest.mark.parametrize(
    ("m", "n", "k"),
    [(1, 7168, 2048), (64, 2112, 7168), (128, 4096, 7168), (257, 576, 7168), (1000, 2112, 1000), (4096, 4096, 512)],
)
def test_repeats_under_traffic_are_identical(m, n, k):
    x, a = normal(1, (m, k))
    for block in BLOCKS:
        w, b = normal(2, (n, k), block)
        first = matmul(a, b)
        thrash = jnp.zeros((64 << 20,), jnp.uint8)
        different = jnp.int32(0)
        with Traffic():
            for i in range(100):
                out = matmul(a, b)
                different += jnp.sum(out.view(jnp.uint16) != first.view(jnp.uint16))
                different += jnp.sum(quantize(x).codes != a.codes) + jnp.sum(quantize(w, block).codes != b.codes)
                if i % 4 == 0:
                    thrash = thrash + 1  # empties the L2
            assert different == 0


def test_two_thousand_calls_with_scales_far_apart(rng):  # case 22
    m, n, k = 768, 2048, 512
    scales = np.array([1, 1e-4, 1e-8, 1e-30], np.float32)[rng.integers(0, 4, (m, 4))]
    _, a = normal(1, (m, k))
    a = jax_fp8.BlockScaled(a.codes, jnp.asarray(scales), (1, 128))
    _, b = normal(2, (n, k), (128, 128))
    first = matmul(a, b, jnp.float32)
    rows = sample(m, 8)
    check_rows(first, a, b, rows)
    different = jnp.int32(0)
    for _ in range(2000):
        different += jnp.sum(matmul(a, b, jnp.float32).view(jnp.uint32) != first.view(jnp.uint32))
    assert different == 0


def test_positive_data_does_not_drift():  # case 20
    k = 16384
    x = jax.random.uniform(jax.random.key(0), (130, k), minval=0.5)
    w = jax.random.uniform(jax.random.key(1), (200, k), minval=0.5)
    a, b = quantize(x), quantize(w, (128, 128))
    reference = dequantize_reference(a) @ dequantize_reference(b).T
    np.testing.assert_allclose(matmul(a, b, jnp.float32), reference, rtol=1e-3)


# ---- 64-bit indices: case 51 -----------------------------------------------------------------------------------------


def test_result_of_more_than_two_to_the_31_elements():
    m, n, k = 73728, 36864, 128
    _, b = normal(1, (n, k), (128, 128))
    a, hot = selecting(m, k)
    out = matmul(a, b)
    crossing = 2**31 // n
    for rows in (slice(0, 300), slice(crossing - 200, crossing + 200), slice(m - 300, m)):
        assert count_wrong(out[rows], b, hot[rows]) == 0
    del out


def test_operand_of_more_than_two_to_the_31_elements():
    m, n, k = 300032, 128, 7168
    _, b = normal(1, (n, k), (128, 128))
    a, hot = selecting(m, k)
    assert count_wrong(matmul(a, b, jnp.float32), b, hot) == 0
    out = matmul(b_as_rows(b), a, jnp.float32)  # and as the second operand
    swapped = matmul(a, b_as_rows(b), jnp.float32)
    assert jnp.array_equal(out.T, swapped)


def b_as_rows(b):
    return jax_fp8.BlockScaled(b.codes, jnp.repeat(b.scales, 128, 0)[: b.codes.shape[0]], (1, 128))


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_quantizing_more_than_two_to_the_31_elements(block):
    m, k = 300032, 7168
    row = jax.random.normal(jax.random.key(0), (256, k), jnp.bfloat16)
    x = jnp.tile(row, (m // 256, 1))
    q = quantize(x, block)
    expected = quantize_reference(row, block)
    for start in (0, 2**31 // k // 256 * 256, m - 256):
        np.testing.assert_array_equal(q.codes[start : start + 256], expected[0])
        part = slice(start // block[0], (start + 256) // block[0])
        np.testing.assert_array_equal(q.scales[part], expected[1])
    tiled = q.codes.reshape(-1, 256, k)
    assert jnp.sum(tiled != tiled[0]) == 0


# ---- memory: case 36 -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("m", "n", "k"), [(64, 4096, 7168), (4096, 4096, 4096)])
def test_no_temporary_of_the_size_of_an_operand(m, n, k):
    """dot and its gradients hold codes and scales, never a dequantised or padded copy."""
    x, w = jnp.zeros((m, k), jnp.bfloat16), jnp.zeros((k, n), jnp.bfloat16)
    q = jax_fp8.quantize_weight(w)

    def temp_bytes(fn, *args):
        return jax.jit(fn).lower(*args).compile().memory_analysis().temp_size_in_bytes

    slack = 1 << 20
    assert temp_bytes(jax_fp8.quantize_weight, w) <= slack
    assert temp_bytes(jax_fp8.dot, x, q) <= 1.1 * m * k + slack
    assert temp_bytes(jax_fp8.dot, x, w) <= 1.1 * (m * k + n * k) + slack
    both = jax.grad(lambda x, w: jnp.sum(jax_fp8.dot(x, w).astype(jnp.float32) ** 2), (0, 1))
    # codes of x (two orientations), of w (two), of the cotangent (two), the result and the cotangent in bf16
    assert temp_bytes(both, x, w) <= 1.1 * (2 * m * k + 2 * n * k + 2 * m * n + 2 * 2 * m * n) + slack


# ---- NaN -------------------------------------------------------------------------------------------------------------


def test_nan_reaches_exactly_its_row():
    x, _ = normal(1, (1000, 1030))
    _, b = normal(2, (2112, 1030), (128, 128))
    clean = matmul(quantize(x), b, jnp.float32)
    out = matmul(quantize(x.at[999, 1029].set(jnp.nan)), b, jnp.float32)
    assert np.isnan(out[999]).all()
    np.testing.assert_array_equal(bits(out[:999]), bits(clean[:999]))
