"""The differentiable product: `fp8_dot_p`, and the linear primitives its derivatives are made of.

With Q a quantisation in 1x128 blocks along the contracted axis and W the weight's own quantisation,

    forward   y  = Q(x) W                       fp8_dot
    tangent   y' = Q(x') W  +  Q_tokens(x) Q(w')   fp8_linear_lhs, fp8_linear_rhs
    dgrad     x_ = Q(y_) W^T                    fp8_dgrad: the same quantised weight, transposed
    wgrad     w_ = Q_tokens(x)^T Q_tokens(y_)   fp8_wgrad: blocks along the tokens for both

(DeepSeek-V3, arXiv 2412.19437, section 3.3). Each tangent is linear in one operand and has FP8 residuals: codes as
uint8 (jax.checkpoint would turn float8 values of 256 and more into NaN) and float32 scales. dgrad is the transpose of
linear_lhs, wgrad of linear_rhs, and back, so grad, jvp, linearize and remat all work; a derivative of a residual
raises.

x is (*batch, m, k). The weight is stored (*batch, n, k) (w_axis = -1, the contracted axis) or (*batch, k, n)
(w_axis = -2). x and w have the same batch axes; codes may have none and then serve every batch element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax import Array, lax
from jax.interpreters import ad, batching

from jax_fp8 import _compat
from jax_fp8._block_scaled import BlockScaled
from jax_fp8._matmul import matmul_codes
from jax_fp8._primitive import (
    declare,
    fold_into_rows,
    is_zero,
    mapped_to_front,
    unfold_rows,
    with_batch,
    zero_tangent,
)
from jax_fp8._quantize import other_orientation, quantize_along

# ---- linear primitives: operand 0 is linear, operands 1 and 2 are the residual -------------------------------------


def _quantize_cotangent(ct: Array, axis: int, shared: bool) -> list[Array]:
    """ct along one axis. dgrad and wgrad of one product ask for the same two-way quantisation, which XLA merges."""
    if not shared:
        return quantize_along(ct, axis)
    both = quantize_along(ct, -1, -2)
    return both[:2] if axis == -1 else both[2:]


def _linear_lhs(dx, wt, wt_scales, *, rows, shared, out_dtype, **_):
    """dx (m, k), transposed weight (k, n) -> (m, n)."""
    return matmul_codes(quantize_along(dx, -1), other_orientation(wt, wt_scales, rows), rows, out_dtype)


def _dgrad(ct, wt, wt_scales, *, rows, shared, out_dtype, **_):
    """ct (m, n), transposed weight (k, n) -> (m, k)."""
    return matmul_codes(_quantize_cotangent(ct, -1, shared), (wt, wt_scales), rows, out_dtype)


def _linear_rhs(dw, xt, xt_scales, *, rows, shared, out_dtype, w_axis):
    """dw (n, k) or (k, n), x along its tokens (k, m) -> (m, n)."""
    x = other_orientation(xt, xt_scales, 1)
    return matmul_codes(x, quantize_along(dw, w_axis, rows=rows), rows, out_dtype)


def _wgrad(ct, xt, xt_scales, *, rows, shared, out_dtype, w_axis):
    """ct (m, n), x along its tokens (k, m) -> (n, k) or (k, n), as the weight is stored."""
    x: Sequence[Array] = (xt, xt_scales)
    ctt = _quantize_cotangent(ct, -2, shared)
    a, b = (ctt, x) if w_axis == -1 else (x, ctt)
    return matmul_codes(a, b, 1, out_dtype)


def _declare_linear(name: str, definition: Callable[..., Any], shape: Callable[..., Any]) -> Any:
    def abstract_eval(t, residual, scales, *, out_dtype, w_axis, **_):
        return t.update(shape=shape(t.shape, residual.shape, w_axis), dtype=jnp.dtype(out_dtype), weak_type=False)

    def jvp(primals, tangents, **params):
        y, t = p.bind(*primals, **params), tangents[0]
        return y, zero_tangent(y) if is_zero(t) else p.bind(t, *primals[1:], **params)

    def batch(args, dims, **params):
        size = next(x.shape[d] for x, d in zip(args, dims, strict=True) if d is not None)
        residual, mapped = mapped_to_front(size, args[1:], dims[1:])
        (t,), t_mapped = mapped_to_front(size, args[:1], dims[:1])
        if not t_mapped:
            t = with_batch(t, (size,))
        if not mapped and residual[0].ndim > 2:
            if p in (linear_lhs_p, dgrad_p):  # as in the forward product: weights are never repeated
                return unfold_rows(p.bind(fold_into_rows(t), *residual, **params), size, t.shape[-2])
            residual = [with_batch(r, (size,)) for r in residual]
        if mapped and residual[0].ndim < t.ndim:
            residual = [with_batch(r, t.shape[1:-2], lead=1) for r in residual]
        return p.bind(t, *residual, **params), 0

    p = declare(name, definition, abstract_eval)
    ad.primitive_jvps[p], batching.primitive_batchers[p] = jvp, batch
    return p


linear_lhs_p = _declare_linear("fp8_linear_lhs", _linear_lhs, lambda t, r, w_axis: (*t[:-1], r[-1]))
dgrad_p = _declare_linear("fp8_dgrad", _dgrad, lambda t, r, w_axis: (*t[:-1], r[-2]))
linear_rhs_p = _declare_linear("fp8_linear_rhs", _linear_rhs, lambda t, r, w_axis: (*t[:-2], r[-1], t[-3 - w_axis]))
wgrad_p = _declare_linear(
    "fp8_wgrad", _wgrad, lambda t, r, w_axis: (*t[:-2], t[-1], r[-2]) if w_axis == -1 else (*t[:-2], r[-2], t[-1])
)


def _transposes_to(p: Any) -> Callable[..., Any]:
    def transpose(ct, t, residual, scales, *, out_dtype, **params):
        if is_zero(ct):
            return [ad.Zero(t.aval), None, None]
        return [p.bind(ct, residual, scales, out_dtype=t.aval.dtype, **params), None, None]

    return transpose


for _p, _transposed in (
    (linear_lhs_p, dgrad_p),
    (dgrad_p, linear_lhs_p),
    (linear_rhs_p, wgrad_p),
    (wgrad_p, linear_rhs_p),
):
    ad.primitive_transposes[_p] = _transposes_to(_transposed)


# ---- guard ---------------------------------------------------------------------------------------------------------


def _guard_jvp(primals, tangents):
    if not all(map(is_zero, tangents)):
        raise NotImplementedError(
            "jax_fp8.dot: second derivative with respect to a weight whose quantised form is a residual; "
            "residuals are FP8 and have no derivative"
        )
    scales = guard_p.bind(*primals)
    return scales, zero_tangent(scales)


def _guard_batch(args, dims):
    scales, w = args
    return guard_p.bind(scales, w), dims[0]  # w is only a tangent's carrier: its batch axis is no matter


guard_p = declare("fp8_guard", lambda scales, w: scales, lambda scales, w: scales)
ad.primitive_jvps[guard_p], batching.primitive_batchers[guard_p] = _guard_jvp, _guard_batch


# ---- the product ---------------------------------------------------------------------------------------------------
# Operands: x codes, x scales, weight codes (n, k), weight scales; then x and w themselves, which the lowering never
# reads: they carry the tangents. `given`: the weight came quantised; codes (k, n) and their scales may follow.


def _dot(xq, xs, wq, ws, x, w, *wt, rows, out_dtype, **_):
    return matmul_codes((xq, xs), (wq, ws), rows, out_dtype)


def _dot_abstract_eval(xq, xs, wq, ws, x, w, *wt, out_dtype, **_):
    return x.update(shape=(*x.shape[:-1], wq.shape[-2]), dtype=jnp.dtype(out_dtype), weak_type=False)


def _dot_jvp(primals, tangents, *, given, rows, w_axis, **params):
    xq, xs, wq, ws, x, w, *wt = primals
    dx, dw = tangents[4:6]
    shared = not is_zero(dx) and not is_zero(dw)
    linear = {"rows": rows, "w_axis": w_axis, "shared": shared}
    residual_w: Sequence[Array] | None = None
    if not is_zero(dx) and not given:
        wq, ws, *residual_w = quantize_along(w, w_axis, -3 - w_axis, rows=rows)
    elif not is_zero(dx):
        codes, scales = wt or other_orientation(wq, ws, rows)
        residual_w = (codes, guard_p.bind(scales, w))
    if not is_zero(dw):
        xq, xs, *residual_x = quantize_along(x, -1, -2)
    y = dot_p.bind(xq, xs, wq, ws, x, w, *wt, given=given, rows=rows, w_axis=w_axis, **params)
    t = None
    if residual_w is not None:
        t = linear_lhs_p.bind(dx, *residual_w, out_dtype=y.dtype, **linear)
    if not is_zero(dw):
        u = linear_rhs_p.bind(dw, *residual_x, out_dtype=y.dtype, **linear)
        t = u if t is None else t + u
    return y, zero_tangent(y) if t is None else t


def _dot_batch(args, dims, **params):
    size = next(x.shape[d] for x, d in zip(args, dims, strict=True) if d is not None)
    xq, xs, wq, ws, x, w, *wt = args
    d = dims
    (xq, xs, x), x_mapped = mapped_to_front(size, (xq, xs, x), (d[0], d[1], d[4]))
    (wq, ws, w, *wt), w_mapped = mapped_to_front(size, (wq, ws, w, *wt), (d[2], d[3], d[5], *d[6:]))
    batch = x.shape[int(x_mapped) : -2]
    if x_mapped and batch and xq.ndim == 3:
        xq, xs = (with_batch(v, batch, lead=1) for v in (xq, xs))
    if not w_mapped:  # a batch over activations folds into m: weights are never repeated
        y = dot_p.bind(*map(fold_into_rows, (xq, xs)), wq, ws, fold_into_rows(x), w, *wt, **params)
        return unfold_rows(y, size, x.shape[-2])
    if not x_mapped:
        x = with_batch(x, (size,))
        if xq.ndim > 2:
            xq, xs = (with_batch(v, (size,)) for v in (xq, xs))
    return dot_p.bind(xq, xs, wq, ws, x, w, *wt, **params), 0


def _dot_transpose(ct, *operands, **params):
    raise NotImplementedError(
        "jax_fp8.dot: jax.linear_transpose needs a linear function, and quantisation is none; use jax.vjp, or "
        "jax.linear_transpose of the second result of jax.linearize"
    )


dot_p = declare("fp8_dot", _dot, _dot_abstract_eval)
ad.primitive_jvps[dot_p], batching.primitive_batchers[dot_p] = _dot_jvp, _dot_batch
ad.primitive_transposes[dot_p] = _dot_transpose


def dot_arrays(x: Array, w: Array, w_axis: int, rows: int, out_dtype: Any, precision: Any) -> Array:
    """x (*batch, m, k) times an array w (*batch, n, k) or (*batch, k, n), both quantised here."""
    x, w = _compat.vary_together(x, w)
    q = (*quantize_along(lax.stop_gradient(x), -1), *quantize_along(lax.stop_gradient(w), w_axis, rows=rows))
    return dot_p.bind(*q, x, w, given=False, rows=rows, w_axis=w_axis, out_dtype=out_dtype, precision=precision)


def dot_quantized(x: Array, q: BlockScaled, out_dtype: Any, precision: Any) -> Array:
    """x (*batch, m, k) times a quantised weight whose codes are (*batch, n, k)."""
    w = q.codes if q.master is None else q.master  # codes have no tangent: then only x is differentiated
    w_axis = -2 if q.master is not None and q.master_swapped else -1
    x, codes, scales, w, *wt = _compat.vary_together(x, q.codes, q.scales, w, *(q.transposed or ()))
    operands = (*quantize_along(lax.stop_gradient(x), -1), codes, scales, x, w, *wt)
    return dot_p.bind(
        *operands, given=True, rows=q.rows_per_scale, w_axis=w_axis, out_dtype=out_dtype, precision=precision
    )
