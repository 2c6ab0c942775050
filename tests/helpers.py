"""Small tools of several test files: bitwise comparison, jaxpr walks, a fresh Python."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

import jax_fp8
from jax_fp8.testing import quantize_reference


def bits(x: Any) -> np.ndarray:
    """x as unsigned integers, so that NaN equals NaN and -0 differs from 0."""
    x = np.ascontiguousarray(np.asarray(x))
    return x.view(f"u{x.dtype.itemsize}")


def assert_same_bits(got: Any, expected: Any) -> None:
    """Pytrees of equal structure, dtypes, shapes and bits."""
    assert jax.tree.structure(got) == jax.tree.structure(expected)
    for x, y in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(bits(x), bits(y))


def assert_quantized(q: jax_fp8.BlockScaled, x: Any, scale_rounding: str = "none") -> None:
    """q (not transposed) has the bytes and scales of the numpy definition."""
    codes, scales = quantize_reference(x, q.block, scale_rounding)
    np.testing.assert_array_equal(q.scales, scales)
    np.testing.assert_array_equal(bits(q.scales), bits(scales))
    np.testing.assert_array_equal(q.codes, codes)


def block_scaled(values: Any, scales: Any, block: tuple[int, int] = (1, 128)) -> jax_fp8.BlockScaled:
    """From numpy: values are cast to e4m3."""
    codes = np.asarray(values, np.float32).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    return jax_fp8.BlockScaled(jnp.asarray(codes), jnp.asarray(scales, jnp.float32), block)


def take(q: jax_fp8.BlockScaled, *index: Any) -> jax_fp8.BlockScaled:
    """One element of the leading axes."""
    return jax_fp8.BlockScaled(q.codes[index], q.scales[index], q.block)


def stack(fn: Callable, size: int) -> Any:
    """fn(0) .. fn(size - 1) stacked: the Python loop that a vmap must equal."""
    return jax.tree.map(lambda *xs: jnp.stack(xs), *(fn(i) for i in range(size)))


def equations(jaxpr: Any) -> Iterator[Any]:
    """All equations of a jaxpr, those of inner jaxprs too."""
    jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
    for eqn in jaxpr.eqns:
        yield eqn
        for inner in jax.tree.leaves(list(eqn.params.values()), is_leaf=lambda p: hasattr(p, "eqns")):
            if hasattr(inner, "eqns") or hasattr(inner, "jaxpr"):
                yield from equations(inner)


def run_python(
    code: str, *args: str, timeout: float = 240, cwd: Any = None, **env: str
) -> subprocess.CompletedProcess[str]:
    """Runs `code` in a fresh interpreter, with this one's environment and `env`."""
    return subprocess.run(
        [sys.executable, *args, "-c", code],
        env={**os.environ, **env},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
