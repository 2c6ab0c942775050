"""BlockScaled as a value: it must pass through every transformation unchanged and refuse parts that don't fit."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from helpers import assert_same_bits, block_scaled, take
from jax import lax

import jax_fp8
from jax_fp8.testing import exact_operand, quantize_reference


def weight(rng, shape=(300, 130)):
    return jax_fp8.quantize_weight(jnp.asarray(rng.standard_normal(shape), jnp.bfloat16))


def assert_same(q, expected):
    assert isinstance(q, jax_fp8.BlockScaled)
    assert (q.shape, q.block) == (expected.shape, expected.block)
    assert_same_bits(q, expected)


# ---- attributes ------------------------------------------------------------------------------------------------------


def test_shapes_blocks_and_transpose(rng):
    q = jax_fp8.quantize(rng.standard_normal((300, 130)).astype(np.float32), (128, 128))
    assert (q.shape, q.ndim, q.size, q.block) == ((300, 130), 2, 39000, (128, 128))
    assert q.dtype == jnp.float8_e4m3fn
    assert q.T.shape == (130, 300)
    assert q.T.codes is q.codes  # moves no data
    assert_same(q.T.T, q)
    np.testing.assert_array_equal(q.T.dequantize(), np.asarray(q.dequantize()).T)
    np.testing.assert_array_equal(
        np.asarray(q.T.values.astype(jnp.float32)), np.asarray(q.values.astype(jnp.float32)).T
    )
    rows = jax_fp8.quantize(np.ones((3, 130), np.float32))
    assert (rows.block, rows.T.block) == ((1, 128), (128, 1))


def test_mT_with_leading_axes(rng):
    q = exact_operand(rng, (2, 5, 130))
    assert q.mT.shape == (2, 130, 5)
    np.testing.assert_array_equal(q.mT.dequantize(), np.swapaxes(q.dequantize(), 1, 2))
    with pytest.raises(ValueError, match=r"BlockScaled.T: needs 2 axes, got shape \(2, 5, 130\); .mT swaps"):
        _ = q.T


@pytest.mark.parametrize("shape", [(576, 300), (587, 256), (100, 60), (2, 129, 127)], ids=str)
def test_dequantize_ragged(shape):  # cases 30, 31
    """Each block one constant: a block size derived from shapes instead of 128 shows at once."""
    *batch, n, k = shape
    scales = 1.0 + np.arange(np.prod(batch, dtype=int) * -(-n // 128) * -(-k // 128)).reshape(
        *batch, -(-n // 128), -(-k // 128)
    )
    q = block_scaled(np.full(shape, 2), scales, (128, 128))
    i, j = np.arange(n) // 128, np.arange(k) // 128
    np.testing.assert_array_equal(q.dequantize(), 2 * scales[..., i[:, None], j])


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16])
def test_dequantize_to_a_dtype(rng, dtype):
    q = exact_operand(rng, (5, 130))
    out = q.dequantize(dtype)
    assert out.dtype == dtype
    np.testing.assert_array_equal(out.astype(jnp.float32), q.dequantize())


def test_repr(rng):
    q = weight(rng)
    assert repr(q) == "BlockScaled(float8_e4m3fn[300, 130], block=(128, 128), transposed, master)"
    assert repr(jax_fp8.quantize(np.ones((2, 3), np.float32)).T) == "BlockScaled(float8_e4m3fn[3, 2], block=(128, 1))"
    seen = []
    jax.jit(lambda q: seen.append(repr(q)))(q)
    assert seen == [repr(q)]


# ---- as a pytree -----------------------------------------------------------------------------------------------------


def test_leaves_have_names(rng):
    paths = {jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(weight(rng))}
    assert paths == {".codes", ".scales", ".transposed[0]", ".transposed[1]", ".master"}


def test_flatten_and_unflatten(rng):
    q = weight(rng).T
    leaves, treedef = jax.tree.flatten(q)
    assert_same(jax.tree.unflatten(treedef, leaves), q)
    placeholders = jax.tree.unflatten(treedef, [None] * len(leaves))  # as jax does in many places
    assert isinstance(placeholders, jax_fp8.BlockScaled)
    assert jax.tree.structure(q) != jax.tree.structure(q.T)


def test_through_jit_scan_cond_vmap_and_eval_shape(rng):
    q = weight(rng)
    assert_same(jax.jit(lambda q: q)(q), q)
    assert_same(jax.jit(lambda q: q.T)(q), q.T)
    assert_same(lax.scan(lambda q, _: (q, None), q, length=2)[0], q)
    assert_same(lax.cond(True, lambda q: q, lambda q: q, q), q)
    stacked = jax.tree.map(lambda *x: jnp.stack(x), q, q)
    out = jax.vmap(lambda q: q.T)(stacked)
    assert out.shape == (2, 130, 300)
    scanned = lax.scan(lambda _, q: (None, q.dequantize()), None, stacked)[1]
    np.testing.assert_array_equal(scanned[1], q.dequantize())
    assert jax.eval_shape(jax_fp8.quantize_weight, q.master).shape == q.shape


def test_layers_stacked_for_scan(rng):
    w = jnp.asarray(rng.standard_normal((3, 130, 130)), jnp.float32)
    x = jnp.asarray(rng.standard_normal((5, 130)), jnp.float32)
    layers = jax.vmap(jax_fp8.quantize_weight)(w)
    assert_same(layers, jax_fp8.quantize_weight(w))
    out = lax.scan(lambda x, q: (jax_fp8.dot(x, q), None), x, layers)[0]
    for i in range(3):
        x = jax_fp8.dot(x, w[i])
    np.testing.assert_array_equal(out, x)


def test_donation(rng):
    q = jax_fp8.quantize(rng.standard_normal((128, 256)).astype(np.float32))
    expected = jax.tree.map(np.array, q)
    out = jax.jit(lambda q: q, donate_argnums=0)(q)
    assert q.codes.is_deleted()
    assert_same(out, expected)


def test_numpy_round_trip_keeps_bytes(rng, tmp_path):  # case 34
    q = exact_operand(rng, (5, 130))
    np.savez(tmp_path / "q.npz", codes=q.codes, scales=q.scales)
    loaded = np.load(tmp_path / "q.npz")
    assert_same(jax_fp8.BlockScaled(loaded["codes"], loaded["scales"], (1, 128)), q)


# ---- construction ----------------------------------------------------------------------------------------------------


def test_from_float8_and_from_bytes(rng):
    x = rng.standard_normal((130, 300)).astype(np.float32)
    codes, scales = quantize_reference(x, (128, 128))
    expected = jax_fp8.quantize(x, (128, 128))
    assert_same(jax_fp8.BlockScaled(codes, scales), expected)
    for values in (codes.view(ml_dtypes.float8_e4m3fn), jnp.asarray(codes).view(jnp.float8_e4m3fn)):
        assert_same(jax_fp8.BlockScaled(values, scales), expected)
    jitted = jax.jit(lambda v, s: jax_fp8.BlockScaled(v, s))(codes.view(ml_dtypes.float8_e4m3fn), scales)
    assert_same(jitted, expected)


CODES = np.zeros((300, 256), np.uint8)


@pytest.mark.parametrize(
    ("values", "scales", "block", "error", "message"),
    [
        (CODES.astype(np.float32), np.ones((3, 2), np.float32), (128, 128), TypeError,
         r"BlockScaled: values must be float8_e4m3fn \(or its bytes as uint8\), got float32"),
        (CODES.view(ml_dtypes.float8_e5m2), np.ones((3, 2), np.float32), (128, 128), TypeError, "got float8_e5m2"),
        (CODES.tolist(), np.ones((3, 2), np.float32), (128, 128), TypeError, "got list"),
        (CODES, np.ones((3, 2), ml_dtypes.bfloat16), (128, 128), TypeError, "scales must be float32, got bfloat16"),
        (CODES, np.ones((3, 2), np.float64), (128, 128), TypeError, "scales must be float32, got float64"),
        (CODES, 1.0, (128, 128), TypeError, "scales must be float32, got float"),
        (CODES, np.ones((2, 3), np.float32), (128, 128), ValueError,
         r"BlockScaled: scales has shape \(2, 3\); values \(300, 256\) in 128x128 blocks needs \(3, 2\)"),
        (CODES, np.ones((1, 1), np.float32), (128, 128), ValueError, r"scales has shape \(1, 1\)"),
        (CODES, np.ones(6, np.float32), (128, 128), ValueError, r"scales has shape \(6,\)"),
        (CODES, np.ones((3, 2), np.float32), (1, 128), ValueError, r"in 1x128 blocks needs \(300, 2\)"),
        (CODES, np.ones((3, 2), np.float32), (64, 128), ValueError, r"or \(128, 128\), got \(64, 128\)"),
        (CODES, np.ones((3, 2), np.float32), (128, 1), ValueError, "build the transpose and take .T"),
        (CODES[0], np.ones((3, 2), np.float32), (128, 128), ValueError, r"at least 2 axes .*, got shape \(256,\)"),
    ],
)  # fmt: skip
def test_refusals(values, scales, block, error, message):
    with pytest.raises(error, match=message):
        jax_fp8.BlockScaled(values, scales, block)


def test_swapped_scales_of_equal_size_are_refused():
    """1000 / 8 = 125: a block size derived from the shapes would fit (case 31)."""
    with pytest.raises(ValueError, match=r"needs \(8, 3\)"):
        jax_fp8.BlockScaled(np.zeros((1000, 300), np.uint8), np.ones((3, 8), np.float32))


def test_a_tree_wide_cast_is_noticed(rng):
    q = jax.tree.map(lambda x: x.astype(jnp.bfloat16), jax_fp8.quantize(np.ones((4, 130), np.float32)))
    with pytest.raises(TypeError, match=r"blockwise_matmul: a\.codes must be uint8, got bfloat16; a tree-wide cast"):
        jax_fp8.blockwise_matmul(q, q)
    q = jax_fp8.quantize(np.ones((4, 130), np.float32))
    rounded = jax.tree.map(lambda x: x.astype(jnp.bfloat16) if x.dtype == jnp.float32 else x, q)
    with pytest.raises(TypeError, match=r"w\.scales must be float32, got bfloat16; keep BlockScaled out of casts"):
        jax_fp8.dot(jnp.ones((3, 130)), rounded.T)


# ---- attach ----------------------------------------------------------------------------------------------------------


def test_attach(rng):
    w = jnp.asarray(rng.standard_normal((300, 130)), jnp.float32)
    q = jax_fp8.quantize_weight(w, for_inference=True)
    attached = jax_fp8.attach(q, w)
    assert attached.master is w
    assert_same_bits((attached.codes, attached.scales), (q.codes, q.scales))
    for bad, error, message in (
        (w.T, ValueError, r"attach: w has shape \(130, 300\); q has shape \(300, 130\)"),
        (jnp.zeros((300, 130), jnp.int32), TypeError, "attach: w must be float32, bfloat16 or float16, got int32"),
    ):
        with pytest.raises(error, match=message):
            jax_fp8.attach(q, bad)
    with pytest.raises(TypeError, match="attach: q must be a BlockScaled"):
        jax_fp8.attach(w, w)


def test_take_of_leading_axes_moves_scales_along(rng):
    q = exact_operand(rng, (3, 5, 300), (128, 128))
    np.testing.assert_array_equal(take(q, 1).dequantize(), q.dequantize()[1])


def test_repr_survives_any_leaf():
    q = jax_fp8.quantize(jnp.ones((4, 128)))
    for leaf in (None, object(), 1, "codes"):
        assert repr(jax.tree.map(lambda _, leaf=leaf: leaf, q)).startswith("BlockScaled(codes=")


def test_products_of_codes_have_no_derivative():
    a, b = jax_fp8.quantize(jnp.ones((4, 128))), jax_fp8.quantize(jnp.ones((8, 128)), (128, 128))

    def total(scales):
        return jnp.sum(jax_fp8.blockwise_matmul(jax_fp8.BlockScaled(a.codes, scales, (1, 128)), b, jnp.float32))

    with pytest.raises(NotImplementedError, match=r"no derivative with respect to scales.*differentiate jax_fp8.dot"):
        jax.grad(total)(a.scales)


def test_transposed_parts_are_checked():
    q = jax_fp8.quantize_weight(jnp.ones((256, 384)))
    codes, scales = q.transposed
    x = jnp.ones((3, 256))
    for transposed, message in (
        ((codes[:-1], scales), r"w\.transposed\.codes has shape"),
        ((codes.astype(jnp.int32), scales), r"w\.transposed\.codes must be uint8, got int32"),
        ((codes, scales.astype(jnp.bfloat16)), r"w\.transposed\.scales must be float32, got bfloat16"),
        ((codes, scales[:-1]), r"w\.transposed\.scales has shape"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            jax_fp8.dot(x, q._replace(transposed=transposed))
