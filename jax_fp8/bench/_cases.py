"""What is measured for a shape: our product and JAX's own ways to compute the same, each checked before it is timed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import jax_fp8
from jax_fp8 import testing
from jax_fp8._quantize import quantize_along
from jax_fp8.bench._shapes import Shape

E4M3 = jnp.float8_e4m3fn


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


def _jit(name: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    fn.__name__ = name  # the profile names kernels after it
    return jax.jit(fn)


def _normal(seed: int, *shape: int) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), shape, jnp.bfloat16)


def _check_rows(a: jax_fp8.BlockScaled, b: jax_fp8.BlockScaled, out: jax.Array) -> None:
    picked = np.unique(np.linspace(0, a.shape[0] - 1, 8).astype(int))
    part = jax_fp8.BlockScaled(a.codes[picked], a.scales[picked], (1, 128))
    testing.assert_matmul_close(out[picked], part, b)


def _check_close(out: jax.Array, x: jax.Array, w: jax.Array, tolerance: float) -> None:
    rows = np.unique(np.linspace(0, x.shape[0] - 1, 8).astype(int))
    expected = np.asarray(x[rows], np.float64) @ np.asarray(w, np.float64).T
    error = np.linalg.norm(np.asarray(out[rows], np.float64) - expected) / np.linalg.norm(expected)
    if not error < tolerance:
        raise AssertionError(f"the baseline's relative error is {error:.2e}, more than {tolerance:.0e}")


def _config(fn: Callable[..., Any], *args: Any) -> str:
    return ", ".join(dict.fromkeys(p.kernel for p in jax_fp8.explain(fn, *args).products))


def products(shape: Shape) -> Iterator[Case]:
    """Sets D, P and W: x (m, k) times w (n, k), bfloat16 out."""
    m, n, k = shape.m, shape.n, shape.k
    x, w = _normal(0, m, k), _normal(1, n, k)
    rows = 1 if shape.set == "W" else 128
    a, b = jax_fp8.quantize(x), jax_fp8.quantize(w, (rows, 128))
    fp8 = _jit("fp8_product", lambda a, b: jax_fp8.blockwise_matmul(a, b))
    flops, moved = 2 * m * n * k, (m + n) * k + 2 * m * n
    yield Case("jax_fp8", fp8, (a, b), flops, moved, _config(fp8, a, b), lambda: _check_rows(a, b, fp8(a, b)))
    bf16 = _jit("bf16_product", lambda x, w: jnp.dot(x, w.T))
    yield Case("jnp_bf16", bf16, (x, w), flops, moved + (m + n) * k, check=lambda: _check_close(bf16(x, w), x, w, 1e-2))

    def per_tensor(a: jax.Array, b: jax.Array) -> jax.Array:
        return lax.dot_general(a, b, (((1,), (1,)), ((), ())), preferred_element_type=jnp.bfloat16)

    unscaled = _jit("xla_fp8_product", per_tensor)
    x8, w8 = x.astype(E4M3), w.astype(E4M3)
    yield Case("xla_fp8", unscaled, (x8, w8), flops, moved, check=lambda: _check_close(unscaled(x8, w8), x, w, 1e-1))
    through = _jit(
        "dequantised_product", lambda a, b: jnp.dot(a.dequantize(jnp.bfloat16), b.dequantize(jnp.bfloat16).T)
    )
    yield Case("dequantise_bf16", through, (a, b), flops, moved, check=lambda: _check_close(through(a, b), x, w, 1e-1))


def quantisers(shape: Shape) -> Iterator[Case]:
    """Set Q: bfloat16 (m, k) to codes and scales in one orientation and in both, and in 128x128 blocks."""
    x = _normal(0, shape.m, shape.k)
    for impl, axes, rows in (
        ("jax_fp8_1x128", (-1,), 1),
        ("jax_fp8_1x128_both", (-1, -2), 1),
        ("jax_fp8_128x128_both", (-1, -2), 128),
    ):
        fn = _jit(impl, lambda x, axes=axes, rows=rows: quantize_along(x, *axes, rows=rows))
        moved = x.nbytes + sum(part.size * part.dtype.itemsize for part in jax.eval_shape(fn, x))
        yield Case(impl, fn, (x,), 0, moved)


def dots(shape: Shape) -> Iterator[Case]:
    """Set E: dot of bfloat16 arrays with everything inside, and with a weight quantised before."""
    m, n, k = shape.m, shape.n, shape.k
    x, w = _normal(0, m, k), _normal(1, k, n)
    q = jax_fp8.quantize_weight(w, for_inference=True)
    flops, moved = 2 * m * n * k, 2 * (m * k + k * n + m * n)
    whole = _jit("fp8_dot", lambda x, w: jax_fp8.dot(x, w))
    given = _jit("fp8_dot_quantised", lambda x, q: jax_fp8.dot(x, q))
    bf16 = _jit("bf16_dot", lambda x, w: jnp.dot(x, w))
    check = lambda fn, w_: lambda: _check_close(fn(x, w_), x, w.T, 1e-1)  # noqa: E731
    yield Case("jax_fp8", whole, (x, w), flops, moved, _config(whole, x, w), check(whole, w))
    yield Case("jax_fp8_quantised_w", given, (x, q), flops, moved - k * n, _config(given, x, q), check(given, q))
    yield Case("jnp_bf16", bf16, (x, w), flops, moved, check=check(bf16, w))


def mlps(shape: Shape) -> Iterator[Case]:
    """Set T: a SwiGLU block of m tokens, ff n, d k, forward and backward with respect to input and weights."""
    tokens, ff, d = shape.m, shape.n, shape.k
    x, up, down = _normal(0, tokens, d), _normal(1, d, 2 * ff) / d**0.5, _normal(2, ff, d) / ff**0.5

    def step(dot: Callable[..., Any]) -> Callable[..., Any]:
        def loss(x: jax.Array, up: jax.Array, down: jax.Array) -> jax.Array:
            gate, value = jnp.split(dot(x, up), 2, axis=-1)
            return jnp.sum(dot(jax.nn.silu(gate) * value, down).astype(jnp.float32) ** 2)

        return lambda *args: jax.grad(loss, (0, 1, 2))(*args)

    flops = 3 * 2 * tokens * d * 3 * ff
    moved = 2 * 2 * (x.size + up.size + down.size)
    fp8, bf16 = _jit("fp8_mlp", step(jax_fp8.dot)), _jit("bf16_mlp", step(jnp.dot))
    yield Case("jax_fp8", fp8, (x, up, down), flops, moved, _config(fp8, x, up, down))
    yield Case("jnp_bf16", bf16, (x, up, down), flops, moved)


CASES: dict[str, Callable[[Shape], Iterator[Case]]] = {
    "D": products,
    "P": products,
    "W": products,
    "Q": quantisers,
    "E": dots,
    "T": mlps,
}
