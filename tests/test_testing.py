"""The oracle itself: what it must notice, and that its bound covers what Hopper's tensor cores are known to do."""

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from helpers import block_scaled

import jax_fp8
from jax_fp8 import testing
from jax_fp8.testing import assert_matmul_close, exact_operand, exactly_quantizable, matmul_bound, matmul_reference


def operands(rng, m=130, n=260, k=384):
    return exact_operand(rng, (m, k)), exact_operand(rng, (n, k), (128, 128))


# ---- what it notices -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.float16])
def test_accepts_the_rounded_reference(rng, dtype):
    a, b = operands(rng)
    for tensor_core in (False, True):
        assert_matmul_close(matmul_reference(a, b).astype(np.float32).astype(dtype), a, b, tensor_core=tensor_core)


def test_names_the_worst_element_and_its_tile(rng):
    a, b = operands(rng)
    out = matmul_reference(a, b).astype(np.float32)
    out[3, 5] += 1
    out[129, 258] += 1000
    with pytest.raises(
        AssertionError, match=r"2 of 33800 elements are off; worst at \(129, 258\), 128x128 tile \(1, 2\)"
    ):
        assert_matmul_close(out, a, b, tensor_core=False)


@pytest.mark.parametrize("tensor_core", [False, True])
def test_notices_a_zeroed_tile_and_swapped_scales(rng, tensor_core):
    x, w = rng.standard_normal((300, 640)), rng.standard_normal((400, 640))
    a, b = jax_fp8.quantize(x.astype(np.float32)), jax_fp8.quantize(w.astype(np.float32), (128, 128))
    good = matmul_reference(a, b).astype(np.float32)
    zeroed = good.copy()
    zeroed[128:256, 256:384] = 0
    swapped = jax_fp8.BlockScaled(b.codes, b.scales[:, ::-1], b.block)
    missing = jax_fp8.BlockScaled(a.codes.at[:, 512:].set(0), a.scales, a.block)
    assert_matmul_close(good, a, b, tensor_core=tensor_core)
    for bad in (zeroed, matmul_reference(a, swapped), matmul_reference(missing, b), good[:, ::-1]):
        with pytest.raises(AssertionError, match="elements are off"):
            assert_matmul_close(np.asarray(bad, np.float32), a, b, tensor_core=tensor_core)
    with pytest.raises(AssertionError, match="shape"):
        assert_matmul_close(good[:-1], a, b)


def test_nan_and_infinity(rng):
    a, b = operands(rng)
    a = jax_fp8.BlockScaled(a.codes, a.scales.at[7, 1].set(jnp.nan), a.block)
    good = matmul_reference(a, b).astype(np.float32)
    assert np.isnan(good[7]).all()
    assert_matmul_close(good, a, b)
    for row, value in ((7, 0.0), (7, np.inf), (8, np.nan), (8, np.inf)):
        bad = good.copy()
        bad[row, 100] = value
        with pytest.raises(AssertionError, match=rf"worst at \({row}, 100\)"):
            assert_matmul_close(bad, a, b)


def test_overflow_of_float16():
    b = block_scaled(np.full((3, 130), 448), np.ones((1, 2)), (128, 128))
    a = block_scaled([[448] * 130, [-448] * 130, [1] * 130], np.ones((3, 2)))
    good = np.array([[np.inf] * 3, [-np.inf] * 3, [448 * 130] * 3], np.float16)
    assert_matmul_close(good, a, b, tensor_core=False)
    for place, value in (((0, 0), 65504), ((1, 1), np.inf), ((2, 2), np.inf), ((0, 1), np.nan)):
        bad = good.copy()
        bad[place] = value
        with pytest.raises(AssertionError, match="1 of 9 elements are off"):
            assert_matmul_close(bad, a, b, tensor_core=False)


# ---- the bound -------------------------------------------------------------------------------------------------------


def truncate(value, unit):
    return np.trunc(value / unit) * unit


def tensor_core_product(a, b):
    """Hopper's FP8 wgmma with promotion each block, by the published model (arXiv 2511.10909), in exact float64."""
    x, y = (np.asarray(q.codes).view(ml_dtypes.float8_e4m3fn).astype(np.float64) for q in (a, b))
    exponents = [np.maximum(np.frexp(v)[1] - 1, -6) for v in (x, y)]  # subnormals keep -6
    out = np.zeros((len(x), len(y)), np.float32)
    for kb in range(a.scales.shape[1]):
        accum = np.zeros_like(out, np.float64)
        for k in range(128 * kb, min(128 * kb + 128, x.shape[1]), 32):
            step = slice(k, k + 32)
            products = x[:, None, step] * y[None, :, step]
            exponent = np.where(products != 0, exponents[0][:, None, step] + exponents[1][None, :, step], -100)
            e_accum = np.where(accum != 0, np.frexp(accum)[1] - 1, -100)
            unit = np.exp2(np.maximum(exponent.max(-1), e_accum) - 13.0)
            total = truncate(products, unit[..., None]).sum(-1) + truncate(accum, unit)
            accum = truncate(total, np.exp2(np.frexp(total)[1] - 1 - 13.0))
        scale = np.asarray(a.scales)[:, kb, None] * np.repeat(np.asarray(b.scales)[:, kb], b.rows_per_scale)[: len(y)]
        out += (scale * accum).astype(np.float32)
    return out


