"""Gradients. Finds: a residual in the wrong scale axis, a cotangent cast to FP8 without a scale, double quantisation,
NaN from checkpointing float8 values, NaN hidden, a transform that differs from the loop, a wrong derivative returned
where an error is due.

Three judges: the recipe itself (explicit quantisation, float64 product), `exactly_quantizable` data for which FP8
gradients equal the true ones, and float32 gradients within FP8's noise.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_same_bits, equations, stack
from jax import lax
from jax.ad_checkpoint import checkpoint_name

import jax_fp8
from jax_fp8.testing import assert_matmul_close, exactly_quantizable

M, K, N = 257, 640, 384  # case 42
DTYPES = [jnp.float32, jnp.bfloat16, jnp.float16]


def normal(rng, *shape, dtype=jnp.float32):
    return jnp.asarray(rng.standard_normal(shape), dtype)


def exact(rng, *shape):
    return jnp.asarray(exactly_quantizable(rng, shape))


def close_to(got, expected, noise=0.05):
    """FP8 noise: each rounding is within 2^-4, about 2.6 % in norm, two independent ones under 5 %."""
    got, expected = (np.asarray(v, np.float64) for v in (got, expected))
    assert np.isfinite(got).all()
    assert np.linalg.norm(got - expected) <= noise * np.linalg.norm(expected)
    cosine = (got * expected).sum() / (np.linalg.norm(got) * np.linalg.norm(expected))
    assert cosine > 0.998
    assert abs(np.linalg.norm(got) / np.linalg.norm(expected) - 1) < 0.02


def loss(dot, x, w):
    return jnp.sum(jnp.sin(dot(x, w) * 0.1))


def gradients(dot, x, w):
    return jax.grad(functools.partial(loss, dot), (0, 1))(x, w)


# ---- the recipe ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("quantized", [False, True], ids=["array", "quantize_weight"])
def test_recipe(rng, dtype, quantized):
    """dgrad: ct in 1x128 and the same quantised weight. wgrad: x and ct in 1x128 along the tokens."""
    x, w, ct = normal(rng, M, K, dtype=dtype), normal(rng, K, N, dtype=dtype), normal(rng, M, N, dtype=dtype)
    ct = ct * jnp.asarray(10.0 ** np.linspace(-3, 3, M)[:, None], dtype)
    prepare = jax_fp8.quantize_weight if quantized else lambda w: w
    y, vjp = jax.vjp(lambda x, w: jax_fp8.dot(x, prepare(w)), x, w)
    dx, dw = vjp(ct)
    weight = jax_fp8.quantize(w, (128, 128))
    weight_t = jax_fp8.quantize(w.T, (128, 128))
    assert_matmul_close(y, jax_fp8.quantize(x), weight_t)
    assert_matmul_close(dx, jax_fp8.quantize(ct), weight)
    assert_matmul_close(dw, jax_fp8.quantize(x.T), jax_fp8.quantize(ct.T))
    assert (dx.dtype, dw.dtype) == (dtype, dtype)


def test_tangents(rng):
    """y' = Q(x') W + Q_tokens(x) Q(w'), each against its own oracle."""
    x, w, dx, dw = normal(rng, 65, 300), normal(rng, 300, 140), normal(rng, 65, 300), normal(rng, 300, 140)
    _, t = jax.jvp(lambda x: jax_fp8.dot(x, w), (x,), (dx,))
    assert_matmul_close(t, jax_fp8.quantize(dx), jax_fp8.quantize(w.T, (128, 128)))
    _, t = jax.jvp(lambda w: jax_fp8.dot(x, w), (w,), (dw,))
    along_tokens = jax_fp8.quantize(x.T).dequantize().T
    assert_matmul_close(t, jax_fp8.quantize(along_tokens), jax_fp8.quantize(dw.T, (128, 128)))


# ---- exact data: gradients equal the true ones -----------------------------------------------------------------------

SHAPES = {
    "vector vector": ((130,), (130,)),
    "matrix vector": ((5, 130), (130,)),
    "vector matrix": ((130,), (130, 7)),
    "matrix matrix": ((65, 130), (130, 70)),
    "3-D matrix": ((2, 5, 130), (130, 7)),
    "3-D 3-D": ((2, 5, 130), (3, 130, 7)),
    "no rows": ((0, 130), (130, 7)),
    "no columns": ((5, 130), (130, 0)),
    "no depth": ((5, 0), (0, 7)),
}


@pytest.mark.parametrize(("x_shape", "w_shape"), SHAPES.values(), ids=SHAPES.keys())
def test_exact_gradients(rng, x_shape, w_shape):
    x, w = exact(rng, *x_shape), exact(rng, *w_shape)
    like, vjp = jax.vjp(functools.partial(jnp.dot, precision="highest"), x, w)
    ct = exact(rng, *like.shape)
    y, fp8_vjp = jax.vjp(jax_fp8.dot, x, w)
    assert_same_bits(
        (y + 0.0, jax.tree.map(lambda g: g + 0.0, fp8_vjp(ct))), (like + 0.0, jax.tree.map(lambda g: g + 0.0, vjp(ct)))
    )
    jitted = jax.jit(lambda x, w, ct: jax.vjp(jax_fp8.dot, x, w)[1](ct))(x, w, ct)
    for got, expected in zip(jitted, vjp(ct), strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    ("subscripts", "shapes"),
    [("bij,bjk->bik", ((3, 5, 130), (3, 130, 7))), ("ij,kj->ki", ((5, 130), (7, 130))),
     ("btd,dhe->bthe", ((2, 5, 130), (130, 3, 4))), ("bthe,hed->btd", ((2, 5, 3, 40), (3, 40, 7)))],
)  # fmt: skip
def test_exact_gradients_of_einsum(rng, subscripts, shapes):
    x, w = (exact(rng, *s) for s in shapes)
    like, vjp = jax.vjp(lambda x, w: jnp.einsum(subscripts, x, w, precision="highest"), x, w)
    ct = exact(rng, *like.shape)
    got = jax.vjp(lambda x, w: jax_fp8.einsum(subscripts, x, w), x, w)[1](ct)
    for g, expected in zip(got, vjp(ct), strict=True):
        np.testing.assert_array_equal(g, expected)


def test_gradient_of_a_transposed_result(rng):  # case 28
    x, w, ct = exact(rng, 65, 130), exact(rng, 130, 70), exact(rng, 70, 65)
    got = jax.vjp(lambda x, w: jax_fp8.dot(x, w).T, x, w)[1](ct)
    expected = jax.vjp(lambda x, w: jnp.dot(x, w, precision="highest").T, x, w)[1](ct)
    for g, e in zip(got, expected, strict=True):
        np.testing.assert_array_equal(g, e)


def weight_forms(w):
    """Every way to a BlockScaled of the values w (k, n) whose master is an argument of its own."""
    return {
        "quantize_weight": lambda w: jax_fp8.quantize_weight(w),
        "of the transpose, .T": lambda w: jax_fp8.quantize_weight(w.T).T,
        "attach to (n, k).T": lambda v: jax_fp8.attach(jax_fp8.quantize(w.T, (128, 128)).T, v),
        "attach to (k, n)": lambda v: jax_fp8.attach(jax_fp8.quantize(w, (128, 128)), v),
        "attach to (n, k), then .T": lambda v: jax_fp8.attach(jax_fp8.quantize(w.T, (128, 128)), v.T).T,
        "attach, inference": lambda v: jax_fp8.attach(jax_fp8.quantize_weight(w, for_inference=True), v),
        "attach, 1x128 .T": lambda v: jax_fp8.attach(jax_fp8.quantize(w.T).T, v),
        "attach, 1x128": lambda v: jax_fp8.attach(jax_fp8.quantize(w), v),
    }


def test_exact_gradients_through_every_form_of_a_quantized_weight(rng):
    x, w, ct = exact(rng, 65, 130), exact(rng, 130, 140), exact(rng, 65, 140)
    expected = jax.vjp(functools.partial(jnp.dot, precision="highest"), x, w)[1](ct)
    for name, form in weight_forms(w).items():
        got = jax.vjp(lambda x, v: jax_fp8.dot(x, form(v)), x, w)[1](ct)  # noqa: B023
        for g, e in zip(got, expected, strict=True):
            np.testing.assert_array_equal(g, e, err_msg=name)


# ---- quantised weights -----------------------------------------------------------------------------------------------


def test_quantizing_before_or_inside_is_the_same(rng):
    x, w = normal(rng, 65, 300), normal(rng, 300, 140)
    q = jax_fp8.quantize_weight(w)
    expected = jax.jit(lambda x, w: gradients(jax_fp8.dot, x, w))(x, w)
    inside = jax.jit(lambda x, w: gradients(lambda x, w: jax_fp8.dot(x, jax_fp8.quantize_weight(w)), x, w))(x, w)
    before = jax.jit(lambda x, w, q: gradients(lambda x, w: jax_fp8.dot(x, jax_fp8.attach(q, w)), x, w))(x, w, q)
    assert_same_bits(inside, expected)
    assert_same_bits(before, expected)


def test_gradient_in_x_with_a_weight_without_master(rng):
    x, w = normal(rng, 65, 300), normal(rng, 300, 140)
    q = jax_fp8.quantize_weight(w, for_inference=True)
    got = jax.grad(lambda x: loss(jax_fp8.dot, x, q))(x)
    assert_same_bits(got, gradients(jax_fp8.dot, x, w)[0])


def test_differentiating_the_bytes(rng):  # case 41
    x, w = normal(rng, 5, 130), normal(rng, 130, 140)
    q = jax_fp8.quantize_weight(w)
    with pytest.raises(TypeError, match="uint8"):
        jax.grad(lambda q: loss(jax_fp8.dot, x, q))(q)
    g = jax.grad(lambda q: loss(jax_fp8.dot, x, q), allow_int=True)(q)
    assert g.codes.dtype == jax.dtypes.float0
    assert not np.asarray(g.scales).any()
    assert_same_bits(g.master, gradients(jax_fp8.dot, x, w)[1])


# ---- against float32: cases 41, 42, 43 -------------------------------------------------------------------------------


@pytest.mark.parametrize("c", [1e-6, 1.0, 1e4])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_gradients_do_not_depend_on_the_scale_of_the_loss(rng, c, dtype):  # case 41
    x, w = normal(rng, 65, 300, dtype=dtype), normal(rng, 300, 140, dtype=dtype)
    forms = {"array": jax_fp8.dot, "quantized": lambda x, w: jax_fp8.dot(x, jax_fp8.quantize_weight(w))}
    for dot in forms.values():
        got = jax.grad(lambda x, w: jnp.sum(dot(x, w).astype(jnp.float32)) * c, (0, 1))(x, w)  # noqa: B023
        expected = jax.grad(lambda x, w: jnp.sum(jnp.dot(x, w, precision="highest")) * c, (0, 1))(
            x.astype(jnp.float32), w.astype(jnp.float32)
        )
        for g, e in zip(got, expected, strict=True):
            assert g.dtype == dtype
            close_to(g / c, e / c)


def test_power_of_two_scaling_of_the_loss_scales_gradients_exactly(rng):
    x, w, ct = normal(rng, 65, 300), normal(rng, 300, 140), normal(rng, 65, 140)
    vjp = jax.vjp(jax_fp8.dot, x, w)[1]
    for exponent in (-20, 14):
        c = 2.0**exponent
        assert_same_bits(vjp(ct * c), jax.tree.map(lambda g: g * c, vjp(ct)))  # noqa: B023


@pytest.mark.parametrize("quantized", [False, True], ids=["array", "quantize_weight"])
def test_rows_and_columns_of_wide_range(rng, quantized):  # case 42
    x, w, ct = normal(rng, M, K), normal(rng, K, N), normal(rng, M, N)
    ct = ct * jnp.asarray(10.0 ** np.linspace(-6, 2, M), jnp.float32)[:, None]
    x = x.at[:, ::97].mul(1e3)
    dot = (lambda x, w: jax_fp8.dot(x, jax_fp8.quantize_weight(w))) if quantized else jax_fp8.dot
    got = jax.vjp(dot, x, w)[1](ct)
    expected = jax.vjp(functools.partial(jnp.dot, precision="highest"), x, w)[1](ct)
    for g, e in zip(got, expected, strict=True):
        close_to(g, e)
    rows = np.linalg.norm(np.asarray(got[0] - expected[0], np.float64), axis=1)
    assert (rows <= 0.06 * np.linalg.norm(np.asarray(expected[0], np.float64), axis=1)).all()  # the smallest rows, too


def test_nan_stays_visible(rng):  # case 43
    x, w = normal(rng, 65, 300), normal(rng, 300, 140)
    clean = jax_fp8.dot(x, w)
    bad = x.at[7, 3].set(jnp.nan)
    y, vjp = jax.vjp(jax_fp8.dot, bad, w)
    assert np.isnan(y[7]).all()
    keep = np.arange(65) != 7
    assert_same_bits(y[keep], clean[keep])
    dx, dw = vjp(normal(rng, 65, 140))
    assert np.isfinite(dx).all()
    assert np.isnan(dw[3]).all()
    assert np.isfinite(np.delete(np.asarray(dw), 3, axis=0)).all()


def test_zero_operands_have_finite_gradients(rng):  # case 10
    x, w = normal(rng, 65, 300).at[3:5].set(0), jnp.zeros((300, 140))
    dx, dw = jax.jit(lambda x, w: gradients(jax_fp8.dot, x, w))(x, w)
    assert not np.asarray(dx).any()
    close_to(dw, gradients(jnp.dot, x, w)[1])


# ---- transformations -------------------------------------------------------------------------------------------------


def test_jit_equals_eager(rng):
    x, w = normal(rng, 65, 300), normal(rng, 300, 140)
    ct = normal(rng, 65, 140)
    eager = jax.vjp(jax_fp8.dot, x, w)[1](ct)
    assert_same_bits(jax.jit(lambda x, w, ct: jax.vjp(jax_fp8.dot, x, w)[1](ct))(x, w, ct), eager)


def test_jvp_linearize_and_vjp_agree(rng):
    x, w, dx, dw, ct = exact(rng, 5, 130), exact(rng, 130, 7), exact(rng, 5, 130), exact(rng, 130, 7), exact(rng, 5, 7)
    y, t = jax.jvp(jax_fp8.dot, (x, w), (dx, dw))
    expected = jax.jvp(functools.partial(jnp.dot, precision="highest"), (x, w), (dx, dw))
    np.testing.assert_array_equal(y, expected[0])
    np.testing.assert_array_equal(t, expected[1])
    y2, linear = jax.linearize(jax_fp8.dot, x, w)
    assert_same_bits((y2, linear(dx, dw)), (y, t))
    gx, gw = jax.vjp(jax_fp8.dot, x, w)[1](ct)
    forward = np.vdot(np.asarray(t, np.float64), ct)
    assert forward == np.vdot(np.asarray(gx, np.float64), dx) + np.vdot(np.asarray(gw, np.float64), dw)
    transposed = jax.linear_transpose(lambda dx: linear(dx, jnp.zeros_like(dw)), dx)(ct)[0]
    assert_same_bits(transposed, gx)


def test_jacobians_agree(rng):
    x, w = exact(rng, 2, 130), exact(rng, 130, 3)
    for argnum in (0, 1):
        forward = jax.jacfwd(jax_fp8.dot, argnum)(x, w)
        np.testing.assert_array_equal(forward, jax.jacrev(jax_fp8.dot, argnum)(x, w))
        expected = jax.jacfwd(functools.partial(jnp.dot, precision="highest"), argnum)(x, w)
        np.testing.assert_allclose(forward, expected, rtol=2**-22)  # a unit tangent's scale is float32(1 / 448)


def save_anything(prim, *_, **__):
    return True


POLICIES = {
    "nothing": jax.checkpoint_policies.nothing_saveable,
    "everything": jax.checkpoint_policies.everything_saveable,
    "names": jax.checkpoint_policies.save_only_these_names("y"),
    "anything": save_anything,
    "dots": jax.checkpoint_policies.dots_saveable,
    "default": None,
}


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES.keys())
def test_checkpoint(rng, policy):
    """Codes of 256 and more are everywhere (each block's amax is 448); reduce_precision would make them NaN."""
    x, w, v = normal(rng, 65, 300) * 300, normal(rng, 300, 140), normal(rng, 140, 30)
    q = jax_fp8.quantize_weight(w)

    def block(x, w, v):
        y = checkpoint_name(jax_fp8.dot(x, jax_fp8.attach(q, w)), "y")
        return jnp.sum(jnp.sin(jax_fp8.dot(jnp.tanh(y), v)))

    expected = jax.jit(jax.grad(block, (0, 1, 2)))(x, w, v)
    got = jax.jit(jax.grad(jax.checkpoint(block, policy=policy), (0, 1, 2)))(x, w, v)
    for g, e in zip(got, expected, strict=True):
        assert np.isfinite(g).all()
        np.testing.assert_array_equal(g, e)


