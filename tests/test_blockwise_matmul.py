"""The block-scaled product itself, exact wherever the value is exact.

Finds: a scale from the wrong block, a short last block, an overhanging tile, missing promotion to float32,
a vmap that repeats weights or mixes batches, and shapes that are refused or wrong near a tile's edge.
"""

import itertools

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from helpers import assert_same_bits, block_scaled, equations, stack, take
from jax import lax

import jax_fp8
from jax_fp8 import _extension
from jax_fp8.testing import assert_matmul_close, exact_operand, matmul_reference

BLOCKS = [(1, 128), (128, 128)]
OUT_DTYPES = [jnp.float32, jnp.bfloat16, jnp.float16]
b_blocks = pytest.mark.parametrize("block", BLOCKS, ids=["1x128", "128x128"])
matmul = jax.jit(jax_fp8.blockwise_matmul, static_argnames=("out_dtype", "config"))


def assert_exact(out, a, b):
    """`out` is the float64 value, rounded once: for operands whose product is exact in float32."""
    with np.errstate(over="ignore"):  # float16
        expected = matmul_reference(a, b).astype(np.float32).astype(out.dtype)
    np.testing.assert_array_equal(np.asarray(out, np.float32), expected.astype(np.float32))


def gaussian(rng, shape, block=(1, 128)):
    return jax_fp8.quantize(rng.standard_normal(shape).astype(np.float32), block)


# ---- shapes: cases 1, 4, 5, 29 ---------------------------------------------------------------------------------------

SHAPES = [
    # m around tile edges, ragged n and k
    (1, 576, 256), (2, 33, 130), (3, 200, 384), (5, 7, 1000), (17, 129, 100), (63, 65, 64), (64, 66, 63),
    (65, 130, 192), (127, 257, 128), (128, 255, 129), (129, 64, 127), (255, 128, 320), (256, 384, 640), (257, 136, 16),
    (513, 120, 144),
    # n around scale blocks, tiles and 16-byte stores
    (4, 1, 128), (4, 8, 256), (6, 127, 384), (7, 128, 257), (9, 176, 512), (130, 111, 255), (130, 112, 256),
    (130, 113, 272), (131, 191, 128), (131, 192, 144), (131, 193, 160), (66, 2112, 256),
    # k around blocks and 16-byte rows; odd numbers of blocks
    (31, 72, 1), (34, 71, 8), (35, 70, 15), (36, 69, 17), (37, 68, 24), (38, 67, 31), (140, 200, 1152), (33, 136, 1920),
    (18, 24, 7296),
]  # fmt: skip


@b_blocks
@pytest.mark.parametrize(("m", "n", "k"), SHAPES, ids=lambda v: str(v))
def test_exact_products(rng, m, n, k, block):
    a, b = exact_operand(rng, (m, k)), exact_operand(rng, (n, k), block)
    narrow = [OUT_DTYPES[1 + (m + n) % 2]] if block[0] == 128 else []
    for out_dtype in (jnp.float32, *narrow):
        out = matmul(a, b, out_dtype)
        assert out.shape == (m, n)
        assert out.dtype == out_dtype
        assert_exact(out, a, b)


@b_blocks
@pytest.mark.parametrize(("m", "n", "k"), [(65, 200, 300), (130, 33, 1000), (7, 321, 2048), (129, 128, 127)], ids=str)
def test_random_products_within_the_bound(rng, m, n, k, block):
    a, b = gaussian(rng, (m, k)), gaussian(rng, (n, k), block)
    for out_dtype in OUT_DTYPES:
        assert_matmul_close(matmul(a, b, out_dtype), a, b)


@b_blocks
def test_products_of_wide_range(rng, block):
    """Rows and blocks between 1e-15 and 1e15: a subnormal beside a large product, scales far apart."""
    shapes = ((66, 5, 100), (150, 5, 100))
    x, w = (rng.standard_normal(s) * np.exp(rng.uniform(-35, 35, (*s[:2], 1))) for s in shapes)
    spread = np.exp2(rng.integers(-20, 1, 500))
    a = jax_fp8.quantize((x.reshape(66, 500) * spread).astype(np.float32))
    b = jax_fp8.quantize((w.reshape(150, 500) * spread).astype(np.float32), block)
    assert_matmul_close(matmul(a, b, jnp.float32), a, b)


