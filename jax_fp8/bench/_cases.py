"""What is measured for a shape: our product and JAX's own ways to compute the same, each checked before it is timed."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.layout import Format, Layout
from jax.sharding import SingleDeviceSharding

import jax_fp8
from jax_fp8 import _extension, testing
from jax_fp8._quantize import quantize_along, scales_layout
from jax_fp8.bench import _check
from jax_fp8.bench._check import check_close, picked, sample
from jax_fp8.bench._shapes import Shape

E4M3 = jnp.float8_e4m3fn
OURS = "jax_fp8"


@dataclasses.dataclass(frozen=True)
class Case:
    """A jitted function with its arguments, and what one call does."""

    impl: str
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    flops: int
    bytes: int  # each input read once, each output written once
    config: str = ""
    check: Callable[[], None] = lambda: None


def config_names(shape: Shape) -> list[str]:
    """Names of the configurations that a product of this shape can run in."""
    return _extension.host.config_names(shape.rows_per_b_scale, "bfloat16")


def _jit(name: str, fn: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    fn.__name__ = name  # the profile names its program after it
    return jax.jit(fn, **options)


def _close(fn: Callable[..., Any], args: tuple[Any, ...], expected: Any, tolerance: float) -> Callable[[], None]:
    return lambda: check_close(sample(fn, *args), expected, tolerance)


def _config(fn: Callable[..., Any], *args: Any) -> str:
    """What `explain` says of the products of fn(*args): kernel and reason."""
    return " | ".join(dict.fromkeys(f"{p.kernel}: {p.reason}" for p in jax_fp8.explain(fn, *args).products))


@functools.lru_cache(maxsize=1)
def _bank(size: int) -> jax.Array:
    """Random numbers to cut operands from: making them for each shape would compile anew each time."""
    return jax.random.normal(jax.random.key(0), (size,), jnp.bfloat16)


def _cut(bank: jax.Array, *shapes: tuple[int, int]) -> list[jax.Array]:
    starts = np.cumsum([0, *(r * c for r, c in shapes)])
    return [bank[i : i + r * c].reshape(r, c) for i, (r, c) in zip(starts, shapes, strict=False)]


def _normal(*shapes: tuple[int, int], make: Callable[..., Any] = lambda *xs: xs, out_shardings: Any = None) -> Any:
    """make(*xs) for standard normal bfloat16 matrices xs of these shapes; one compiled program."""
    bank = _bank(1 << (sum(r * c for r, c in shapes) - 1).bit_length())
    return jax.jit(lambda bank: make(*_cut(bank, *shapes)), out_shardings=out_shardings)(bank)


def scales_format(rows: int) -> Format:
    """The layout our kernels read and write scales in: another one at a program's edge costs a transposition."""
    minor_to_major = scales_layout(2, rows)
    return Format(Layout(major_to_minor=minor_to_major[::-1]), SingleDeviceSharding(jax.devices()[0]))