@pytest.mark.parametrize("remat", [False, True])
def test_gradient_of_a_scan_over_layers(rng, remat):
    x, w = normal(rng, 65, 140), normal(rng, 3, 140, 140)
    q = jax_fp8.quantize_weight(w)

    def layer(x, layer_weights):
        q, w = layer_weights
        return jnp.tanh(jax_fp8.dot(x, jax_fp8.attach(q, w)) * 0.1)

    body = jax.checkpoint(layer) if remat else layer

    def scanned(x, w):
        return jnp.sum(lax.scan(lambda x, qw: (body(x, qw), None), x, (q, w))[0])

    def unrolled(x, w):
        for i in range(3):
            x = layer(x, (jax.tree.map(lambda v: v[i], q), w[i]))  # noqa: B023
        return jnp.sum(x)

    got, expected = (jax.jit(jax.grad(fn, (0, 1)))(x, w) for fn in (scanned, unrolled))
    for g, e in zip(got, expected, strict=True):
        np.testing.assert_allclose(g, e, rtol=1e-5, atol=1e-5 * float(jnp.abs(e).max()))


def test_gradient_inside_a_scan_over_microbatches(rng):
    x, w = normal(rng, 3, 65, 300), normal(rng, 300, 140)
    q = jax_fp8.quantize_weight(w)

    def step(total, x):
        return total + jax.grad(lambda w: loss(jax_fp8.dot, x, jax_fp8.attach(q, w)))(w), None

    total = jax.jit(lambda w: lax.scan(step, jnp.zeros_like(w), x)[0])(w)
    expected = sum(gradients(jax_fp8.dot, x[i], w)[1] for i in range(3))
    np.testing.assert_allclose(total, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0), (1, None), (-1, 1)], ids=str)
