"""What every primitive of this package shares: declaration, lowering to jax.numpy, and moving mapped axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import Primitive
from jax.interpreters import ad, mlir, xla


def declare(
    name: str, definition: Callable[..., Any], abstract_eval: Callable[..., Any], *, multiple_results: bool = False
) -> Primitive:
    """A primitive that runs eagerly and, on every platform without a rule of its own, lowers to `definition`."""
    p = Primitive(name)
    p.multiple_results = multiple_results
    p.def_impl(partial(xla.apply_primitive, p))
    p.def_abstract_eval(abstract_eval)
    mlir.register_lowering(p, mlir.lower_fun(definition, multiple_results=multiple_results))
    return p


def zero_tangent(primal: Any) -> ad.Zero:
    return ad.Zero(jax.typeof(primal).to_tangent_aval())


def is_zero(tangent: Any) -> bool:
    return isinstance(tangent, ad.Zero)


def mapped_to_front(size: int, arrays: Sequence[Array], dims: Sequence[int | None]) -> tuple[list[Array], bool]:
    """Arrays that belong together (codes and their scales): if one has a mapped axis, all get it, in front."""
    if all(d is None for d in dims):
        return list(arrays), False

    def move(x: Array, d: int | None) -> Array:
        return jnp.broadcast_to(x[None], (size, *x.shape)) if d is None else jnp.moveaxis(x, d, 0)

    return [move(x, d) for x, d in zip(arrays, dims, strict=True)], True


def fold_into_rows(x: Array) -> Array:
    """(size, *batch, rows, k) -> (*batch, size * rows, k)."""
    x = jnp.moveaxis(x, 0, -3)
    return x.reshape(*x.shape[:-3], x.shape[-3] * x.shape[-2], x.shape[-1])


def unfold_rows(y: Array, size: int, rows: int) -> tuple[Array, int]:
    """(*batch, size * rows, n) -> (*batch, size, rows, n), and the place of `size`."""
    y = y.reshape(*y.shape[:-2], size, rows, y.shape[-1])
    return y, y.ndim - 3


def with_batch(x: Array, batch: tuple[int, ...], lead: int = 0) -> Array:
    """Repeats x (*lead axes, rows, k) over batch axes placed behind its `lead` leading ones."""
    head, tail = x.shape[:lead], x.shape[lead:]
    return jnp.broadcast_to(x.reshape(*head, *(1,) * len(batch), *tail), (*head, *batch, *tail))
