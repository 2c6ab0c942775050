"""dot, matmul, einsum and dot_general: the drop-ins for their jax.numpy and jax.lax namesakes."""

from __future__ import annotations

import math
import numbers
import re
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jax_fp8 import _compat
from jax_fp8._autodiff import dot_arrays, dot_quantized
from jax_fp8._block_scaled import SCALE_BLOCK, BlockScaled, check
from jax_fp8._matmul import OUT_DTYPES
from jax_fp8._quantize import QUANTIZABLE, other_orientation

DimensionNumbers = Any


def dot(
    x: Any, w: Any, *, precision: Any = None, preferred_element_type: Any = None, out_sharding: Any = None
) -> Array:
    """jnp.dot in blockwise FP8: x in 1x128 blocks and w in 128x128 blocks along the contracted axis, summed in float32.

    Ranks, broadcasting, promotion and result dtype are jnp.dot's. Products of float32, bfloat16 and float16 (after
    promotion) run in FP8, quantised from each operand's own dtype; scalars and all other dtypes do what jnp.dot does.

    Args:
      x: array (..., k), or a scalar.
      w: array (..., k, n) or (k,), or a `BlockScaled` of that shape (see `quantize_weight`); a quantised (n, k) weight
        is used as `dot(x, q.T)`.
      precision: accepted as by jnp.dot; has no effect on a product in FP8.
      preferred_element_type: dtype of the result; default the promoted dtype (for a BlockScaled w: x's dtype).
      out_sharding: as in jnp.dot.

    Returns:
      As jnp.dot: (..., n), or (*x.shape[:-1], *w.shape[:-2], n).

    Raises:
      TypeError: float8 arrays (their scales are missing: use BlockScaled). ValueError, TypeError: what jnp.dot raises.

    Differentiable with respect to x, w and the master of a BlockScaled, by the recipe of DeepSeek-V3 (arXiv 2412.19437,
    section 3.3): the gradient of x uses the same quantised weight; the gradient of w quantises x and the cotangent in
    1x128 blocks along the tokens. Gradients have the dtype of their operand. Deterministic.

    No transposition runs for w stored (k, n). One stored (n, k) costs none as `dot(x, w.T)`, but its gradient one;
    `einsum("mk,nk->mn", x, w)` needs none in either direction.
    """
    kwargs = _options(precision, preferred_element_type, out_sharding)
    with jax.named_scope("jax_fp8.dot"):
        if isinstance(w, BlockScaled):
            return _dot_block_scaled("dot", "x", "w", x, w, **kwargs)
        x, w = _array("dot", "x", x), _array("dot", "w", w)
        out = jax.eval_shape(partial(jnp.dot, **kwargs), x, w)  # jnp.dot's own result type, and its errors
        if not _runs_in_fp8(x, w) or 0 in (x.ndim, w.ndim):
            return jnp.dot(x, w, **kwargs)
        contract = ((x.ndim - 1,), (max(w.ndim - 2, 0),))
        return _product(x, w, (contract, ((), ())), out, kwargs["precision"], out_sharding)


def matmul(
    x: Any, w: Any, *, precision: Any = None, preferred_element_type: Any = None, out_sharding: Any = None
) -> Array:
    """jnp.matmul in blockwise FP8: w of one or two axes as in `dot`, batches of w as in `dot_general`."""
    kwargs = _options(precision, preferred_element_type, out_sharding)
    if isinstance(w, BlockScaled):
        if w.ndim > 2:
            raise NotImplementedError(f"matmul: w must be a matrix, got {w!r}; use jax.vmap over dot")
        with jax.named_scope("jax_fp8.matmul"):
            return _dot_block_scaled("matmul", "x", "w", x, w, **kwargs)
    x, w = _array("matmul", "x", x), _array("matmul", "w", w)
    out = jax.eval_shape(partial(jnp.matmul, **kwargs), x, w)
    if not _runs_in_fp8(x, w):
        return jnp.matmul(x, w, **kwargs)
    if w.ndim <= 2:
        return dot(x, w, **kwargs)
    x = x[None] if x.ndim == 1 else x
    batch = jnp.broadcast_shapes(x.shape[:-2], w.shape[:-2])
    x, w = (jnp.broadcast_to(v, (*batch, *v.shape[-2:])) for v in (x, w))
    axes = tuple(range(len(batch)))
    dims = (((x.ndim - 1,), (w.ndim - 2,)), (axes, axes))
    with jax.named_scope("jax_fp8.matmul"):
        return _product(x, w, dims, out, kwargs["precision"], out_sharding)