def products(shape: Shape, configs: Sequence[str] = ("",)) -> Iterator[Case]:
    """Sets D, P and W: x (m, k) times w (n, k), bfloat16 out. Ours in each of `configs`; "" leaves the choice to it."""
    m, n, k, rows = shape.m, shape.n, shape.k, shape.rows_per_b_scale

    def make(x: jax.Array, w: jax.Array) -> Any:
        a, b = quantize_along(x, -1), quantize_along(w, -1, rows=rows)
        i, j = picked(m, _check.ROWS), picked(n, _check.COLUMNS)
        parts = (x[i], w[j]), (a[0][i], a[1][i]), (b[0][j], b[1][j // rows])
        return (x, w), (x.astype(E4M3), w.astype(E4M3)), a, b, parts

    formats = [None, scales_format(1)], [None, scales_format(rows)]
    plain, unscaled, a, b, parts = _normal((m, k), (n, k), make=make, out_shardings=(None, None, *formats, None))
    quantised = jax_fp8.BlockScaled(a[0], a[1], (1, 128)), jax_fp8.BlockScaled(b[0], b[1], (rows, 128))
    quantised_parts = _check.host_part(*parts[1]), _check.host_part(*parts[2])
    expected = np.asarray(parts[0][0], np.float64) @ np.asarray(parts[0][1], np.float64).T

    def check_fp8(fn: Callable[..., jax.Array]) -> None:
        testing.assert_matmul_close(sample(fn, *quantised), *quantised_parts)

    for name in configs:
        fp8 = _jit("fp8_product", lambda a, b, name=name: jax_fp8.blockwise_matmul(a, b, config=name))
        try:
            config = _config(fp8, *quantised)
        except ValueError as error:
            if not name:
                raise
            print(f"{shape}: not in configuration {name}: {error}", file=sys.stderr)
            continue
        yield Case(
            impl=f"{OURS}:{name}" if name else OURS,
            fn=fp8,
            args=quantised,
            flops=shape.flops,
            bytes=shape.fp8_bytes,
            config=config,
            check=functools.partial(check_fp8, fp8),
        )

    def bf16(x: jax.Array, w: jax.Array) -> jax.Array:
        return jnp.dot(x, w.T)

    def per_tensor(a: jax.Array, b: jax.Array) -> jax.Array:
        return lax.dot_general(a, b, (((1,), (1,)), ((), ())), preferred_element_type=jnp.bfloat16)

    def dequantised(a: jax_fp8.BlockScaled, b: jax_fp8.BlockScaled) -> jax.Array:
        return jnp.dot(a.dequantize(jnp.bfloat16), b.dequantize(jnp.bfloat16).T)

    for impl, fn, args, moved, tolerance in (
        ("jnp_bf16", bf16, plain, shape.fp8_bytes + (m + n) * k, 1e-2),
        ("xla_fp8", per_tensor, unscaled, shape.fp8_bytes, 1e-1),
        ("dequantise_bf16", dequantised, quantised, shape.fp8_bytes, 1e-1),
    ):
        fn = _jit(f"{impl}_product", fn)
        yield Case(impl, fn, args, shape.flops, moved, check=_close(fn, args, expected, tolerance))


def quantisers(shape: Shape) -> Iterator[Case]:
    """Set Q: bfloat16 (m, k) to codes and scales in one orientation and in both, and in 128x128 blocks."""
    (x,) = _normal((shape.m, shape.k))
    for impl, axes, rows in (
        ("jax_fp8_1x128", (-1,), 1),
        ("jax_fp8_1x128_both", (-1, -2), 1),
        ("jax_fp8_128x128_both", (-1, -2), 128),
    ):
        fn = _jit(
            impl,
            lambda x, axes=axes, rows=rows: quantize_along(x, *axes, rows=rows),
            out_shardings=[None, scales_format(rows)] * len(axes),
        )
        moved = x.nbytes + sum(part.size * part.dtype.itemsize for part in jax.eval_shape(fn, x))
        check = lambda fn=fn, axes=axes, rows=rows: _check.check_quantised(x, fn(x), axes, rows)  # noqa: E731
        yield Case(impl, fn, (x,), 0, moved, check=check)


def dots(shape: Shape) -> Iterator[Case]:
    """Set E: dot of bfloat16 arrays with everything inside, and with a weight quantised before."""
    m, n, k = shape.m, shape.n, shape.k
    x, w = _normal((m, k), (k, n))
    q = jax_fp8.quantize_weight(w, for_inference=True)
    rows, columns = picked(m, _check.ROWS), picked(n, _check.COLUMNS)
    expected = np.asarray(x[rows], np.float64) @ np.asarray(w[:, columns], np.float64)
    moved = 2 * (m * k + k * n + m * n)
    whole = _jit("fp8_dot", lambda x, w: jax_fp8.dot(x, w))
    given = _jit("fp8_dot_quantised", lambda x, q: jax_fp8.dot(x, q))
    bf16 = _jit("bf16_dot", lambda x, w: jnp.dot(x, w))
    for impl, fn, weight, size in (
        (OURS, whole, w, moved),
        ("jax_fp8_quantised_w", given, q, moved - k * n),
        ("jnp_bf16", bf16, w, moved),
    ):
        args = (x, weight)
        yield Case(impl, fn, args, shape.flops, size, _config(fn, *args), _close(fn, args, expected, 1e-1))


def mlps(shape: Shape) -> Iterator[Case]:
    """Set T: a SwiGLU block of m tokens, ff n, d k, forward and backward with respect to input and weights."""
    tokens, ff, d = shape.m, shape.n, shape.k
    args = _normal((tokens, d), (d, 2 * ff), (ff, d), make=lambda x, up, down: (x, up / d**0.5, down / ff**0.5))

    def step(dot: Callable[..., Any]) -> Callable[..., Any]:
        def loss(x: jax.Array, up: jax.Array, down: jax.Array) -> jax.Array:
            gate, value = jnp.split(dot(x, up), 2, axis=-1)
            return jnp.sum(dot(jax.nn.silu(gate) * value, down).astype(jnp.float32) ** 2)

        return lambda *args: jax.grad(loss, (0, 1, 2))(*args)

    def rows_of_gradients(fn: Callable[..., Any], *args: Any) -> list[Any]:
        return [np.asarray(g[:: max(1, g.shape[0] // 64)], np.float32) for g in fn(*args)]

    @functools.cache
    def expected() -> list[Any]:
        with jax.default_matmul_precision("highest"):
            return rows_of_gradients(jax.jit(step(jnp.dot)), *(v.astype(jnp.float32) for v in args))

    def check(fn: Callable[..., Any], tolerance: float) -> None:
        for got, want in zip(rows_of_gradients(fn, *args), expected(), strict=True):
            check_close(got, want, tolerance)

    flops = 3 * 2 * tokens * d * 3 * ff
    moved = 2 * 2 * sum(v.size for v in args)
    for impl, name, dot, tolerance in ((OURS, "fp8_mlp", jax_fp8.dot, 2e-1), ("jnp_bf16", "bf16_mlp", jnp.dot, 5e-2)):
        fn = _jit(name, step(dot))
        yield Case(impl, fn, args, flops, moved, _config(fn, *args), functools.partial(check, fn, tolerance))


def cases(shape: Shape, configs: Sequence[str] = ("",)) -> Iterator[Case]:
    """Everything that is measured in this process for a shape; `configs` as in `products`."""
    if shape.is_product:
        return products(shape, configs)
    return {"Q": quantisers, "E": dots, "T": mlps}[shape.set](shape)
