"""Quantisation to the last bit, on every platform: the bugs are a scale that is zero, subnormal or rounded
the wrong way, NaN hidden or spread, a cast past 448, and strides read wrongly."""

import helpers
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from helpers import assert_quantized, assert_same_bits, bits
from jax import lax

import jax_fp8
from jax_fp8 import _quantize
from jax_fp8.testing import FLT_MIN, quantize_reference

BLOCKS = [(1, 128), (128, 128)]
ROUNDINGS = ["none", "power_of_two"]
DTYPES = [jnp.float32, jnp.bfloat16, jnp.float16]
blocks = pytest.mark.parametrize("block", BLOCKS)
roundings = pytest.mark.parametrize("scale_rounding", ROUNDINGS)

quantize = jax.jit(jax_fp8.quantize, static_argnames=("block", "scale_rounding", "dtype"))


def normal(rng, shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(np.float32).astype(dtype)


# ---- shapes and dtypes -----------------------------------------------------------------------------------------------


@blocks
@roundings
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((1, 1), jnp.float32), ((3, 128), jnp.bfloat16), ((130, 127), jnp.float16), ((127, 129), jnp.bfloat16)]
    + [((2, 3, 129, 257), dtype) for dtype in DTYPES],
    ids=str,
)
def test_equals_reference_eager_and_jitted(rng, shape, dtype, block, scale_rounding):
    x = jnp.asarray(normal(rng, shape, dtype))
    eager = jax_fp8.quantize(x, block, scale_rounding=scale_rounding)
    assert_quantized(eager, x, scale_rounding)
    assert_same_bits(quantize(x, block, scale_rounding=scale_rounding), eager)