def einsum(subscripts: str, *operands: Any, **kwargs: Any) -> Array:
    """jnp.einsum with every contraction of two operands done by `dot_general`. Arguments as jnp.einsum.

    Of two operands the first is in 1x128 blocks and the second in 128x128 blocks, as in `dot`. Where the result's axes
    are not those of the first, then of the second, as in "mk,kn->nm", it is transposed. Of more operands each
    contraction's roles are those that jnp.einsum finds.
    """
    for i, operand in enumerate(operands):
        if hasattr(operand, "dtype"):
            _array("einsum", f"operand {i}", operand)
    ordered = _in_order_of_operands(subscripts, operands) if kwargs.get("out_sharding") is None else None
    subscripts, axes = ordered or (subscripts, None)
    out = jnp.einsum(subscripts, *operands, _dot_general=dot_general, **kwargs)
    return out if axes is None else jnp.transpose(out, axes)


def _in_order_of_operands(subscripts: Any, operands: tuple[Any, ...]) -> tuple[str, list[int]] | None:
    """Where jnp.einsum would exchange two operands: subscripts for which it doesn't, and the transposition behind."""
    if not isinstance(subscripts, str) or len(operands) != 2:
        return None
    inputs, arrow, result = subscripts.replace(" ", "").partition("->")
    if inputs.count(",") != 1:
        return None
    lhs, rhs, wanted = (re.findall(r"\.\.\.|.", part) for part in (*inputs.split(","), result))
    if not arrow:
        once = sorted(axis for axis in {*lhs, *rhs} - {"..."} if [*lhs, *rhs].count(axis) == 1)
        wanted = ["..."] * ("..." in (*lhs, *rhs)) + once
    batch = [axis for axis in wanted if axis in lhs and axis in rhs]
    ordered = list(dict.fromkeys([*batch, *(axis for axis in (*lhs, *rhs) if axis in wanted)]))
    if wanted == ordered or sorted(wanted) != sorted(ordered):
        return None
    hidden = max(
        [np.ndim(x) - len(axes) + 1 for x, axes in zip(operands, (lhs, rhs), strict=True) if "..." in axes] or [0]
    )
    places = [(axis, i) for axis in ordered for i in range(hidden if axis == "..." else 1)]
    back = [places.index((axis, i)) for axis in wanted for i in range(hidden if axis == "..." else 1)]
    return f"{inputs}->{''.join(ordered)}", back


def dot_general(lhs: Any, rhs: Any, dimension_numbers: DimensionNumbers, precision: Any = None,
                preferred_element_type: Any = None, *, out_sharding: Any = None) -> Array:  # fmt: skip
    """jax.lax.dot_general in blockwise FP8; goes where a `dot_general` can be injected (flax, jnp.einsum).

    By position: lhs in 1x128 blocks and rhs in 128x128 blocks along the flattened contracted axes; with batch axes both
    are in 1x128 blocks. Dtypes, `precision`, gradients and errors as in `dot`.

    Args:
      lhs, rhs: arrays; rhs may be a 2-D `BlockScaled` without batch axes.
      dimension_numbers: ((lhs_contract, rhs_contract), (lhs_batch, rhs_batch)).

    Returns:
      (*batch, *lhs free axes, *rhs free axes).
    """
    kwargs = _options(precision, preferred_element_type, out_sharding)
    with jax.named_scope("jax_fp8.dot_general"):
        (lhs_contract, rhs_contract), (_, rhs_batch) = dimension_numbers
        if isinstance(rhs, BlockScaled):
            lhs = _array("dot_general", "lhs", lhs)
            if rhs.ndim != 2 or len(rhs_batch) or len(rhs_contract) != 1 or len(lhs_contract) != 1:
                raise NotImplementedError(
                    "dot_general: a BlockScaled rhs must be a matrix with one contracted axis and no batch axes, got "
                    f"{rhs!r} and {dimension_numbers}"
                )
            like = jax.ShapeDtypeStruct(rhs.shape, lhs.dtype)
            jax.eval_shape(partial(lax.dot_general, dimension_numbers=dimension_numbers), lhs, like)  # for its errors
            lhs = jnp.moveaxis(lhs, lhs_contract[0], -1)
            q = rhs if rhs_contract[0] == 0 else rhs.T
            return _dot_block_scaled("dot_general", "lhs", "rhs", lhs, q, **kwargs)
        lhs, rhs = _array("dot_general", "lhs", lhs), _array("dot_general", "rhs", rhs)
        out = jax.eval_shape(partial(lax.dot_general, dimension_numbers=dimension_numbers, **kwargs), lhs, rhs)
        if not _runs_in_fp8(lhs, rhs):
            return lax.dot_general(lhs, rhs, dimension_numbers, **kwargs)
        return _product(lhs, rhs, dimension_numbers, out, kwargs["precision"], out_sharding)


# ---- shared ----------------------------------------------------------------------------------------------------------


def _options(precision: Any, preferred_element_type: Any, out_sharding: Any) -> dict[str, Any]:
    if isinstance(precision, list):
        precision = tuple(precision)  # a primitive's parameters are hashed
    return {
        "precision": precision,
        "preferred_element_type": preferred_element_type,
        "out_sharding": out_sharding,
    }