def test_vmap_of_gradient_equals_loop(rng, axes):
    full = exact(rng, 3, 65, 130), exact(rng, 3, 130, 70), exact(rng, 3, 65, 70)
    x, w = (v[0] if axis is None else jnp.moveaxis(v, 0, axis) for v, axis in zip(full, axes, strict=False))

    def pulled_back(x, w, ct):
        return jax.vjp(jax_fp8.dot, x, w)[1](ct)

    got = jax.vmap(pulled_back, (*axes, 0))(x, w, full[2])
    expected = stack(
        lambda i: pulled_back(*(v[0] if a is None else v[i] for v, a in zip(full, (*axes, 0), strict=True))), 3
    )
    for g, e in zip(got, expected, strict=True):
        np.testing.assert_array_equal(g, e)


@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0)], ids=str)
def test_gradient_of_vmap(rng, axes):
    x, w = (exact(rng, *(s if a is None else (3, *s))) for s, a in zip(((65, 130), (130, 70)), axes, strict=True))
    ct = exact(rng, 3, 65, 70)
    got = jax.vjp(jax.vmap(jax_fp8.dot, axes), x, w)[1](ct)
    expected = jax.vjp(jax.vmap(functools.partial(jnp.dot, precision="highest"), axes), x, w)[1](ct)
    for g, e in zip(got, expected, strict=True):
        np.testing.assert_array_equal(g, e)