@blocks
@pytest.mark.parametrize("shape", [(0, 200), (5, 0), (0, 0), (2, 0, 129)], ids=str)
def test_empty(block, shape):
    q = jax_fp8.quantize(jnp.zeros(shape, jnp.bfloat16), block)
    *batch, rows, k = shape
    assert q.codes.shape == shape
    assert q.scales.shape == (*batch, -(-rows // block[0]), -(-k // 128))
    assert q.dequantize().shape == shape


@blocks
@roundings
def test_wide_range(rng, block, scale_rounding):
    magnitude = np.exp(rng.uniform(-87, 85, (260, 3)))
    x = (normal(rng, (260, 3, 100)) * magnitude[..., None]).astype(np.float32).reshape(260, 300)
    assert_quantized(quantize(x, block, scale_rounding=scale_rounding), x, scale_rounding)


@roundings
def test_every_bfloat16_as_the_constant_of_a_block(scale_rounding):
    patterns = np.arange(1 << 16, dtype=np.uint16).view(ml_dtypes.bfloat16)
    x = np.repeat(patterns[:, None], 2, axis=1)
    assert_quantized(quantize(x, scale_rounding=scale_rounding), x, scale_rounding)


@roundings
def test_every_float16_beside_a_large_value(scale_rounding):
    patterns = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    x = np.stack([patterns, np.full_like(patterns, 1000)], axis=1)
    assert_quantized(quantize(x, scale_rounding=scale_rounding), x, scale_rounding)


def test_float32_is_not_rounded_twice():
    # 17 + 2^-15 is above the middle of 16 and 18, but its bfloat16 is the middle, which rounds to 16
    x = np.array([[448, 17 + 2.0**-15, 2.0**-10 + 2.0**-30]], np.float32)
    assert jax_fp8.quantize(x).values.astype(jnp.float32).tolist() == [[448, 18, 2.0**-9]]


# ---- values: case 10, 11 ---------------------------------------------------------------------------------------------


@blocks
@roundings
def test_zero_blocks(rng, block, scale_rounding):
    x = normal(rng, (257, 300))
    x[128:256] = 0
    x[3] = 0
    x[256, 130:] = 0
    q = jax_fp8.quantize(x, block, scale_rounding=scale_rounding)
    assert_quantized(q, x, scale_rounding)
    assert np.isfinite(q.scales).all()
    assert (np.asarray(q.scales) >= FLT_MIN).all()
    assert (np.asarray(q.codes)[x == 0] == 0).all()
    assert (np.asarray(q.dequantize())[x == 0] == 0).all()


def test_one_nonzero_weight():
    w = np.zeros((256, 256), np.float32)
    w[0, 0] = 1
    q = jax_fp8.quantize(w, (128, 128))
    assert np.count_nonzero(q.codes) == 1
    np.testing.assert_array_equal(q.dequantize(), w)


def test_negative_zero_keeps_its_value():
    q = jax_fp8.quantize(np.full((1, 4), -0.0, np.float32))
    assert set(np.asarray(q.codes).ravel().tolist()) <= {0x00, 0x80}
    assert (np.asarray(q.dequantize()) == 0).all()


TINY = [1e-30, 1e-35, 5e-36, 1e-36, 1e-37, 1e-38, 1e-40, 2.0**-133, 2.0**-149]  # bf16's and f32's least subnormals


@roundings
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_tiny_blocks(scale_rounding, dtype):
    x = np.ones((len(TINY), 384), dtype)
    x[:, 128:256] = np.array(TINY, np.float32).astype(dtype)[:, None]
    q = jax_fp8.quantize(x, scale_rounding=scale_rounding)
    assert_quantized(q, x, scale_rounding)
    assert (np.asarray(q.scales) >= FLT_MIN).all()
    value, back = x.astype(np.float64), np.asarray(q.dequantize(), np.float64)
    assert ((back >= 0) & (back <= 2 * value)).all()
    normal_blocks = value >= 448 * FLT_MIN  # from here on the scale is above its least value
    np.testing.assert_allclose(back[normal_blocks], value[normal_blocks], rtol=2.0**-4)


@pytest.mark.parametrize("amax", [1e-4, 1e-6, 1e-20, 1e20])
def test_small_gradients_keep_full_accuracy(rng, amax):
    x = (rng.uniform(0.1, 1, (5, 300)) * amax).astype(np.float32)
    np.testing.assert_allclose(jax_fp8.quantize(x).dequantize(), x, rtol=2.0**-4)


def test_values_between_subnormal_and_the_scale_floor():
    x = np.linspace(0, 500 * FLT_MIN, 1000, dtype=np.float32).reshape(10, 100)
    assert_quantized(jax_fp8.quantize(x), x)


# ---- 448: cases 13, 14 -----------------------------------------------------------------------------------------------


def test_largest_magnitude_becomes_448():
    x = np.array([[1000.0, 449, 464, 465, -1000], [465, -465, 1, 2, 3]], np.float32)
    codes = np.asarray(jax_fp8.quantize(x).codes)
    assert codes[0, 0] == 0x7E
    assert codes[0, 4] == 0xFE
    assert codes[1, :2].tolist() == [0x7E, 0xFE]
    np.testing.assert_array_equal(codes, quantize_reference(x)[0])


def mantissas(stride):
    return (np.arange(0, 1 << 23, stride, dtype=np.uint32) + (127 << 23)).view(np.float32)


def near_power_of_two_steps():
    one_ulp = np.arange(-3, 4)
    middle = np.uint32(0x600000) + (127 << 23)  # 1.75 = 448 / 2^8
    border = np.concatenate([middle + one_ulp, (127 << 23) + one_ulp])
    return border.astype(np.uint32).view(np.float32)


def check_scales_and_largest(amax):
    """Each amax alone in a block: the scale is right, and amax itself becomes a finite code."""
    x = amax[:, None]
    for scale_rounding in ROUNDINGS:
        q = quantize(x, scale_rounding=scale_rounding)
        assert_quantized(q, x, scale_rounding)
        assert np.max(q.codes) <= 0x7E
    quotient = amax.astype(np.float64) / 448
    scale = np.asarray(q.scales, np.float64)[:, 0]
    assert ((scale >= quotient) & (scale < 2 * quotient)).all()
    assert (np.frexp(scale)[0] == 0.5).all()


def test_power_of_two_scale_over_mantissas():
    check_scales_and_largest(np.concatenate([mantissas(61), near_power_of_two_steps()]))


@pytest.mark.gpu
def test_power_of_two_scale_over_all_mantissas_on_the_kernel():
    check_scales_and_largest(mantissas(1))


def test_power_of_two_scale_over_all_mantissas():
    amax = mantissas(1)
    scale = jax.jit(_quantize._scales_of, static_argnums=1)(amax.view(np.uint32), "power_of_two")
    np.testing.assert_array_equal(scale, np.where(amax <= 1.75, 2.0**-8, 2.0**-7).astype(np.float32))


def test_power_of_two_scale_over_exponents():
    factors = np.array([1, 1.0000001, 1.2, 1.41, 1.42, 1.9999, 2.0], np.float32)
    powers = np.ldexp(np.float32(1), np.arange(-20, 21))
    exact = (448 * powers).astype(np.float32)
    amax = np.concatenate(
        [
            np.outer(448 * factors, powers).ravel(),
            exact,
            np.nextafter(exact, 0),
            np.nextafter(exact, np.float32(np.inf)),
        ]
    ).astype(np.float32)
    check_scales_and_largest(amax)
    at_448 = quantize(exact[:, None], scale_rounding="power_of_two")
    np.testing.assert_array_equal(at_448.scales[:, 0], powers)
    assert (np.asarray(at_448.codes) == 0x7E).all()


@roundings
def test_largest_floats_do_not_overflow(scale_rounding):
    largest = np.finfo(np.float32).max
    x = np.array([[largest, -largest, 1.0], [largest, largest / 2, 0]], np.float32)
    q = jax_fp8.quantize(x, scale_rounding=scale_rounding)
    assert_quantized(q, x, scale_rounding)
    assert np.isfinite(np.asarray(q.scales)).all()
    assert np.isfinite(np.asarray(q.values.astype(jnp.float32))).all()


# ---- NaN and infinity: case 15 ---------------------------------------------------------------------------------------


@blocks
@roundings
@pytest.mark.parametrize("shape", [(6, 300), (130, 300), (2, 260, 520)], ids=str)
@pytest.mark.parametrize("bad", [np.nan, -np.inf], ids=str)
def test_non_finite_stays_in_its_block(rng, shape, bad, block, scale_rounding):
    clean = normal(rng, shape)
    x = clean.copy()
    *batch, row, k = (0,) * (len(shape) - 2) + (5, 131)
    x[(*batch, row, k)] = bad
    q = jax_fp8.quantize(x, block, scale_rounding=scale_rounding)
    assert_quantized(q, x, scale_rounding)
    expected = jax_fp8.quantize(clean, block, scale_rounding=scale_rounding)
    hit = np.zeros(shape, bool)
    hit[(*batch, slice(row // block[0] * block[0], (row // block[0] + 1) * block[0]), slice(128, 256))] = True
    np.testing.assert_array_equal(np.where(hit, 0x7F, expected.codes), q.codes)
    assert bits(q.scales)[(*batch, row // block[0], 1)] == 0x7FC00000
    assert np.isnan(np.asarray(q.scales)).sum() == 1
    np.testing.assert_array_equal(np.isnan(q.dequantize()), hit)


def test_nan_with_a_payload_and_inf_in_one_block():
    x = np.ones((2, 5), np.float32)
    x[0, 1:3] = np.array([0xFF812345, 0x7F800000], np.uint32).view(np.float32)
    q = jax_fp8.quantize(x)
    assert_quantized(q, x)
    assert bits(q.scales)[0, 0] == 0x7FC00000


# ---- scale and codes agree: case 18 ----------------------------------------------------------------------------------


@blocks
@roundings
def test_error_of_a_gaussian_weight(rng, block, scale_rounding):
    w = normal(rng, (500, 513))
    q = jax_fp8.quantize(w, block, scale_rounding=scale_rounding)
    error = np.asarray(q.dequantize(), np.float64) - w
    assert np.linalg.norm(error) <= 0.03 * np.linalg.norm(w)
    if scale_rounding == "power_of_two":
        assert (np.frexp(np.asarray(q.scales))[0] == 0.5).all()


# ---- transforms and layouts: cases 24, 28 ----------------------------------------------------------------------------


VIEWS = {
    "transposed": lambda x: x.T,
    "every other column": lambda x: x[:, ::2],
    "slice": lambda x: x[:, 100:230],
    "reversed": lambda x: x[::-1, ::-1],
    "swapaxes of 3-D": lambda x: x[:, :256].reshape(-1, 2, 128).swapaxes(0, 1),
    "broadcast": lambda x: jnp.broadcast_to(x[:1], (7, x.shape[1])),
}


@blocks
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_views_of_an_array(rng, view, block):
    x = jnp.asarray(normal(rng, (130, 300)))
    expected = np.ascontiguousarray(view(np.asarray(x)) if view is not VIEWS["broadcast"] else view(x))
    assert_quantized(jax_fp8.quantize(view(x), block), expected)
    assert_quantized(jax.jit(lambda x: jax_fp8.quantize(view(x), block))(x), expected)


@blocks
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_vmap_equals_loop(rng, axis, block):
    x = jnp.asarray(normal(rng, (130, 3, 140)))
    q = jax.vmap(lambda x: jax_fp8.quantize(x, block), in_axes=axis)(x)
    for i in range(x.shape[axis]):
        assert_same_bits(helpers.take(q, i), jax_fp8.quantize(jnp.take(x, i, axis=axis), block))


def test_nested_vmap_and_scan(rng):
    x = jnp.asarray(normal(rng, (2, 3, 5, 130)))
    expected = jax_fp8.quantize(x)
    assert_same_bits(jax.vmap(jax.vmap(jax_fp8.quantize))(x), expected)
    scanned = lax.scan(lambda _, x: (None, jax_fp8.quantize(x)), None, x)[1]
    assert_same_bits(scanned, expected)


# ---- weights ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(300, 130), (2, 129, 257)], ids=str)
def test_quantize_weight_has_both_orientations(rng, shape, dtype):
    w = jnp.asarray(normal(rng, shape, dtype))
    q = jax.jit(jax_fp8.quantize_weight)(w)
    assert q.shape == w.shape
    stored = jax_fp8.quantize(w.mT, (128, 128))
    assert_quantized(stored, w.mT)
    assert_same_bits((q.codes, q.scales), (stored.codes, stored.scales))
    np.testing.assert_array_equal(q.transposed[0], jnp.swapaxes(q.codes, -1, -2))
    np.testing.assert_array_equal(q.transposed[1], jnp.swapaxes(q.scales, -1, -2))
    assert_same_bits(q.master, w)
    np.testing.assert_array_equal(q.dequantize(), stored.dequantize().mT)


def test_quantize_weight_for_inference(rng):
    w = jnp.asarray(normal(rng, (300, 130)))
    q = jax_fp8.quantize_weight(w, for_inference=True)
    assert q.transposed is None
    assert q.master is None
    full = jax_fp8.quantize_weight(w)
    assert_same_bits((q.codes, q.scales), (full.codes, full.scales))


def test_quantize_weight_of_a_transposed_weight(rng):
    w = jnp.asarray(normal(rng, (130, 300)))  # (n, k)
    q = jax.jit(lambda w: jax_fp8.quantize_weight(w.T))(w)
    assert_quantized(jax_fp8.BlockScaled(q.codes, q.scales), w)


# ---- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "kwargs", "error", "message"),
    [
        (np.zeros((2, 3), np.int32), {}, TypeError, "quantize: x must be float32, bfloat16 or float16, got int32"),
        (np.zeros((2, 3), ml_dtypes.float8_e4m3fn), {}, TypeError, "got float8_e4m3fn"),
        (
            np.zeros(3, np.float32),
            {},
            ValueError,
            r"needs at least 2 axes \(rows, k\), got shape \(3,\); use x\[None\]",
        ),
        (
            np.zeros((2, 3), np.float32),
            {"block": (128, 1)},
            ValueError,
            r"must be \(1, 128\) or \(128, 128\), got \(128, 1\)",
        ),
        (np.zeros((2, 3), np.float32), {"block": 128}, ValueError, r"must be \(1, 128\) or \(128, 128\), got \(128,\)"),
        (
            np.zeros((2, 3), np.float32),
            {"scale_rounding": "up"},
            ValueError,
            "scale_rounding must be one of .*, got 'up'",
        ),
        (
            np.zeros((2, 3), np.float32),
            {"dtype": jnp.float8_e5m2},
            TypeError,
            "dtype must be float8_e4m3fn, got float8_e5m2",
        ),
    ],
)
def test_refusals(x, kwargs, error, message):
    for fn in (jax_fp8.quantize, jax.jit(lambda x: jax_fp8.quantize(x, **kwargs))):
        with pytest.raises(error, match=message):
            fn(x, **kwargs) if fn is jax_fp8.quantize else fn(x)


def test_refuses_what_is_quantized_already():
    q = jax_fp8.quantize(np.ones((2, 3), np.float32))
    with pytest.raises(TypeError, match="quantize: x is quantised already"):
        jax_fp8.quantize(q)
    with pytest.raises(TypeError, match="quantize_weight: x is quantised already"):
        jax_fp8.quantize_weight(q)


def test_has_no_derivative_and_says_so():
    def loss(x):
        return jnp.sum(jax_fp8.quantize(x).dequantize())

    for differentiate in (jax.grad(loss), jax.jit(jax.grad(loss)), lambda x: jax.jvp(loss, (x,), (x,))):
        with pytest.raises(NotImplementedError, match=r"jax_fp8.quantize has no derivative.*attach\(q, w\)"):
            differentiate(jnp.ones((2, 3)))
    stopped = jax.grad(lambda x: jnp.sum(x * jax_fp8.quantize(lax.stop_gradient(x)).dequantize()))
    assert np.isfinite(stopped(jnp.ones((2, 3)))).all()
