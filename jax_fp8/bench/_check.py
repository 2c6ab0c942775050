"""Is a result right: some rows and columns against float64 on the host, every element finite on the device.

All of a large product in float64 would take minutes; so it's at most ROWS x COLUMNS elements, the last row and column
always among them. That something was written everywhere is seen on the whole result: it starts out as NaN, as far as
the allocator gives out again what was just freed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

import jax_fp8
from jax_fp8 import testing

ROWS, COLUMNS = 8, 256


def picked(extent: int, count: int) -> npt.NDArray[np.int64]:
    """At most `count` indices, evenly spread from the first to the last."""
    return np.unique(np.linspace(0, extent - 1, count).astype(np.int64))


@jax.jit
def _look(out: jax.Array, rows: jax.Array, columns: jax.Array) -> tuple[jax.Array, jax.Array]:
    return jnp.isfinite(out).all(), out[rows[:, None], columns]


def sample(fn: Callable[..., jax.Array], *args: Any) -> npt.NDArray[Any]:
    """The picked rows and columns of the matrix fn(*args).

    Raises:
      AssertionError: an element of the matrix isn't finite.
    """
    shape = jax.eval_shape(fn, *args)
    jax.block_until_ready(jnp.full(shape.shape, jnp.nan, shape.dtype))
    finite, part = _look(fn(*args), picked(shape.shape[0], ROWS), picked(shape.shape[1], COLUMNS))
    if not finite:
        raise AssertionError("an element of the result is not finite, or was never written")
    return np.asarray(part)


def check_close(got: Any, expected: Any, tolerance: float) -> None:
    """Raises AssertionError unless the relative error, by norms, is below the tolerance."""
    expected = np.asarray(expected, np.float64)
    error = np.linalg.norm(np.asarray(got, np.float64) - expected) / np.linalg.norm(expected)
    if not error < tolerance:
        raise AssertionError(f"the relative error is {error:.2e}, more than {tolerance:.0e}")


def check_quantised(x: jax.Array, results: list[jax.Array], axes: tuple[int, ...], rows: int) -> None:
    """Raises AssertionError unless codes and scales equal numpy's to the last bit, in the last rows of each result."""
    for axis, codes, scales in zip(axes, results[::2], results[1::2], strict=True):
        first = (codes.shape[0] - 1) // 128 * 128  # of the last row block
        part = x[first:] if axis == -1 else x[:, first:].T
        want_codes, want_scales = testing.quantize_reference(part, (rows, 128))
        if not np.array_equal(codes[first:], want_codes) or not np.array_equal(scales[first // rows :], want_scales):
            raise AssertionError(f"codes or scales along axis {axis} differ from the reference in the last rows")


def host_part(codes: jax.Array, scales: jax.Array) -> jax_fp8.BlockScaled:
    """Rows in 1x128 blocks, on the host: what testing.assert_matmul_close takes."""
    return jax_fp8.BlockScaled._make(np.asarray(codes), np.asarray(scales), 1)