def test_vmap_over_experts_of_quantized_weights(rng):
    x, w, ct = exact(rng, 3, 65, 130), exact(rng, 3, 130, 70), exact(rng, 3, 65, 70)
    q = jax.vmap(jax_fp8.quantize_weight)(w)
    got = jax.vjp(jax.vmap(lambda x, q, w: jax_fp8.dot(x, jax_fp8.attach(q, w))), x, q, w)[1](ct)
    expected = jax.vjp(jax.vmap(functools.partial(jnp.dot, precision="highest")), x, w)[1](ct)
    np.testing.assert_array_equal(got[0], expected[0])
    np.testing.assert_array_equal(got[2], expected[1])


def test_vmap_over_the_master_alone(rng):
    """Codes shared, masters per element: each gets its own gradient."""
    x, w, ct = exact(rng, 65, 130), exact(rng, 130, 70), exact(rng, 3, 65, 70)
    q = jax_fp8.quantize_weight(w)
    masters = jnp.stack([w, w, w])
    got = jax.vmap(lambda m, ct: jax.vjp(lambda m: jax_fp8.dot(x, jax_fp8.attach(q, m)), m)[1](ct)[0])(masters, ct)
    for i in range(3):
        np.testing.assert_array_equal(got[i], np.asarray(x).T.astype(np.float64) @ np.asarray(ct[i], np.float64))


