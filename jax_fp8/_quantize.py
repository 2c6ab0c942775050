"""Quantisation: the numeric definition, its primitive, and the public quantisers.

One primitive makes every orientation a training step needs from one read of its input: codes are always contiguous
along the axis that will be contracted, whichever axis of the input that is.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.core import ShapedArray
from jax.interpreters import ad, batching, mlir
from jax.sharding import PartitionSpec

from jax_fp8 import _compat, _extension
from jax_fp8._block_scaled import (
    E4M3,
    SCALE_BLOCK,
    BlockScaled,
    dequantize_codes,
    num_blocks,
    rows_per_scale_of,
    scales_shape,
)
from jax_fp8._primitive import declare, is_zero, zero_tangent

FP8_MAX = 448.0  # largest finite e4m3fn
INV_FP8_MAX = np.uint32(0x3B124925).view(np.float32)  # float32(1 / 448): a multiplication is the same on every platform
FLT_MIN = np.finfo(np.float32).tiny
QUANTIZABLE = tuple(jnp.dtype(t) for t in (jnp.float32, jnp.bfloat16, jnp.float16))
SCALE_ROUNDINGS = ("none", "power_of_two")


# ---- definition ----------------------------------------------------------------------------------------------------


def _scales_of(amax_bits: Array, scale_rounding: str) -> Array:
    amax = lax.bitcast_convert_type(amax_bits, jnp.float32)
    if scale_rounding == "power_of_two":  # from amax's own bits: 448 = 1.75 * 2**8, so 2**(e - 8), one more above 1.75
        exponent = (amax_bits >> 23).astype(jnp.int32) - 8 + ((amax_bits & 0x7FFFFF) > 0x600000).astype(jnp.int32)
        scale = lax.bitcast_convert_type(jnp.maximum(exponent, 1).astype(jnp.uint32) << 23, jnp.float32)
    else:
        scale = jnp.maximum(amax * INV_FP8_MAX, FLT_MIN)
    return jnp.where(amax < jnp.inf, scale, jnp.nan)  # NaN compares false, too


def quantize_definition(x: Array, *, rows: int, axes: tuple[int, ...], scale_rounding: str) -> list[Array]:
    """For each contracted axis (-1 or -2) of x (*batch, r, c): codes contiguous along it, and their scales."""
    x = x.astype(jnp.float32)
    x = jnp.where(jnp.abs(x) < FLT_MIN, 0.0, x)  # subnormals count as zero: XLA's CPU code flushes them
    results = []
    for axis in axes:
        y = x if axis == -1 else jnp.swapaxes(x, -1, -2)
        *batch, r, k = y.shape
        rb, kb = num_blocks(r, rows), num_blocks(k)
        pad = [(0, 0)] * len(batch) + [(0, rb * rows - r), (0, kb * SCALE_BLOCK - k)]
        blocks = jnp.pad(y, pad).reshape(*batch, rb, rows, kb, SCALE_BLOCK)
        # magnitudes as integers: NaN > inf > finite. XLA's float maximum on CPUs may lose a NaN
        magnitudes = lax.bitcast_convert_type(jnp.abs(blocks), jnp.uint32)
        scales = _scales_of(jnp.max(magnitudes, axis=(-3, -1), initial=0), scale_rounding)
        spread = scales[..., :, None, :, None]
        codes = jnp.clip(blocks * (1.0 / spread), -FP8_MAX, FP8_MAX).astype(jnp.float8_e4m3fn)
        codes = jnp.where(jnp.isnan(spread), jnp.uint8(0x7F), lax.bitcast_convert_type(codes, jnp.uint8))
        results += [codes.reshape(*batch, rb * rows, kb * SCALE_BLOCK)[..., :r, :k], scales]
    return results


# ---- primitive -----------------------------------------------------------------------------------------------------


def _abstract_eval(x, *, rows, axes, scale_rounding):
    assert x.ndim >= 2, x
    assert x.dtype in QUANTIZABLE, x
    *batch, r, c = x.shape
    results = []
    for axis in axes:
        shape = (*batch, r, c) if axis == -1 else (*batch, c, r)
        results += [x.update(shape=shape, dtype=jnp.dtype(jnp.uint8), weak_type=False)]
        results += [x.update(shape=scales_shape(shape, rows), dtype=jnp.dtype(jnp.float32), weak_type=False)]
    return results


def scales_layout(ndim: int, rows: int) -> tuple[int, ...]:
    """Minor-to-major layout of scales (*batch, r, kb) on the GPU: r contiguous for 1x128, else row-major."""
    if rows == SCALE_BLOCK:
        return tuple(range(ndim - 1, -1, -1))
    return (*range(ndim - 2, -1, -1), ndim - 1)


def _cuda_lowering(ctx, x, *, rows, axes, scale_rounding):
    if not _extension.use_kernels():
        return _default_lowering(ctx, x, rows=rows, axes=axes, scale_rounding=scale_rounding)
    # a transpose of the input is read through: the kernel has both orientations
    x, transposed = _compat.skip_transpose(x)
    aval = ctx.avals_in[0]
    if transposed:
        *batch, r, c = aval.shape
        ctx = ctx.replace(avals_in=[ShapedArray((*batch, c, r), aval.dtype)])
    along = tuple(-3 - axis for axis in axes) if transposed else axes
    layouts = []
    for codes, scales in zip(ctx.avals_out[::2], ctx.avals_out[1::2], strict=True):
        layouts += [tuple(range(codes.ndim - 1, -1, -1)), scales_layout(scales.ndim, rows)]
    rule = jax.ffi.ffi_lowering(_extension.QUANTIZE_TARGET, result_layouts=layouts)
    return rule(
        ctx,
        x,
        rows_per_scale=np.int64(rows),
        first_axis=np.int64(along[0]),
        num_axes=np.int64(len(axes)),
        power_of_two=np.bool_(scale_rounding == "power_of_two"),
    )


def _jvp(primals, tangents, **params):
    if not is_zero(tangents[0]):
        raise NotImplementedError(
            "jax_fp8.quantize has no derivative: FP8 bytes carry none. Differentiate through jax_fp8.dot(x, w), or "
            "through jax_fp8.attach(q, w) for a weight quantised before. A second derivative of jax_fp8.dot meets "
            "this error as well, since its residuals are FP8."
        )
    results = quantize_p.bind(*primals, **params)
    return results, [zero_tangent(r) for r in results]


def _batch(args, dims, **params):
    (x,) = args
    results = quantize_p.bind(jnp.moveaxis(x, dims[0], 0), **params)
    return results, [0] * len(results)


quantize_p = declare("fp8_quantize", quantize_definition, _abstract_eval, multiple_results=True)
_default_lowering = mlir.lower_fun(quantize_definition, multiple_results=True)
# not cacheable: the rule looks at the operation that made its operand
mlir.register_lowering(quantize_p, _cuda_lowering, platform="cuda", cacheable=False)
ad.primitive_jvps[quantize_p] = _jvp
batching.primitive_batchers[quantize_p] = _batch


def quantize_along(x: Array, *axes: int, rows: int = 1, scale_rounding: str = "none") -> list[Array]:
    """(codes, scales) for each of `axes`, flat: the form the other primitives are written in."""
    bind = partial(quantize_p.bind, rows=rows, axes=axes, scale_rounding=scale_rounding)
    shardings = [s for axis in axes for s in _explicit_shardings(x, axis, rows)]
    return _compat.in_auto_axes(bind, shardings if all(shardings) else None)(x)


def _explicit_shardings(x: Array, axis: int, rows: int) -> tuple[Any, Any]:
    """Of codes and scales, where mesh axes are Explicit: as x, but no shard of scales cuts a block. Else None, None."""
    codes = _compat.sharding_of(x, swap=axis == -2)
    if codes is None:
        return None, None
    extents = x.shape[-2:] if axis == -1 else x.shape[:-3:-1]
    kept = [
        spec if extent % (_compat.shards(codes, i) * size) == 0 else None
        for spec, extent, i, size in zip(codes.spec[-2:], extents, (-2, -1), (rows, SCALE_BLOCK), strict=True)
    ]
    return codes, codes.update(spec=PartitionSpec(*codes.spec[:-2], *kept))


def other_orientation(codes: Array, scales: Array, rows: int) -> tuple[Array, Array]:
    """Codes (rows, k) as codes (k, rows): a transposition for 128x128 blocks, for 1x128 a second quantisation."""
    if rows == SCALE_BLOCK:
        return jnp.swapaxes(codes, -1, -2), jnp.swapaxes(scales, -1, -2)
    codes, scales = quantize_along(dequantize_codes(codes, scales, rows), -2, rows=rows)
    return codes, scales


# ---- public --------------------------------------------------------------------------------------------------------


def quantize(x: Any, block: tuple[int, int] = (1, 128), *, scale_rounding: str = "none",
             dtype: Any = jnp.float8_e4m3fn) -> BlockScaled:  # fmt: skip
    """Quantises x (..., r, k) to FP8 with one float32 scale per block.

    With `amax` the largest magnitude of a block,

        scale = max(amax * float32(1 / 448), FLT_MIN);  values = e4m3(clip(x * (1 / scale), -448, 448))

    in float32 from x's own dtype, rounded to nearest even. All-zero blocks give zeros and a positive scale. A block
    that holds NaN or infinity gets scale NaN and only NaN values; no other block changes. float32 subnormals count as
    zero.

    Args:
      x: float32, bfloat16 or float16, (..., r, k); r and k of any extent, the last blocks may be short.
      block: (1, 128) for activations, (128, 128) for weights.
      scale_rounding: "none", or "power_of_two": the smallest power of two >= amax / 448, values quantised with that.
      dtype: float8_e4m3fn.

    Returns:
      BlockScaled of shape x.shape: values, and scales float32 (..., ceil(r / block[0]), ceil(k / 128)).

    Raises:
      TypeError: another dtype of x or of the result. ValueError: fewer than two axes, another block or rounding.
      NotImplementedError: when differentiated.

    Same bytes on every platform. Source: DeepSeek-V3, arXiv 2412.19437, section 3.3.
    """
    rows, x = _checked("quantize", x, block, scale_rounding, dtype)
    codes, scales = quantize_along(x, -1, rows=rows, scale_rounding=scale_rounding)
    return BlockScaled._make(codes, scales, rows)


def quantize_weight(w: Any, *, for_inference: bool = False) -> BlockScaled:
    """Quantises a weight w (..., k, n), as used in `x @ w`, once for all its uses.

    128x128 blocks, stored (..., n, k), the order products read. Unless `for_inference`, the result also holds the other
    orientation, which the gradient with respect to x reads (one more byte an element, from the same read of w), and w
    itself as `master`, with respect to which it can be differentiated. An (n, k) weight is quantised as
    `quantize_weight(w.T)`: no transposition runs.

    Args:
      w: float32, bfloat16 or float16 (..., k, n).
      for_inference: keep one orientation and no master.

    Returns:
      BlockScaled of shape w.shape, for `dot(x, q)`.

    Raises:
      NotImplementedError: with `for_inference`, when differentiated.
    """
    _, w = _checked("quantize_weight", w, (SCALE_BLOCK, SCALE_BLOCK), "none", E4M3)
    axes = (-2,) if for_inference else (-2, -1)
    source = w if for_inference else lax.stop_gradient(w)  # the master carries the gradient; without one: an error
    codes, scales, *other = quantize_along(source, *axes, rows=SCALE_BLOCK)
    q = BlockScaled._make(codes, scales, SCALE_BLOCK, transposed=tuple(other) or None, swapped=True)
    return q if for_inference else attach(q, w)


def attach(q: BlockScaled, w: Any) -> BlockScaled:
    """`q` with `w` as the array its gradient belongs to: quantise once outside of a loop, differentiate inside.

        q = quantize_weight(w)
        jax.grad(lambda w: loss(dot(x, attach(q, w))))(w)    # the same gradient as of loss(dot(x, w))

    Args:
      q: quantised from w (not checked: only the shapes must agree).
      w: array of q's logical shape; its values are never read.

    Raises:
      TypeError: q is no BlockScaled, or w no float array. ValueError: shapes differ.
    """
    if not isinstance(q, BlockScaled):
        raise TypeError(f"attach: q must be a BlockScaled, got {type(q).__name__}")
    w = jnp.asarray(w)
    if w.dtype not in QUANTIZABLE:
        raise TypeError(f"attach: w must be float32, bfloat16 or float16, got {w.dtype}")
    if w.shape != q.shape:
        raise ValueError(f"attach: w has shape {w.shape}; q has shape {q.shape}")
    return q._replace(master=w, master_swapped=q.swapped)


def _checked(op: str, x: Any, block: Any, scale_rounding: str, dtype: Any) -> tuple[int, Array]:
    rows = rows_per_scale_of(block, op)
    if isinstance(x, BlockScaled):
        raise TypeError(f"{op}: x is quantised already ({x!r})")
    x = jnp.asarray(x)
    if x.dtype not in QUANTIZABLE:
        raise TypeError(f"{op}: x must be float32, bfloat16 or float16, got {x.dtype}")
    if x.ndim < 2:
        raise ValueError(f"{op}: x needs at least 2 axes (rows, k), got shape {x.shape}; use x[None]")
    if scale_rounding not in SCALE_ROUNDINGS:
        raise ValueError(f"{op}: scale_rounding must be one of {SCALE_ROUNDINGS}, got {scale_rounding!r}")
    if jnp.dtype(dtype) != E4M3:
        raise TypeError(f"{op}: dtype must be float8_e4m3fn, got {jnp.dtype(dtype)}")
    return rows, x
