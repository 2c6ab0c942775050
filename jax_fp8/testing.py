"""The oracle: what a blockwise FP8 product must be, how far it may be off, exact operands.

Nothing here runs a kernel or XLA: numpy in float64, from the dequantised operands. So it judges
every platform alike.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import numpy.typing as npt

from jax_fp8 import _extension
from jax_fp8._block_scaled import SCALE_BLOCK, BlockScaled, num_blocks, scales_shape

Floats = npt.NDArray[np.float64]

FP8_MAX = 448.0
FLT_MIN = float(np.finfo(np.float32).tiny)
EPS_TENSOR_CORE = 135 * 2.0**-13
EPS_SUBNORMAL = 2.0**-5
FLOOR_SUBNORMAL = 2.0**-4


def dequantize_reference(q: BlockScaled) -> Floats:
    """values * scales in float64, stored order (..., rows, k)."""
    codes = np.asarray(q.codes).view(ml_dtypes.float8_e4m3fn).astype(np.float64)
    return codes * _spread(q)


def matmul_reference(a: BlockScaled, b: BlockScaled) -> Floats:
    """The float64 product (..., m, n) of the dequantised a (..., m, k) and b (..., n, k)."""
    return dequantize_reference(a) @ np.swapaxes(dequantize_reference(b), -1, -2)


def matmul_bound(
    a: BlockScaled, b: BlockScaled, out_dtype: Any = jnp.float32, *, tensor_core: bool | None = None
) -> Floats:
    """How far each element of a product in `out_dtype` may be from `matmul_reference`.

        eps * (|A| @ |B|) + floor + half an ulp of out_dtype

    Tensor core (Hopper, as modelled in arXiv 2511.10909). One step multiplies 32 pairs. It takes
    the largest exponent E of these products and of the accumulator, truncates them all to multiples
    of 2^(E-13), adds exactly, and truncates the sum to 13 fraction bits. A block of 128 is four
    steps, the first without accumulator. With S the sum of |a||b| over the block, that loses at most

        31 * 2^-13 * S        of products under the largest one of their step, all steps together
        3 * 32 * 2^-13 * S    of products under a larger accumulator, three steps of 32
        8 * 2^-13 * S         of the accumulator and of the result, four steps each
        135 * 2^-13 * S       = EPS_TENSOR_CORE

    Exponents are not normalised: a subnormal code has exponent -6 however small it is. If one is in
    the leading product, E may be 3 above that product's own exponent, and a step's 32 terms lose up
    to 32 * 2^(3-13) = EPS_SUBNORMAL of S. But then E <= 8 - 6, so four steps also lose no more than
    4 * 32 * 2^(2-13) = FLOOR_SUBNORMAL times both scales: nothing beside products near 448^2, all
    there is beside tiny ones. The smaller of the two is added. (With two subnormals E is -12, the
    smallest exponent there is: nothing is lost.)

    Promotion to float32: each block rounds the product of its scales and one multiply-add, together
    (num_k_blocks + 2) * 2^-24.

    jax.numpy definition (every other platform): each dequantised operand, each product and each of
    k - 1 additions, in any order, rounds once: (k + 4) * 2^-24 with the second-order terms.

    Both may flush float32 below FLT_MIN: a dequantised value, a product of scales, a sum.

    Args:
      tensor_core: which of the two; default: what the default backend runs.
    """
    k, blocks = a.shape[-1], num_blocks(a.shape[-1])
    x, y = np.abs(dequantize_reference(a)), np.swapaxes(np.abs(dequantize_reference(b)), -1, -2)
    magnitude = x @ y
    flushed = x.sum(-1)[..., :, None] + y.sum(-2)[..., None, :] + SCALE_BLOCK * FP8_MAX**2 * blocks
    bound = FLT_MIN * (flushed + k)
    if runs_on_tensor_core() if tensor_core is None else tensor_core:
        eps = EPS_TENSOR_CORE + (blocks + 2) * 2.0**-24
        floor = FLOOR_SUBNORMAL * (_scales_by_row(a) @ np.swapaxes(_scales_by_row(b), -1, -2))
        bound += eps * magnitude + np.minimum(EPS_SUBNORMAL * magnitude, floor)
    else:
        bound += (k + 4) * 2.0**-24 * magnitude
    info = jnp.finfo(out_dtype)
    largest = np.abs(matmul_reference(a, b)) + bound  # what gets rounded may be as large
    return bound + float(info.eps) / 2 * largest + float(info.smallest_subnormal) / 2


def assert_matmul_close(out: Any, a: BlockScaled, b: BlockScaled, *, tensor_core: bool | None = None) -> None:
    """Raises AssertionError naming the worst element unless `out` is the product of a and b.

    NaN exactly where the reference has NaN. Infinity of the right sign only where the value, within
    its bound, is beyond the range of out's dtype, and certainly where it is beyond by more.
    """
    expected, bound = matmul_reference(a, b), matmul_bound(a, b, out.dtype, tensor_core=tensor_core)
    got = np.asarray(out).astype(np.float64)
    if got.shape != expected.shape:
        raise AssertionError(f"product has shape {got.shape}, expected {expected.shape}")
    if not expected.size:
        return
    info = jnp.finfo(out.dtype)
    overflow = float(info.max) * (1 + float(info.eps) / 4)  # from here on rounding gives infinity
    bad_nan = np.isnan(got) != np.isnan(expected)
    may_overflow = (np.abs(expected) + bound >= overflow) & (np.sign(got) == np.sign(expected))
    with np.errstate(invalid="ignore"):  # NaN - NaN, where both are meant to be NaN
        error = np.where(np.isinf(got) & may_overflow, 0.0, np.abs(got - expected))
        excess = np.where(np.isnan(expected), 0.0, error - bound)
    excess = np.where(bad_nan | np.isnan(excess), np.inf, excess)
    if (excess > 0).any():
        at = np.unravel_index(int(np.argmax(excess)), excess.shape)
        place = tuple(int(i) for i in at)
        raise AssertionError(
            f"{int((excess > 0).sum())} of {excess.size} elements are off; worst at {place}, "
            f"128x128 tile {(place[-2] // 128, place[-1] // 128)}: got {got[at]}, "
            f"expected {expected[at]}, bound {bound[at]}"
        )


def runs_on_tensor_core() -> bool:
    """Whether products on the default backend run our kernels."""
    return jax.default_backend() == "gpu" and _extension.use_kernels()


def quantize_reference(
    x: Any, block: tuple[int, int] = (1, SCALE_BLOCK), scale_rounding: str = "none"
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float32]]:
    """`jax_fp8.quantize` in numpy, to the last bit: codes (..., r, k) and scales."""
    x = np.asarray(x).astype(np.float32)
    x = np.where(np.abs(x) < np.float32(FLT_MIN), np.float32(0), x)  # keeps NaN
    amax = np.abs(x)
    for axis, size in ((-2, block[0]), (-1, SCALE_BLOCK)):
        amax = np.maximum.reduceat(amax, np.arange(0, x.shape[axis], size), axis=axis)
    finite = np.isfinite(amax)
    scales = _scale_reference(np.where(finite, amax, np.float32(1)), scale_rounding)

    def spread(blocks: Any) -> Any:
        rows = np.repeat(blocks, block[0], axis=-2)[..., : x.shape[-2], :]
        return np.repeat(rows, SCALE_BLOCK, axis=-1)[..., : x.shape[-1]]

    with np.errstate(invalid="ignore", over="ignore"):  # in blocks that become 0x7f
        scaled = np.clip(x * spread(np.float32(1) / scales), -FP8_MAX, FP8_MAX)
        codes = scaled.astype(np.float32).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    nan = np.float32(np.nan)
    return np.where(spread(finite), codes, np.uint8(0x7F)), np.where(finite, scales, nan)


def _scale_reference(amax: npt.NDArray[np.float32], scale_rounding: str) -> npt.NDArray[np.float32]:
    if scale_rounding == "power_of_two":  # amax / 448 in float64 tells every float32 from 448 * 2^e
        mantissa, exponent = np.frexp(amax.astype(np.float64) / FP8_MAX)
        scale = np.ldexp(1.0, exponent - (mantissa == 0.5))
    else:
        scale = amax * np.float32(1 / FP8_MAX)
    return np.maximum(np.where(amax == 0, 0.0, scale), FLT_MIN).astype(np.float32)


def integers(rng: np.random.Generator, shape: tuple[int, ...], high: int) -> npt.NDArray[np.float32]:
    """Integers in [-high, high]. Up to high = 8 a partial of 128 products is exact in 14 bits."""
    return rng.integers(-high, high + 1, shape).astype(np.float32)


def exact_operand(
    rng: np.random.Generator,
    shape: tuple[int, ...],
    block: tuple[int, int] = (1, 128),
    high: int = 2,
) -> BlockScaled:
    """Small integers (..., rows, k) with power-of-two scales that differ between neighbours.

    The product of two of them is exact on every platform for k <= 8192 and high = 2: partials are
    below 2^10, scales span 2^8, 64 blocks add 2^6, and float32 has 24 bits.
    """
    codes = integers(rng, shape, high).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    grid = scales_shape(shape, block[0])
    steps = np.indices(grid).T @ np.arange(len(grid), 0, -1) % 5
    scales = np.ldexp(np.float32(1), steps.T)
    return BlockScaled(jnp.asarray(codes), jnp.asarray(scales), block)


def exactly_quantizable(rng: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """Values 0, +-7, +-14: 448 is 7 * 2^6, so every block of them has a power-of-two scale and loses nothing.

    Their products are multiples of 49 up to 196, exact in 14 bits over 128 of them (random signs) and
    in float32 over 512 blocks: products and gradients equal those of the unquantised values exactly.
    """
    return rng.choice(np.array([0, 7, -7, 14, -14], np.float32), shape)


def _scales_by_row(q: BlockScaled) -> Floats:
    scales = np.asarray(q.scales, np.float64)
    return np.repeat(scales, q.rows_per_scale, axis=-2)[..., : q.codes.shape[-2], :]


def _spread(q: BlockScaled) -> Floats:
    return np.repeat(_scales_by_row(q), SCALE_BLOCK, axis=-1)[..., : q.codes.shape[-1]]