# ---- higher orders ---------------------------------------------------------------------------------------------------


def test_second_derivatives(rng):
    """Where a residual depends on the operand they raise; where none does, they are right."""
    x, w = exact(rng, 2, 130), exact(rng, 130, 3)
    f = functools.partial(loss, jax_fp8.dot)
    for second in (
        lambda: jax.jacfwd(jax.grad(f, 1), 0)(x, w),
        lambda: jax.jacrev(jax.grad(f, 0), 1)(x, w),
        lambda: jax.jit(jax.hessian(f, (0, 1)))(x, w),
    ):
        with pytest.raises(NotImplementedError, match="jax_fp8"):
            second()
    with pytest.raises(NotImplementedError, match=r"jax_fp8\.quantize has no derivative"):
        jax.jacfwd(jax.grad(f, 1), 0)(x, w)
    with pytest.raises(NotImplementedError, match="second derivative with respect to a weight"):
        jax.jacfwd(lambda v: jax.grad(lambda x: f(x, jax_fp8.attach(jax_fp8.quantize_weight(w), v)))(x))(w)


def test_second_derivative_in_one_operand(rng):
    x, w = exact(rng, 2, 130), exact(rng, 130, 3)
    got = jax.hessian(lambda x: jnp.sum(jax_fp8.dot(x, w) ** 2))(x)
    expected = jax.hessian(lambda x: jnp.sum(jnp.dot(x, w, precision="highest") ** 2))(x)
    got, expected = (np.asarray(v, np.float64) for v in (got, expected))
    assert np.linalg.norm(got - expected) <= 0.08 * np.linalg.norm(expected)