def _array(op: str, name: str, x: Any) -> Array:
    if isinstance(x, BlockScaled):
        raise TypeError(f"{op}: {name} must be an array, only the second operand may be a BlockScaled; got {x!r}")
    dtype = getattr(x, "dtype", None)
    if dtype is not None and jnp.issubdtype(dtype, jnp.floating) and jnp.finfo(dtype).bits <= 8:
        raise TypeError(
            f"{op}: {name} is a {dtype} array without scales; pair it with its block scales in a jax_fp8.BlockScaled "
            "(jax_fp8.quantize makes one)"
        )
    if dtype is None and not hasattr(x, "__jax_array__") and not isinstance(x, numbers.Number):
        raise TypeError(f"{op}: {name} must be an array or a scalar, got {type(x).__name__}")
    return x if isinstance(x, jax.Array) else jnp.asarray(x)


def _runs_in_fp8(x: Array, w: Array) -> bool:
    return jnp.result_type(x, w) in QUANTIZABLE and x.dtype in QUANTIZABLE and w.dtype in QUANTIZABLE


def _product(lhs, rhs, dimension_numbers, out, precision, out_sharding) -> Array:
    """The FP8 product of two float arrays, with the result type `out`."""
    run = partial(_rearranged_product, dimension_numbers=dimension_numbers, out=out, precision=precision)
    return _compat.in_auto_axes(run, _compat.explicit_sharding(out, out_sharding))(lhs, rhs)


def _rearranged_product(lhs, rhs, *, dimension_numbers, out, precision) -> Array:
    (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = dimension_numbers
    order = sorted(range(len(lhs_contract)), key=lambda i: lhs_contract[i])
    lhs_contract, rhs_contract = ([c[i] for i in order] for c in (lhs_contract, rhs_contract))
    lhs_free = [d for d in range(lhs.ndim) if d not in (*lhs_contract, *lhs_batch)]
    rhs_free = [d for d in range(rhs.ndim) if d not in (*rhs_contract, *rhs_batch)]
    x = _as_matrix(lhs, lhs_batch, lhs_free, lhs_contract)
    k_first = bool(rhs_contract) and max(rhs_contract) < min(rhs_free, default=rhs.ndim)
    last_two = (rhs_contract, rhs_free) if k_first else (rhs_free, rhs_contract)
    w = _as_matrix(rhs, rhs_batch, *last_two)  # as it lies in memory: the quantiser reads either orientation
    rows = 1 if lhs_batch else SCALE_BLOCK
    y = dot_arrays(x, w, -2 if k_first else -1, rows, _kernel_dtype(out.dtype), precision)
    return y.reshape(out.shape).astype(out.dtype)


def _as_matrix(x: Array, batch, rows, columns) -> Array:
    x = jnp.transpose(x, (*batch, *rows, *columns))
    nb, nr = len(batch), len(rows)
    return x.reshape(*x.shape[:nb], math.prod(x.shape[nb : nb + nr]), math.prod(x.shape[nb + nr :]))


def _dot_block_scaled(
    op: str, x_name: str, q_name: str, x: Any, q: BlockScaled, *, precision, preferred_element_type, out_sharding
) -> Array:
    x = _array(op, x_name, x)
    check(q, op, q_name)
    if x.dtype not in QUANTIZABLE:
        raise TypeError(
            f"{op}: {x_name} must be float32, bfloat16 or float16 where {q_name} is a BlockScaled, got {x.dtype}"
        )
    if x.ndim == 0:
        raise ValueError(
            f"{op}: {x_name} must have at least one axis where {q_name} is a BlockScaled, got a scalar; "
            f"{q_name} is {q!r}"
        )
    if q.ndim != 2:
        raise NotImplementedError(
            f"{op}: a BlockScaled {q_name} must be a matrix, got {q!r}; use jax.vmap over its leading axes"
        )
    if not q.swapped:  # the contracted axis is the one that isn't contiguous in the codes
        codes, scales = q.transposed or other_orientation(q.codes, q.scales, q.rows_per_scale)
        q = q._replace(
            codes=codes,
            scales=scales,
            transposed=(q.codes, q.scales) if q.rows_per_scale == SCALE_BLOCK else None,
            swapped=True,
            master_swapped=not q.master_swapped,
        )
    like = jax.ShapeDtypeStruct(q.shape, x.dtype, sharding=_compat.sharding_of(q.codes, swap=True))
    kwargs = _options(precision, preferred_element_type, out_sharding)
    out = jax.eval_shape(partial(jnp.dot, **kwargs), x, like)
    rows, k = math.prod(x.shape[:-1]), x.shape[-1]

    def run(x, q):
        y = dot_quantized(x.reshape(rows, k), q, _kernel_dtype(out.dtype), precision)
        return y.reshape(out.shape).astype(out.dtype)

    return _compat.in_auto_axes(run, _compat.explicit_sharding(out, out_sharding))(x, q)


def _kernel_dtype(dtype: Any) -> Any:
    """The kernels write float32, bfloat16 and float16; another result dtype is cast from float32."""
    return dtype if dtype in OUT_DTYPES else jnp.dtype(jnp.float32)