@pytest.mark.parametrize("m", [1, 2, 3, 5, 17, 63, 65, 127, 129, 1088])
def test_distinct_scale_per_row(m):  # case 1
    k, n = 512, 200
    scales = 2.0 ** np.arange(-8, 4)[np.add.outer(np.arange(m), 5 * np.arange(4)) % 12]
    a = block_scaled(np.ones((m, k)), scales)
    b = block_scaled(np.ones((n, k)), np.ones((2, 4)), (128, 128))
    expected = np.broadcast_to(128 * scales.sum(1, keepdims=True), (m, n))
    np.testing.assert_array_equal(matmul(a, b, jnp.float32), expected)


@b_blocks
@pytest.mark.parametrize("k", [1, 16, 64, 192, 320, 640, 1000])
def test_short_last_block_gets_its_scale(k, block):  # case 2
    kb = -(-k // 128)
    a = block_scaled(np.ones((3, k)), np.broadcast_to(np.arange(1.0, kb + 1), (3, kb)))
    b = block_scaled(np.ones((5, k)), np.ones((-(-5 // block[0]), kb)), block)
    expected = sum(i // 128 + 1 for i in range(k))
    np.testing.assert_array_equal(matmul(a, b, jnp.float32), np.full((3, 5), expected))


@pytest.mark.parametrize("k", [64, 128, 512])
@pytest.mark.parametrize("n", [1, 7, 33, 64, 128, 576, 2112, 24576])
def test_half_blocks_of_n(n, k):  # case 4
    rows = np.array([1, 2, 4, 8])
    a = block_scaled(np.repeat(rows[:, None], k, 1), np.ones((4, -(-k // 128))))
    powers = 2.0 ** (np.arange(-(-n // 128)) % 16)
    b = block_scaled(np.ones((n, k)), np.repeat(powers[:, None], -(-k // 128), 1), (128, 128))
    expected = np.outer(rows * k, 2.0 ** (np.arange(n) // 128 % 16))
    np.testing.assert_array_equal(matmul(a, b, jnp.float32), expected)


@b_blocks
def test_one_hot_rows_select_columns(rng, block):
    m, n, k = 300, 200, 390
    hot = rng.permutation(k)[:m]
    a = block_scaled(np.eye(k)[hot], np.ones((m, 4)))
    b = exact_operand(rng, (n, k), block, high=8)
    np.testing.assert_array_equal(matmul(a, b, jnp.float32), np.asarray(b.dequantize())[:, hot].T)


# ---- empty: case 6 ---------------------------------------------------------------------------------------------------


@b_blocks
@pytest.mark.parametrize(
    ("m", "n", "k"), [(0, 5, 7), (5, 0, 7), (5, 7, 0), (0, 0, 0), (1, 0, 0), (0, 128, 256)], ids=str
)
@pytest.mark.parametrize("batch", [(), (2,)], ids=str)
def test_empty(m, n, k, batch, block):
    a = jax_fp8.quantize(jnp.zeros((*batch, m, k)))
    b = jax_fp8.quantize(jnp.zeros((*batch, n, k)), block)
    mapped = [jax.vmap(jax_fp8.blockwise_matmul)] if batch else []
    for fn in (jax_fp8.blockwise_matmul, matmul, *mapped):
        out = fn(a, b)
        assert out.shape == (*batch, m, n)
        assert out.dtype == jnp.bfloat16
        assert not np.asarray(out, np.float32).any()


# ---- scales: cases 25, 27 --------------------------------------------------------------------------------------------


@b_blocks
@pytest.mark.parametrize("blocks", [(3, 5, 7), (2, 2, 2), (1, 3, 2)], ids=str)
def test_unique_scales_against_a_loop(blocks, block):
    """One product a block, so the sum of scale products is exact, and each scale is unique."""
    mb, nb, kb = blocks
    m, n, k = 128 * mb - 3, 128 * nb - 5, 128 * kb - 7
    hot = np.zeros(k)
    hot[::128] = 1
    rows = -(-n // block[0])
    i, j, kk = np.arange(m)[:, None], np.arange(rows)[:, None], np.arange(kb)
    sa, sb = 1 + i / 1024 + kk, 2.0 ** (j % 5) * 3.0 ** (kk % 3)
    a = block_scaled(np.broadcast_to(hot, (m, k)), sa)
    b = block_scaled(np.ones((n, k)), sb, block)
    expected = np.zeros((m, n))
    for col in range(kb):
        expected += sa[:, col : col + 1] * np.repeat(sb[:, col], block[0])[:n]
    np.testing.assert_array_equal(matmul(a, b, jnp.float32), expected)


def test_scales_multiply():  # case 27
    b = jax_fp8.BlockScaled(jnp.full((3, 5), 0x38, jnp.uint8), jnp.full((1, 1), 2.0**-10), (128, 128))
    a = block_scaled(np.ones((2, 5)), np.ones((2, 1)))
    np.testing.assert_array_equal(matmul(a, b, jnp.float32), np.full((2, 3), 5 * 2.0**-10))
    x = np.full((1, 5), 3.0, np.float32)
    q = jax_fp8.quantize(x)
    np.testing.assert_allclose(q.values.astype(jnp.float32) * q.scales, x)


# ---- values: cases 10, 15, 16, 20, 23 --------------------------------------------------------------------------------


@b_blocks
def test_all_codes(block):  # case 16
    codes = np.zeros((256, 130), np.uint8)
    codes[:, 1] = np.arange(256)
    b = jax_fp8.BlockScaled(jnp.asarray(codes), jnp.ones((256 // block[0], 2)), block)
    a = block_scaled(np.ones((3, 130)), np.ones((3, 2)))
    expected = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    assert np.isnan(expected).sum() == 2
    for out_dtype in OUT_DTYPES:
        out = np.asarray(matmul(a, b, out_dtype), np.float32)
        np.testing.assert_array_equal(out, np.broadcast_to(expected, (3, 256)))
    np.testing.assert_array_equal(np.asarray(b.dequantize())[:, 1], expected)
    swapped = matmul(jax_fp8.BlockScaled(b.codes, jnp.ones((256, 2)), (1, 128)), a, jnp.float32)
    np.testing.assert_array_equal(swapped, np.broadcast_to(expected[:, None], (256, 3)))


@pytest.mark.parametrize("k", [256, 4096])
def test_promotion_every_block(k):  # case 20
    x = np.zeros((3, k), np.float32)
    x[:, 0] = 448
    for position in (0, 32, 64, 96):
        x[:, 128 + position :: 128] = 1
    ones = np.ones(k // 128)
    a = block_scaled(x, np.broadcast_to(ones, (3, k // 128)))
    b = block_scaled(x[:1].repeat(5, 0), ones[None], (128, 128))
    expected = 448 * 448 + 4 * (k // 128 - 1)
    np.testing.assert_array_equal(matmul(a, b, jnp.float32), np.full((3, 5), expected, np.float32))


def test_error_does_not_grow_with_k(rng):  # case 20
    for k in (512, 16384):
        a = jax_fp8.quantize(rng.uniform(0.5, 1, (17, k)).astype(np.float32))
        b = jax_fp8.quantize(rng.uniform(0.5, 1, (33, k)).astype(np.float32), (128, 128))
        np.testing.assert_allclose(matmul(a, b, jnp.float32), matmul_reference(a, b), rtol=1e-3)


def test_out_dtypes_near_overflow():  # case 23
    k = 7168
    a = block_scaled(np.full((3, k), 448), np.ones((3, 56)))
    b = block_scaled(np.full((5, k), 448), np.ones((1, 56)), (128, 128))
    value = 448.0 * 448 * k
    np.testing.assert_array_equal(matmul(a, b, jnp.float32), np.full((3, 5), value, np.float32))
    nearest = np.float32(ml_dtypes.bfloat16(value))
    np.testing.assert_array_equal(np.asarray(matmul(a, b, jnp.bfloat16), np.float32), np.full((3, 5), nearest))
    assert (np.asarray(matmul(a, b, jnp.float16), np.float32) == np.inf).all()
    negative = block_scaled(np.full((5, k), -448), np.ones((1, 56)), (128, 128))
    assert (np.asarray(matmul(a, negative, jnp.float16), np.float32) == -np.inf).all()


@pytest.mark.parametrize("out_dtype", OUT_DTYPES)
def test_output_rounds_to_nearest_even(out_dtype):
    """k ones times 1 make the integer k in the one column: halves between two floats of 16 bits."""
    info = jnp.finfo(out_dtype)
    step = 2 ** (min(int(info.nmant), 11) + 1)
    sums = [step + 1, step + 3, step + 5, 2 * step + 2, 2 * step + 6]
    k = max(sums)
    x = (np.arange(k) < np.array(sums)[:, None]).astype(np.float32)
    a = block_scaled(x, np.ones((len(sums), -(-k // 128))))
    b = block_scaled(np.ones((3, k)), np.ones((1, -(-k // 128))), (128, 128))
    expected = np.array(sums, np.float32).astype(out_dtype).astype(np.float32)
    np.testing.assert_array_equal(np.asarray(matmul(a, b, out_dtype), np.float32), expected[:, None].repeat(3, 1))


@b_blocks
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf], ids=str)
def test_non_finite_input_stays_in_its_rows(rng, bad, block):  # case 15
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((67, 300), (260, 300)))
    clean = matmul(jax_fp8.quantize(x), jax_fp8.quantize(w, block), jnp.float32)
    x[66, 290] = bad
    w[130, 5] = bad
    out = np.asarray(matmul(jax_fp8.quantize(x), jax_fp8.quantize(w, block), jnp.float32))
    hit = np.zeros(out.shape, bool)
    hit[66] = True
    hit[:, 130 // block[0] * block[0] : (130 // block[0] + 1) * block[0]] = True
    np.testing.assert_array_equal(np.isnan(out), hit)
    np.testing.assert_array_equal(out[~hit], np.asarray(clean)[~hit])


def test_zero_blocks_are_exactly_zero(rng):  # case 10
    x = rng.standard_normal((5, 300)).astype(np.float32)
    x[2] = 0
    w = np.zeros((256, 300), np.float32)
    w[0, 0] = 1
    out = np.asarray(matmul(jax_fp8.quantize(x), jax_fp8.quantize(w, (128, 128)), jnp.float32))
    assert (out[2] == 0).all()
    assert (out[:, 1:] == 0).all()
    assert (out[[0, 1, 3, 4], 0] != 0).all()


def test_tiny_scales(rng):  # scales of case 22
    """Scales of 1, 1e-4, 1e-8, 1e-30 in one product: the small ones must not drown or flush."""
    small = np.array([1, 1e-4, 1e-8, 1e-30], np.float32)[np.arange(9) % 4]
    positive = rng.integers(0, 3, (9, 128))
    a = block_scaled(positive, small[:, None])
    b = block_scaled(rng.integers(1, 4, (130, 128)), np.ones((2, 1)), (128, 128))
    out = matmul(a, b, jnp.float32)
    np.testing.assert_allclose(out, matmul_reference(a, b), rtol=132 * 2.0**-24)


# ---- same bits: cases 21, 24 -----------------------------------------------------------------------------------------


def test_repeats_are_identical(rng):
    a, b = gaussian(rng, (130, 1000)), gaussian(rng, (200, 1000), (128, 128))
    first = matmul(a, b)
    for _ in range(20):
        assert_same_bits(matmul(a, b), first)


@pytest.mark.parametrize("m", [2, 17, 65, 129])
def test_a_row_does_not_depend_on_the_values_of_others(rng, m):
    a, b = gaussian(rng, (m, 384)), gaussian(rng, (200, 384), (128, 128))
    other = gaussian(rng, (m, 384))
    row = m // 2
    other = jax_fp8.BlockScaled(
        other.codes.at[row].set(a.codes[row]), other.scales.at[row].set(a.scales[row]), (1, 128)
    )
    assert_same_bits(matmul(other, b)[row], matmul(a, b)[row])


@b_blocks
def test_jit_equals_eager_with_any_layout(rng, block):
    """A weight that arrives as the transpose of a parameter, quantised inside or outside."""
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((65, 390), (390, 200)))

    def product(x, w):
        return jax_fp8.blockwise_matmul(jax_fp8.quantize(x), jax_fp8.quantize(w.T, block), jnp.float32)

    eager = product(x, w)
    assert_matmul_close(eager, jax_fp8.quantize(x), jax_fp8.quantize(np.ascontiguousarray(w.T), block))
    assert_matmul_close(jax.jit(product)(x, w), jax_fp8.quantize(x), jax_fp8.quantize(w.T, block))
    q = jax_fp8.quantize(w.T, block)
    codes_t = jnp.asarray(np.asarray(q.codes).T)
    from_transposed = jax.jit(
        lambda a, codes_t, scales: jax_fp8.blockwise_matmul(
            a, jax_fp8.BlockScaled(codes_t.T, scales, block), jnp.float32
        )
    )
    assert_same_bits(
        from_transposed(jax_fp8.quantize(x), codes_t, q.scales), matmul(jax_fp8.quantize(x), q, jnp.float32)
    )


# ---- batches: cases 9, 40 --------------------------------------------------------------------------------------------


@b_blocks
@pytest.mark.parametrize("m", [1, 16, 17, 129])
def test_batch_equals_vmap_and_loop(rng, m, block):
    a, b = exact_operand(rng, (3, m, 130)), exact_operand(rng, (3, 140, 130), block)
    for out in (matmul(a, b), jax.vmap(jax_fp8.blockwise_matmul)(a, b)):
        assert_same_bits(out, stack(lambda i: matmul(take(a, i), take(b, i)), 3))
    assert_same_bits(matmul(a, take(b, 0)), stack(lambda i: matmul(take(a, i), take(b, 0)), 3))
    assert_same_bits(matmul(take(a, 0), b), stack(lambda i: matmul(take(a, 0), take(b, i)), 3))


def test_several_leading_axes(rng):
    a, b = exact_operand(rng, (2, 3, 5, 130)), exact_operand(rng, (2, 3, 140, 130), (128, 128))
    assert_exact(matmul(a, b, jnp.float32), a, b)
    assert_exact(jax.vmap(jax.vmap(matmul))(a, b), a, b)


def axes_of(x, axis):
    return jnp.moveaxis(x, 0, axis) if axis is not None else x[0]


@pytest.mark.parametrize("rows", [1, 128])
@pytest.mark.parametrize("a_axes", list(itertools.product([None, 0, 1, -1], repeat=2)), ids=str)
def test_every_combination_of_mapped_axes(rng, a_axes, rows):
    """vmap of the primitive over any subset of its operands, along any axis, equals the loop."""
    size = 3
    a, b = exact_operand(rng, (size, 5, 130)), exact_operand(rng, (size, 140, 130), (rows, 128))
    full = (a.codes, a.scales, b.codes, b.scales)

    def product(*operands):
        return jax_fp8.blockwise_matmul_p.bind(*operands, rows=rows, out_dtype=jnp.dtype("float32"), config="")

    for axes in itertools.product(a_axes[:1], a_axes[1:], [None, 0, 1, -1], [None, 0, 1, -1]):
        if axes == (None,) * 4:
            continue
        operands = [axes_of(x, axis) for x, axis in zip(full, axes, strict=True)]
        out = jax.vmap(product, axes)(*operands)
        expected = []
        for i in range(size):
            av, asc, bv, bsc = (np.asarray(x[0 if axis is None else i]) for x, axis in zip(full, axes, strict=True))
            one = jax_fp8.BlockScaled(av, asc, (1, 128)), jax_fp8.BlockScaled(bv, bsc, (rows, 128))
            expected.append(matmul_reference(*one))
        np.testing.assert_array_equal(out, np.stack(expected), err_msg=str(axes))


NESTINGS = {
    "a, then b": ((0, None), (None, 0)),
    "b, then a": ((None, 0), (0, None)),
    "a twice": ((0, None), (0, None)),
    "b twice": ((None, 0), (None, 0)),
    "both, then a": ((0, 0), (0, None)),
    "both, then b": ((0, 0), (None, 0)),
    "a, then both": ((0, None), (0, 0)),
    "b, then both": ((None, 0), (0, 0)),
    "both twice": ((0, 0), (0, 0)),
}


@b_blocks
@pytest.mark.parametrize("nesting", NESTINGS.values(), ids=NESTINGS.keys())
def test_nested_vmap(rng, nesting, block):
    out_axes = (0, 1, -1)[list(NESTINGS.values()).index(nesting) % 3]
    sizes = (2, 3)
    batches = [tuple(s for s, axes in zip(sizes, nesting, strict=True) if axes[i] is not None) for i in range(2)]
    a, b = exact_operand(rng, (*batches[0], 5, 130)), exact_operand(rng, (*batches[1], 140, 130), block)
    fn = jax.vmap(jax_fp8.blockwise_matmul, nesting[1], out_axes=out_axes)
    out = jax.jit(jax.vmap(fn, nesting[0]))(a, b)
    for i, j in np.ndindex(*sizes):
        index = [[p for p, axes in zip((i, j), nesting, strict=True) if axes[side] is not None] for side in range(2)]
        expected = matmul(take(a, *index[0]), take(b, *index[1]))
        assert_same_bits(jnp.take(out[i], j, axis=out_axes), expected)


def test_vmap_of_nothing(rng):
    a, b = exact_operand(rng, (0, 5, 130)), exact_operand(rng, (140, 130), (128, 128))
    assert jax.vmap(jax_fp8.blockwise_matmul, (0, None))(a, b).shape == (0, 5, 140)


def weight_shapes(fn, *args):
    """Shapes of b in all products of fn, and of everything computed on the way."""
    eqns = list(equations(jax.make_jaxpr(fn)(*args)))
    products = [eqn.invars[2].aval.shape for eqn in eqns if eqn.primitive is jax_fp8.blockwise_matmul_p]
    return products, {v.aval.shape for eqn in eqns for v in eqn.outvars}


def test_weights_are_never_repeated(rng):
    """Under a vmap over activations the product reads the one weight; no copy of it is made."""
    n, k = 140, 130
    weight, experts = exact_operand(rng, (n, k), (128, 128)), exact_operand(rng, (2, n, k), (128, 128))
    a = exact_operand(rng, (3, 2, 5, k))
    over_a = jax.vmap(jax_fp8.blockwise_matmul, (0, None))
    for fn, b, shape in (
        (over_a, weight, (n, k)),
        (jax.vmap(over_a, (0, None)), weight, (n, k)),
        (over_a, experts, (2, n, k)),  # a has the experts' axis already
        (jax.vmap(over_a, (1, 0)), experts, (2, n, k)),
        (jax.vmap(jax.vmap(jax_fp8.blockwise_matmul), (0, None)), experts, (2, n, k)),
    ):
        products, computed = weight_shapes(fn, a, b)
        assert products == [shape]
        assert not any(s[-2:] == (n, k) and len(s) > len(shape) for s in computed)
        assert fn(a, b).shape == (*a.shape[:-2], 5, n) or fn(a, b).shape == (2, 3, 5, n)


def test_in_scan_and_while(rng):
    a, b = exact_operand(rng, (4, 5, 130)), exact_operand(rng, (140, 130), (128, 128))
    scanned = jax.jit(lambda a, b: lax.scan(lambda c, a: (c, jax_fp8.blockwise_matmul(a, b)), 0, a)[1])(a, b)
    assert_same_bits(scanned, matmul(a, b))


# ---- configurations --------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@b_blocks
@pytest.mark.parametrize("out_dtype", OUT_DTYPES)
def test_every_configuration_by_name(rng, out_dtype, block):
    for m, n, k in ((1, 200, 300), (130, 392, 1024), (515, 1031, 640)):
        a, b = exact_operand(rng, (m, k)), exact_operand(rng, (n, k), block)
        for config in _extension.host.config_names(block[0], jnp.dtype(out_dtype).name):
            assert_exact(matmul(a, b, out_dtype, config=config), a, b)


def test_configuration_is_only_a_choice(rng):
    a, b = exact_operand(rng, (5, 130)), exact_operand(rng, (140, 130), (128, 128))
    for config in _extension.host.config_names(128, "float32"):
        assert_exact(matmul(a, b, jnp.float32, config=config), a, b)
    with pytest.raises(ValueError, match=r"config must be one of .* for b in \(128, 128\) blocks, got '3x5'"):
        matmul(a, b, config="3x5")


# ---- refusals: cases 23, 25 ------------------------------------------------------------------------------------------


def operand(shape, block=(1, 128), scales=None, dtype=jnp.float32):
    q = jax_fp8.quantize(jnp.ones(shape), block)
    return q if scales is None else q._replace(scales=jnp.ones(scales, dtype))


A, B = operand((4, 256)), operand((300, 256), (128, 128))


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((np.ones((4, 256)), B), TypeError, "blockwise_matmul: a must be a BlockScaled, got .*; see jax_fp8.quantize"),
        ((A, np.ones((4, 256))), TypeError, "blockwise_matmul: b must be a BlockScaled, got"),
        ((A, B.T), ValueError, r"b \(256, 300\) has its blocks along the first axis; pass b.T"),
        ((A.T, B), ValueError, r"a \(256, 4\) has its blocks along the first axis; pass a.T"),
        ((B, B), ValueError, r"a must be in \(1, 128\) blocks, got \(128, 128\)"),
        ((A, operand((300, 255), (128, 128))), ValueError, r"a \(4, 256\) and b \(300, 255\) must have the same k"),
        (
            (operand((2, 4, 256)), operand((3, 5, 256))),
            ValueError,
            r"leading axes of a \(2, 4, 256\) and b \(3, 5, 256\)",
        ),
        ((A, B, jnp.float8_e4m3fn), TypeError, "out_dtype must be bfloat16, float16 or float32, got float8_e4m3fn"),
        ((A, B, jnp.int32), TypeError, "out_dtype must be bfloat16, float16 or float32, got int32"),
        (
            (A, operand((300, 256), (128, 128), (2, 3))),
            ValueError,
            r"b.scales has shape \(2, 3\); b \(300, 256\) in 128x128 blocks needs \(3, 2\)",
        ),
        (
            (operand((4, 256), (1, 128), (2, 4)), B),
            ValueError,
            r"a.scales has shape \(2, 4\); a \(4, 256\) in 1x128 blocks",
        ),
        ((A, operand((300, 256), (128, 128), (1, 1))), ValueError, r"b.scales has shape \(1, 1\)"),
        ((A, operand((300, 256), (128, 128), (6,))), ValueError, r"b.scales has shape \(6,\)"),
        (
            (A, operand((300, 256), (128, 128), (3, 2), jnp.bfloat16)),
            TypeError,
            "b.scales must be float32, got bfloat16",
        ),
    ],
)
def test_refusals(args, error, message):
    a, b, *out_dtype = args
    with pytest.raises(error, match=message):
        jax_fp8.blockwise_matmul(a, b, *out_dtype)
    with pytest.raises(error, match=message):
        jax.jit(lambda a, b: jax_fp8.blockwise_matmul(a, b, *out_dtype))(a, b)