def test_the_model_loses_what_hopper_loses():
    """Case 20 inside one block: a product of 448 * 448 swallows ones that come 32 later."""
    x = np.zeros((1, 128))
    x[0, [0, 32, 64, 96]] = 448, 1, 1, 1
    a = b = block_scaled(x, np.ones((1, 1)))
    assert tensor_core_product(a, b) == 448 * 448
    with pytest.raises(AssertionError):
        assert_matmul_close(tensor_core_product(a, b), a, b, tensor_core=False)
    assert_matmul_close(tensor_core_product(a, b), a, b, tensor_core=True)


CODES = {
    "gaussian": lambda rng, s: rng.standard_normal(s) * 100,
    "positive": lambda rng, s: rng.uniform(0, 448, s),
    "every magnitude": lambda rng, s: np.exp2(rng.uniform(-9, 8.8, s)) * rng.choice([-1, 1], s),
    "subnormal and large": lambda rng, s: np.where(rng.random(s) < 0.3, 2.0**-9, 2.0 ** rng.integers(-6, 9, s)),
    "subnormal leads": lambda rng, s: np.where(np.arange(s[1]) % 32 == 0, 2.0**-9, 2.0**-6 * np.ones(s) * 1.875),
    "large first": lambda rng, s: np.where(np.arange(s[1]) % 128 == 0, 448.0, rng.uniform(0.5, 2, s)),
}


@pytest.mark.parametrize("codes", CODES.values(), ids=CODES.keys())
@pytest.mark.parametrize("block", [(1, 128), (128, 128)], ids=str)
def test_the_bound_covers_the_model_of_the_tensor_core(rng, codes, block):
    m, n, k = 9, 14, 400
    a = block_scaled(codes(rng, (m, k)), np.exp2(rng.uniform(-3, 3, (m, 4))))
    y = codes(rng, (n, k))
    if codes is CODES["subnormal leads"]:
        y = np.where(np.arange(k) % 32 == 0, 256.0, 2.0**-6 * 1.875)
        y = np.broadcast_to(y, (n, k))
    b = block_scaled(y, np.exp2(rng.uniform(-3, 3, (-(-n // block[0]), 4))), block)
    out = tensor_core_product(a, b)
    assert_matmul_close(out, a, b, tensor_core=True)
    ratio = np.abs(out - matmul_reference(a, b)) / matmul_bound(a, b, tensor_core=True)
    assert ratio.max() > 0.002  # a bound that is never approached would hide errors


def test_without_the_subnormal_term_the_bound_would_fail(rng):
    """One leading product with a subnormal: its unit is 8 times coarser than its value suggests."""
    x, y = np.full((1, 32), 2.0**-6 * 1.875), np.full((1, 32), 2.0**-5 * 1.875)
    x[0, 0], y[0, 0] = 2.0**-9, 256
    a, b = (block_scaled(v, np.ones((1, 1))) for v in (x, y))
    error = np.abs(tensor_core_product(a, b) - matmul_reference(a, b))
    magnitude = matmul_reference(a, b)  # all positive
    assert error > 31 * 2.0**-13 * magnitude / 2
    assert error <= matmul_bound(a, b, tensor_core=True)


def test_bound_of_the_definition_is_float32s(rng):
    a, b = operands(rng)
    magnitude = np.abs(testing.dequantize_reference(a)) @ np.abs(testing.dequantize_reference(b)).T
    assert (matmul_bound(a, b, tensor_core=False) <= 390 * 2.0**-24 * magnitude + 1e-20).all()


# ---- generators ------------------------------------------------------------------------------------------------------


def test_exact_operands_are_exact(rng):
    a, b = exact_operand(rng, (3, 1000)), exact_operand(rng, (300, 1000), (128, 128))
    reference = matmul_reference(a, b)
    np.testing.assert_array_equal(reference.astype(np.float32), reference)
    np.testing.assert_array_equal(tensor_core_product(a, b), reference)
    scales = np.asarray(b.scales)
    assert (scales[1:] != scales[:-1]).all()
    assert (scales[:, 1:] != scales[:, :-1]).all()
    stacked = np.asarray(exact_operand(rng, (3, 3, 300)).scales)
    assert (stacked[1:] != stacked[:-1]).all()


def test_exactly_quantizable_values_survive(rng):
    for shape in ((5, 300), (130, 7), (257, 129)):
        x = exactly_quantizable(rng, shape)
        for block in ((1, 128), (128, 128)):
            np.testing.assert_array_equal(jax_fp8.quantize(x, block).dequantize(), x)
    x, w = exactly_quantizable(rng, (9, 520)), exactly_quantizable(rng, (14, 520))
    a, b = jax_fp8.quantize(x), jax_fp8.quantize(w, (128, 128))
    np.testing.assert_array_equal(tensor_core_product(a, b), x.astype(np.float64) @ w.T)
