"""Laws that hold for any operands, over shapes that nobody chose."""

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
from helpers import assert_same_bits, block_scaled, stack, take

import jax_fp8
from jax_fp8.testing import exact_operand, exactly_quantizable, quantize_reference

EDGES = [1, 2, 7, 8, 15, 16, 17, 63, 64, 65, 127, 128, 129, 130, 255, 257]
extents = st.sampled_from(EDGES)
depths = st.sampled_from([1, 15, 16, 17, 100, 127, 128, 129, 256, 300, 384])
blocks = st.sampled_from([(1, 128), (128, 128)])
seeds = st.integers(0, 2**32 - 1)
matmul = jax.jit(jax_fp8.blockwise_matmul, static_argnames="out_dtype")


def operands(seed, m, n, k, block):
    rng = np.random.default_rng(seed)
    return rng, exact_operand(rng, (m, k)), exact_operand(rng, (n, k), block)


def rows_of(q, index):
    return jax_fp8.BlockScaled(q.codes[index], q.scales[index], q.block)


@hypothesis.given(seeds, extents, extents, depths, blocks)
def test_permuting_rows(seed, m, n, k, block):
    rng, a, b = operands(seed, m, n, k, block)
    out = matmul(a, b, jnp.float32)
    order = rng.permutation(m)
    assert_same_bits(matmul(rows_of(a, order), b, jnp.float32), out[order])
    if block == (1, 128):
        order = rng.permutation(n)
        assert_same_bits(matmul(a, rows_of(b, order), jnp.float32), out[:, order])


@hypothesis.given(seeds, extents, extents, depths, blocks)
def test_exchanging_operands_transposes(seed, m, n, k, block):
    _, a, b = operands(seed, m, n, k, (1, 128))
    np.testing.assert_array_equal(matmul(b, a, jnp.float32), matmul(a, b, jnp.float32).T)


@hypothesis.given(seeds, extents, extents, depths, blocks, st.integers(-30, 30))
def test_power_of_two_scaling_is_exact(seed, m, n, k, block, exponent):
    """Through quantisation too: same codes, scaled scales, scaled product, for any data."""
    rng = np.random.default_rng(seed)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((m, k), (n, k)))
    c = np.float32(2.0**exponent)
    q, scaled, b = jax_fp8.quantize(x), jax_fp8.quantize(x * c), jax_fp8.quantize(w, block)
    assert_same_bits((scaled.codes, scaled.scales), (q.codes, q.scales * c))
    assert_same_bits(matmul(scaled, b, jnp.float32), matmul(q, b, jnp.float32) * c)


@hypothesis.given(seeds, extents, extents, depths, blocks, st.sampled_from([1, 5, 100, 128, 200]))
def test_padding_k_with_zeros_changes_nothing(seed, m, n, k, block, more):
    rng = np.random.default_rng(seed)
    x, w = exactly_quantizable(rng, (m, k)), exactly_quantizable(rng, (n, k))
    padded = [np.pad(v, ((0, 0), (0, more))) for v in (x, w)]
    out = matmul(jax_fp8.quantize(x), jax_fp8.quantize(w, block), jnp.float32)
    np.testing.assert_array_equal(
        matmul(jax_fp8.quantize(padded[0]), jax_fp8.quantize(padded[1], block), jnp.float32), out
    )
    np.testing.assert_array_equal(out, x.astype(np.float64) @ w.T)


@hypothesis.given(seeds, extents, extents, depths, blocks, st.sampled_from([1, 2, 5]))
@hypothesis.settings(max_examples=10)
def test_batch_is_a_loop(seed, m, n, k, block, size):
    rng = np.random.default_rng(seed)
    a, b = exact_operand(rng, (size, m, k)), exact_operand(rng, (size, n, k), block)
    assert_same_bits(matmul(a, b), stack(lambda i: matmul(take(a, i), take(b, i)), size))


@hypothesis.given(seeds, extents, extents, depths, blocks)
@hypothesis.settings(max_examples=10)
def test_repeats_are_identical(seed, m, n, k, block):
    rng = np.random.default_rng(seed)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((m, k), (n, k)))
    a, b = jax_fp8.quantize(x), jax_fp8.quantize(w, block)
    assert_same_bits(matmul(a, b), matmul(a, b))


@hypothesis.given(seeds, extents, depths, blocks)
def test_quantizing_again_with_a_power_of_two_scale_changes_no_value(seed, m, k, block):
    x = np.random.default_rng(seed).standard_normal((m, k)).astype(np.float32)
    once = jax_fp8.quantize(x, block, scale_rounding="power_of_two").dequantize()
    again = jax_fp8.quantize(once, block, scale_rounding="power_of_two").dequantize()
    np.testing.assert_array_equal(again, once)


floats = st.floats(width=32, allow_nan=True, allow_infinity=True, allow_subnormal=True)


@hypothesis.given(st.lists(floats, min_size=1, max_size=300), blocks, st.sampled_from(["none", "power_of_two"]))
@hypothesis.settings(max_examples=100)
def test_any_floats_quantize_as_defined(values, block, scale_rounding):
    x = np.array([values, values[::-1]], np.float32)
    q = jax_fp8.quantize(jnp.asarray(np.pad(x, ((0, 0), (0, 300 - x.shape[1])))), block, scale_rounding=scale_rounding)
    codes, scales = quantize_reference(np.pad(x, ((0, 0), (0, 300 - x.shape[1]))), block, scale_rounding)
    assert_same_bits((q.codes, q.scales), (codes, scales))


@hypothesis.given(seeds, extents, extents, depths)
def test_a_block_of_ones_sums_its_scale(seed, m, n, k):
    """Every block scale weighs exactly its own k positions."""
    rng = np.random.default_rng(seed)
    kb = -(-k // 128)
    scales = 2.0 ** rng.integers(-4, 5, (m, kb))
    a, b = block_scaled(np.ones((m, k)), scales), block_scaled(np.ones((n, k)), np.ones((-(-n // 128), kb)), (128, 128))
    lengths = np.minimum(128, k - 128 * np.arange(kb))
    expected = np.broadcast_to((scales * lengths).sum(1, keepdims=True), (m, n))
    np.testing.assert_array_equal(matmul(a, b, jnp.float32), expected)
