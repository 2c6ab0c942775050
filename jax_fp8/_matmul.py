"""blockwise_matmul_p: the product of two block-scaled operands, and its typed front."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.core import ShapedArray
from jax.interpreters import ad, batching, mlir

from jax_fp8 import _compat, _extension
from jax_fp8._block_scaled import BlockScaled, check, dequantize_codes, scales_shape
from jax_fp8._primitive import declare, fold_into_rows, mapped_to_front, unfold_rows, with_batch
from jax_fp8._quantize import QUANTIZABLE, scales_layout

OUT_DTYPES = QUANTIZABLE


def matmul_definition(a: Array, a_scales: Array, b: Array, b_scales: Array, *, rows: int, out_dtype: Any,
                      config: str = "") -> Array:  # fmt: skip
    """Dequantise both in float32, one dot: an operand without batch axes serves every batch element."""
    x = dequantize_codes(a, a_scales, 1)
    y = dequantize_codes(b, b_scales, rows)
    spec = f"{'...' * (a.ndim > 2)}mk,{'...' * (b.ndim > 2)}nk->{'...' * (max(a.ndim, b.ndim) > 2)}mn"
    out = jnp.einsum(spec, x, y, precision=lax.Precision.HIGHEST, preferred_element_type=jnp.float32)
    return out.astype(out_dtype)


def _abstract_eval(a, a_scales, b, b_scales, *, rows, out_dtype, config):
    batch = a.shape[:-2] or b.shape[:-2]
    assert a.shape[-1] == b.shape[-1], (a, b)
    assert {a.shape[:-2], b.shape[:-2]} <= {batch, ()}, (a, b)
    assert a_scales.shape == scales_shape(a.shape, 1), (a, a_scales)
    assert b_scales.shape == scales_shape(b.shape, rows), (b, b_scales)
    return a.update(shape=(*batch, a.shape[-2], b.shape[-2]), dtype=jnp.dtype(out_dtype), weak_type=False)


def _cuda_lowering(ctx, *operands, rows, out_dtype, config):
    if not _extension.use_kernels():
        return _default_lowering(ctx, *operands, rows=rows, out_dtype=out_dtype, config=config)
    a, a_scales, b, b_scales = ctx.avals_in
    row_major = [tuple(range(x.ndim - 1, -1, -1)) for x in (a, b, ctx.avals_out[0])]
    layouts = [row_major[0], scales_layout(a_scales.ndim, 1), row_major[1], scales_layout(b_scales.ndim, rows)]
    # TMA needs 16-byte rows: another k is copied once into scratch that XLA plans as a second result
    scratch = ShapedArray((_extension.scratch_bytes(a.shape, b.shape),), jnp.dtype(jnp.uint8))
    rule = jax.ffi.ffi_lowering(_extension.MATMUL_TARGET, operand_layouts=layouts, result_layouts=[row_major[2], (0,)])
    ctx = ctx.replace(avals_out=[*ctx.avals_out, scratch])
    return rule(ctx, *operands, rows_per_b_scale=np.int64(rows), config=config)[:1]


def _batch(args, dims, **params):
    size = next(x.shape[d] for x, d in zip(args, dims, strict=True) if d is not None)
    (a, a_scales), a_mapped = mapped_to_front(size, args[:2], dims[:2])
    (b, b_scales), b_mapped = mapped_to_front(size, args[2:], dims[2:])
    a_batch, b_batch = a.shape[int(a_mapped) : -2], b.shape[int(b_mapped) : -2]  # before this vmap
    if a_mapped and not b_mapped and b_batch:  # never repeat weights: the mapped axis joins the rows of a
        if not a_batch:
            a, a_scales = (with_batch(x, b_batch, lead=1) for x in (a, a_scales))
        y = blockwise_matmul_p.bind(fold_into_rows(a), fold_into_rows(a_scales), b, b_scales, **params)
        return unfold_rows(y, size, a.shape[-2])
    if b_mapped and a_batch and not a_mapped:
        a, a_scales = (with_batch(x, (size,)) for x in (a, a_scales))
        a_mapped = True
    if a_mapped and b_mapped and a_batch and not b_batch:  # the batch axes of a are rows to each b
        m = math.prod(a_batch) * a.shape[-2]
        shape = (size, *a_batch, a.shape[-2], b.shape[-2])
        a, a_scales = (x.reshape(size, m, x.shape[-1]) for x in (a, a_scales))
        return blockwise_matmul_p.bind(a, a_scales, b, b_scales, **params).reshape(shape), 0
    if a_mapped and b_mapped and b_batch and not a_batch:
        a, a_scales = (with_batch(x, b_batch, lead=1) for x in (a, a_scales))
    return blockwise_matmul_p.bind(a, a_scales, b, b_scales, **params), 0


def _jvp(primals, tangents, **params):
    raise NotImplementedError(
        "jax_fp8.blockwise_matmul has no derivative with respect to scales or codes; differentiate jax_fp8.dot(x, q), "
        "with respect to x and to the array attached to q"
    )


blockwise_matmul_p = declare("fp8_blockwise_matmul", matmul_definition, _abstract_eval)
_default_lowering = mlir.lower_fun(matmul_definition, multiple_results=False)
mlir.register_lowering(blockwise_matmul_p, _cuda_lowering, platform="cuda")
ad.primitive_jvps[blockwise_matmul_p] = _jvp
batching.primitive_batchers[blockwise_matmul_p] = _batch


def blockwise_matmul(a: BlockScaled, b: BlockScaled, out_dtype: Any = jnp.bfloat16, *, config: str = "") -> Array:
    """Multiplies block-scaled operands: `a.dequantize() @ b.dequantize().mT`, summed in float32.

        out[m, n] = sum over kb of a_scales[m, kb] * b_scales[n // r, kb] * sum_{k in kb} a[m, k] * b[n, k]

    Args:
      a: (..., m, k) in 1x128 blocks along k.
      b: (..., n, k) in 128x128 blocks (r = 128) or 1x128 blocks along k (r = 1). The leading axes of a and b are
        equal, or one of them has none and serves every batch element.
      out_dtype: bfloat16, float16 or float32.
      config: name of the kernel configuration to run on a GPU, such as "128x256"; default: the cheapest by the cost
        model. `explain` shows what was chosen.

    Returns:
      (..., m, n). k = 0 gives zeros. Same inputs and device: same bits.

    Raises:
      TypeError, ValueError: another type, rank, block or shape; the message says which.

    Within `jax_fp8.testing.matmul_bound` of the float64 value of the dequantised operands. Source: DeepSeek-V3,
    arXiv 2412.19437, section 3.3.
    """
    for name, q in (("a", a), ("b", b)):
        if not isinstance(q, BlockScaled):
            raise TypeError(
                f"blockwise_matmul: {name} must be a BlockScaled, got {type(q).__name__}; see jax_fp8.quantize"
            )
        check(q, "blockwise_matmul", name)
        if q.swapped:
            raise ValueError(f"blockwise_matmul: {name} {q.shape} has its blocks along the first axis; pass {name}.T")
    if a.rows_per_scale != 1:
        raise ValueError(f"blockwise_matmul: a must be in (1, 128) blocks, got {a.block}")
    if a.shape[-1] != b.shape[-1]:
        raise ValueError(f"blockwise_matmul: a {a.shape} and b {b.shape} must have the same k (last axis)")
    if a.ndim > 2 and b.ndim > 2 and a.shape[:-2] != b.shape[:-2]:
        raise ValueError(f"blockwise_matmul: leading axes of a {a.shape} and b {b.shape} must be equal")
    if jnp.dtype(out_dtype) not in OUT_DTYPES:
        raise TypeError(f"blockwise_matmul: out_dtype must be bfloat16, float16 or float32, got {jnp.dtype(out_dtype)}")
    names = _extension.host.config_names(b.rows_per_scale, jnp.dtype(out_dtype).name)
    if config and config not in names:
        raise ValueError(f"blockwise_matmul: config must be one of {names} for b in {b.block} blocks, got {config!r}")
    with jax.named_scope("jax_fp8.blockwise_matmul"):
        return matmul_codes((a.codes, a.scales), (b.codes, b.scales), b.rows_per_scale, out_dtype, config)


def matmul_codes(a: Sequence[Array], b: Sequence[Array], rows: int, out_dtype: Any, config: str = "") -> Array:
    """The product of (codes, scales) pairs: the form the other primitives are written in."""
    operands = _compat.vary_together(*a, *b)
    return blockwise_matmul_p.bind(*operands, rows=rows, out_dtype=jnp.dtype(out_dtype), config=config)
