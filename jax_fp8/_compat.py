"""Everything that depends on jax's version or reaches below its public API; each with a test and a way back."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
from jax import lax
from jax.interpreters.mlir import ir
from jax.sharding import AxisType, NamedSharding, PartitionSpec


def _explicit_mesh() -> Any:
    mesh = jax.sharding.get_abstract_mesh()
    return None if mesh.empty or AxisType.Explicit not in mesh.axis_types else mesh


def sharding_of(x: Any, *, swap: bool = False) -> NamedSharding | None:
    """The sharding in the type of x (`swap`: of its transpose) where some mesh axes are Explicit, else None."""
    mesh = _explicit_mesh()
    if mesh is None:
        return None
    spec = tuple(jax.typeof(x).sharding.spec)
    spec += (None,) * (x.ndim - len(spec))
    return NamedSharding(mesh, PartitionSpec(*spec[:-2], spec[-1], spec[-2]) if swap else PartitionSpec(*spec))


def shards(sharding: NamedSharding, axis: int) -> int:
    """Into how many parts `sharding` cuts an axis."""
    names = sharding.spec[axis] or ()
    return math.prod(sharding.mesh.shape[name] for name in (names if isinstance(names, tuple) else (names,)))


def explicit_sharding(out: Any, out_sharding: Any) -> Any:
    """The sharding an operation's result must have where some mesh axes are Explicit, else None."""
    mesh = _explicit_mesh()
    if mesh is None:
        return None
    sharding = out_sharding if out_sharding is not None else out.sharding
    return NamedSharding(mesh, sharding) if isinstance(sharding, PartitionSpec) else sharding


def in_auto_axes(fn: Callable[..., Any], sharding: Any) -> Callable[..., Any]:
    """`fn` with Explicit mesh axes turned over to the partitioner inside, its result typed with `sharding`."""
    return fn if sharding is None else jax.sharding.auto_axes(fn, out_sharding=sharding)


def vary_together(*arrays: Any) -> list[Any]:
    """Inside jax.shard_map: all arrays as varying over the mesh axes over which any of them varies.

    The operands of a primitive must agree in this. The transpose of the conversion is the sum over those axes, which
    makes the gradient of a replicated weight right.
    """
    varying = [jax.typeof(x).manual_axis_type.varying for x in arrays]
    union = frozenset().union(*varying)
    return [
        lax.pcast(x, tuple(union - own), to="varying") if union - own else x
        for x, own in zip(arrays, varying, strict=True)
    ]


def skip_transpose(x: Any) -> tuple[Any, bool]:
    """While lowering: the operand of the transposition that made the MLIR value x, if it only swaps the last two axes.

    A kernel that reads either orientation then never needs the transposed array. Anything else is returned as it is.
    """
    op = x.owner
    op = getattr(op, "operation", op)
    if not isinstance(op, ir.Operation) or op.name != "stablehlo.transpose":
        return x, False
    permutation = list(ir.DenseI64ArrayAttr(op.attributes["permutation"]))
    rank = len(permutation)
    if permutation != [*range(rank - 2), rank - 1, rank - 2]:
        return x, False
    return op.operands[0], True


def user_line(source_info: Any) -> str | None:
    """ "file:line" of the user's code that made an equation, or None."""
    try:
        from jax._src import source_info_util

        frame = source_info_util.user_frame(source_info.traceback)
        return None if frame is None else f"{frame.file_name}:{frame.start_line}"
    except Exception:  # private API: without it, explain shows no line
        return None
