"""explain: which kernel each FP8 product of a function gets, and why; without running it, and without a GPU."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from jax_fp8 import _compat, _extension

_ROLES = {
    "fp8_dot": "forward",
    "fp8_blockwise_matmul": "product",
    "fp8_linear_lhs": "tangent of x",
    "fp8_linear_rhs": "tangent of w",
    "fp8_dgrad": "dgrad",
    "fp8_wgrad": "wgrad",
}
_H200_SMS = 132


@dataclasses.dataclass(frozen=True)
class Product:
    """One FP8 product of the function, as traced: m, n, k and batch of one call, `count` says how often it is made."""

    role: str  # "forward", "dgrad", "wgrad", "product", "tangent of x", "tangent of w"
    m: int
    n: int
    k: int
    batch: int
    rows_per_b_scale: int  # 128: b in 128x128 blocks, 1: in 1x128 blocks
    out_dtype: str
    count: str  # such as "1", "12", "12 x while"
    kernel: str  # such as "sm90 128x256", or "jax.numpy"
    stages: int | None
    waves: float | None  # output tiles per SM
    predicted_us: float | None
    reason: str
    notes: tuple[str, ...]  # extra work around the product
    scope: str  # named scopes it was traced in
    source: str | None  # user's line


@dataclasses.dataclass(frozen=True)
class Explanation:
    products: list[Product]
    target: str

    def __str__(self) -> str:
        header = ("role", "scope", "m", "n", "k", "batch", "count", "kernel", "stages", "waves", "why")
        rows = [
            (
                p.role,
                p.scope,
                str(p.m),
                str(p.n),
                str(p.k),
                str(p.batch),
                p.count,
                p.kernel,
                "" if p.stages is None else str(p.stages),
                "" if p.waves is None else f"{p.waves:.2f}",
                "; ".join((p.reason, *p.notes)),
            )
            for p in self.products
        ]
        widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
        lines = [
            "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in (header, *rows)
        ]
        return "\n".join([f"FP8 products on {self.target}: {len(rows)}", *lines])


def explain(fn: Callable[..., Any], *args: Any, target: str | None = None, num_sms: int | None = None) -> Explanation:
    """Lists the FP8 products of `fn(*args)`: role, extents, count, kernel, tile, stages, waves, and why it was chosen.

    Args:
      fn: any traceable function, jitted or not; products inside jit, scan, cond, while, remat, vmap and grad are found.
      *args: its arguments, arrays or jax.ShapeDtypeStruct.
      target: "sm90" (H100, H200) or "jax.numpy"; default: what the default backend would run.
      num_sms: multiprocessors of the GPU; default the default device's, or 132.

    Returns:
      An `Explanation`: `.products`, and a table as its str. Predictions are the cost model's, not measurements.
    """
    if target is None:
        target = "sm90" if jax.default_backend() == "gpu" and _extension.use_kernels() else "jax.numpy"
    if target not in ("sm90", "jax.numpy"):
        raise ValueError(f'explain: target must be "sm90" or "jax.numpy", got {target!r}')
    if num_sms is None:
        num_sms = getattr(jax.devices()[0], "core_count", None) or _H200_SMS
    jaxpr = jax.make_jaxpr(fn)(*args)
    products = [_product(e, count, scope, target, num_sms) for e, count, scope in _walk(jaxpr.jaxpr, "1", "")]
    return Explanation(products, target)


def _inner_jaxprs(params: dict[str, Any]) -> Iterator[Any]:
    for value in params.values():
        for item in value if isinstance(value, (tuple, list)) else (value,):
            jaxpr = getattr(item, "jaxpr", item)
            if hasattr(jaxpr, "eqns"):
                yield jaxpr


def _walk(jaxpr: Any, count: str, scope: str) -> Iterator[tuple[Any, str, str]]:
    for e in jaxpr.eqns:
        name = e.primitive.name
        inner_scope = "/".join(part for part in (scope, str(e.source_info.name_stack)) if part)
        if name in _ROLES:
            yield e, count, inner_scope
            continue
        for inner in _inner_jaxprs(e.params):
            yield from _walk(inner, _repeat(count, name, e.params), inner_scope)


def _repeat(count: str, name: str, params: dict[str, Any]) -> str:
    if name == "scan":
        return str(int(count) * params["length"]) if count.isdigit() else f"{count} x {params['length']}"
    return f"{count} x {name}" if name in ("while", "cond") else count


def _extents(e: Any) -> tuple[int, int, int, int, int]:
    """(batch, m, n, k, rows per scale of b) of an equation."""
    params = e.params
    shapes = [v.aval.shape for v in e.invars]
    out = e.outvars[0].aval.shape
    name = e.primitive.name
    rows = 1 if name == "fp8_wgrad" else params["rows"]
    if name in ("fp8_dot", "fp8_blockwise_matmul"):
        a, b = shapes[0], shapes[2]
    elif name in ("fp8_linear_lhs", "fp8_dgrad"):
        a, b = shapes[0], shapes[1]
    elif name == "fp8_linear_rhs":
        a, b = shapes[1], shapes[0]
    else:
        a = b = shapes[0]
    k = {"fp8_linear_lhs": shapes[1][-2], "fp8_linear_rhs": shapes[1][-2], "fp8_wgrad": shapes[0][-2]}.get(name, a[-1])
    m, n, batch = out[-2], out[-1], math.prod(out[:-2])
    return (1, m * batch, n, k, rows) if len(b) == 2 else (batch, m, n, k, rows)


def _product(e: Any, count: str, scope: str, target: str, num_sms: int) -> Product:
    batch, m, n, k, rows = _extents(e)
    out_dtype = e.outvars[0].aval.dtype.name
    notes = []
    if e.params.get("precision") is not None:
        notes.append("precision has no effect in FP8")
    if e.primitive.name == "fp8_dot" and e.params["given"] and not jnp.issubdtype(e.invars[5].aval.dtype, jnp.floating):
        notes.append("no master: the weight gets no gradient")
    empty = 0 in (batch, m, n, k)
    chosen: dict[str, Any] = {}
    if target == "jax.numpy":
        kernel, reason = "jax.numpy", "dequantised in float32, one dot: no kernel for this platform"
    elif empty:
        kernel, reason = "none", "nothing to multiply"
    else:
        chosen = _extension.host.select_config(batch, m, n, k, rows, out_dtype, num_sms, e.params.get("config", ""))
        kernel, reason = f"sm90 {chosen['name']}", chosen["reason"]
        for key, note in (
            ("pads_k", "k is not a multiple of 16: operands are copied into padded scratch"),
            ("scales_by_copy", "scale rows are not multiples of 16 bytes: loaded by cp.async"),
            ("stores_elements", "result rows are not aligned: stored element by element"),
        ):
            if chosen[key]:
                notes.append(note)
    return Product(
        role=_ROLES[e.primitive.name],
        m=m,
        n=n,
        k=k,
        batch=batch,
        rows_per_b_scale=rows,
        out_dtype=out_dtype,
        count=count,
        kernel=kernel,
        stages=chosen.get("stages"),
        waves=chosen.get("waves"),
        predicted_us=chosen.get("predicted_us"),
        reason=reason,
        notes=tuple(notes),
        scope=scope,
        source=_compat.user_line(e.source_info),
    )