# ---- what travels ----------------------------------------------------------------------------------------------------


def test_no_float8_in_any_jaxpr(rng):
    """jax.checkpoint turns saved float8 values of 256 and more into NaN; bytes are left alone."""
    x, w = normal(rng, 65, 300), normal(rng, 300, 140)

    def step(x, w):
        q = jax_fp8.quantize_weight(w)
        return jax.grad(lambda x, w: loss(jax_fp8.dot, x, w) + loss(jax_fp8.dot, x, jax_fp8.attach(q, w)), (0, 1))(x, w)

    seen = {v.aval.dtype for eqn in equations(jax.make_jaxpr(step)(x, w)) for v in (*eqn.invars, *eqn.outvars)}
    assert jnp.dtype(jnp.uint8) in seen
    assert not [d for d in seen if "float8" in str(d)]


def test_residuals_are_bytes(rng):
    x, w = normal(rng, 65, 300), normal(rng, 300, 140)
    _, vjp = jax.vjp(jax_fp8.dot, x, w)
    held = [v for v in jax.tree.leaves(vjp) if v.size > 1000]
    assert held
    assert {v.dtype for v in held} == {jnp.dtype(jnp.uint8)}
    assert sum(v.size for v in held) == x.size + w.size


def products(fn, *args):
    return sum(eqn.primitive.name in ("fp8_dot", "fp8_dgrad", "fp8_wgrad", "fp8_linear_lhs", "fp8_linear_rhs")
               for eqn in equations(jax.make_jaxpr(fn)(*args)))  # fmt: skip


def test_only_the_products_that_are_asked_for(rng):
    x, w = normal(rng, 65, 300), normal(rng, 300, 140)
    f = functools.partial(loss, jax_fp8.dot)
    assert products(f, x, w) == 1
    assert products(jax.grad(f, 0), x, w) == 2
    assert products(jax.grad(f, 1), x, w) == 2
    assert products(jax.grad(f, (0, 1)), x, w) == 3


def test_linear_transpose_says_what_to_do():
    x, w = jnp.ones((4, 128)), jnp.ones((128, 8))
    with pytest.raises(NotImplementedError, match=r"quantisation is none; use jax.vjp"):
        jax.linear_transpose(lambda x: jax_fp8.dot(x, w), x)(jnp.ones((4, 8)))


def test_a_weight_quantised_for_inference_has_no_gradient_and_says_so(rng):
    x, w = normal(rng, 4, 256), normal(rng, 256, 128)
    with pytest.raises(NotImplementedError, match=r"jax_fp8.quantize has no derivative"):
        jax.grad(lambda w: jnp.sum(jax_fp8.dot(x, jax_fp8.quantize_weight(w, for_inference=True))))(w)
    q = jax_fp8.quantize_weight(w, for_inference=True)
    inside = jax.grad(lambda x: jnp.sum(jax_fp8.dot(x, jax_fp8.quantize_weight(w, for_inference=True))))(x)
    np.testing.assert_array_equal(inside, jax.grad(lambda x: jnp.sum(jax_fp8.dot(x, q)))(x))
