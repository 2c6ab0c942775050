"""BlockScaled: FP8 codes with their block scales, as one pytree that behaves like an array of its logical shape."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

SCALE_BLOCK = 128  # k positions of one block scale
E4M3 = jnp.dtype(jnp.float8_e4m3fn)


def num_blocks(extent: int, size: int = SCALE_BLOCK) -> int:
    """How many blocks of `size` cover `extent`; the last one may be short."""
    return -(-extent // size)


def scales_shape(codes_shape: tuple[int, ...], rows_per_scale: int) -> tuple[int, ...]:
    """Shape of the scales of codes (..., rows, k): one per rows_per_scale x 128 block."""
    *batch, rows, k = codes_shape
    return (*batch, num_blocks(rows, rows_per_scale), num_blocks(k))


def dequantize_codes(codes: Array, scales: Array, rows_per_scale: int) -> Array:
    """float32 values of uint8 e4m3 codes (..., rows, k) times their block scales."""
    rows, k = codes.shape[-2:]
    per_row = jnp.repeat(scales, rows_per_scale, axis=-2)[..., :rows, :]
    values = lax.bitcast_convert_type(codes, jnp.float8_e4m3fn).astype(jnp.float32)
    if k % SCALE_BLOCK:
        return values * jnp.repeat(per_row, SCALE_BLOCK, axis=-1)[..., :k]
    blocked = values.reshape(*codes.shape[:-1], k // SCALE_BLOCK, SCALE_BLOCK)
    return (blocked * per_row[..., None]).reshape(codes.shape)


@jax.tree_util.register_pytree_with_keys_class
class BlockScaled:
    """FP8 values and the float32 scales that multiply their blocks: `logical ~ values * scales`.

    Invariants
      * `codes` is uint8 (*batch, rows, k), the bytes of float8_e4m3fn, k contiguous: blocks run along k.
      * `scales` is float32 (*batch, ceil(rows / r), ceil(k / 128)); r is 1 or 128; the last blocks may be short.
        A scale multiplies (checkpoints call it weight_scale_inv).
      * `transposed`, if there, is (codes, scales) of the same values in the order (*batch, k, rows); only for r = 128.
      * `master`, if there, is the unquantised array of the same logical shape: it carries the gradient, unread.
      * The logical order is (rows, k), or (k, rows) after `.T`, which moves no data.

    Args:
      values: float8_e4m3fn, or uint8 codes, of shape (*batch, rows, k).
      scales: float32, shape as above. Not cast: a scale that was rounded to bfloat16 has lost its meaning.
      block: (1, 128) or (128, 128), the extent of one scale in (rows, k).

    Raises:
      TypeError: values or scales of another dtype.
      ValueError: another block, or shapes that don't fit together.

    Source: DeepSeek-V3, arXiv 2412.19437, section 3.3.

    >>> q = jax_fp8.quantize(jnp.ones((4, 256)))
    >>> q.shape, q.scales.shape, q.T.shape
    ((4, 256), (4, 2), (256, 4))
    """

    codes: Array
    scales: Array
    transposed: tuple[Array, Array] | None
    master: Array | None
    rows_per_scale: int
    swapped: bool  # logical order is (k, rows)
    master_swapped: bool  # master is stored (k, rows)

    def __init__(self, values: Any, scales: Any, block: tuple[int, int] = (128, 128)):
        if not hasattr(values, "dtype") or values.dtype not in (E4M3, jnp.uint8):
            raise TypeError(
                f"BlockScaled: values must be float8_e4m3fn (or its bytes as uint8), got {_dtype_name(values)}"
            )
        rows_per_scale = rows_per_scale_of(block, "BlockScaled")
        if values.dtype == E4M3:
            values = lax.bitcast_convert_type(jnp.asarray(values), jnp.uint8)
        self.__dict__.update(self._make(jnp.asarray(values), scales, rows_per_scale).__dict__)
        check(self, "BlockScaled", "")

    @classmethod
    def _make(
        cls,
        codes: Any,
        scales: Any,
        rows_per_scale: int,
        *,
        transposed: Any = None,
        master: Any = None,
        swapped: bool = False,
        master_swapped: bool = False,
    ) -> BlockScaled:
        """Builds without validation: for code that made the parts itself, and for unflattening."""
        self = object.__new__(cls)
        self.codes, self.scales, self.transposed, self.master = codes, scales, transposed, master
        self.rows_per_scale = rows_per_scale
        self.swapped, self.master_swapped = swapped, master_swapped
        return self

    def _replace(self, **changes: Any) -> BlockScaled:
        return self._make(**{**self.__dict__, **changes})

    def tree_flatten_with_keys(self) -> tuple[Any, Any]:
        key = jax.tree_util.GetAttrKey
        names = ("codes", "scales", "transposed", "master")
        static = (self.rows_per_scale, self.swapped, self.master_swapped)
        return [(key(name), getattr(self, name)) for name in names], static

    @classmethod
    def tree_unflatten(cls, static: Any, leaves: Any) -> BlockScaled:
        codes, scales, transposed, master = leaves
        rows_per_scale, swapped, master_swapped = static
        return cls._make(
            codes,
            scales,
            rows_per_scale,
            transposed=transposed,
            master=master,
            swapped=swapped,
            master_swapped=master_swapped,
        )

    @property
    def shape(self) -> tuple[int, ...]:
        *batch, rows, k = self.codes.shape
        return (*batch, k, rows) if self.swapped else (*batch, rows, k)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))

    @property
    def dtype(self) -> np.dtype:
        return E4M3

    @property
    def block(self) -> tuple[int, int]:
        """Extent of one scale along the two last logical axes."""
        stored = (self.rows_per_scale, SCALE_BLOCK)
        return stored[::-1] if self.swapped else stored

    @property
    def values(self) -> Array:
        """The codes as float8_e4m3fn in logical order: to look at; products read `codes`."""
        values = lax.bitcast_convert_type(self.codes, jnp.float8_e4m3fn)
        return jnp.swapaxes(values, -1, -2) if self.swapped else values

    @property
    def mT(self) -> BlockScaled:
        """The two last logical axes exchanged; moves no data."""
        return self._replace(swapped=not self.swapped)

    @property
    def T(self) -> BlockScaled:
        """The transpose of a matrix; moves no data. With leading axes use `.mT`."""
        if self.ndim != 2:
            raise ValueError(f"BlockScaled.T: needs 2 axes, got shape {self.shape}; .mT swaps the last two")
        return self.mT

    def dequantize(self, dtype: Any = jnp.float32) -> Array:
        """values * scales in logical order, computed in float32 and cast to `dtype`."""
        array = dequantize_codes(self.codes, self.scales, self.rows_per_scale).astype(dtype)
        return jnp.swapaxes(array, -1, -2) if self.swapped else array

    def __repr__(self) -> str:
        if not hasattr(self.codes, "shape"):  # leaves may be anything while a pytree is taken apart
            return f"BlockScaled(codes={self.codes!r}, scales={self.scales!r})"
        parts = [name for name in ("transposed", "master") if getattr(self, name) is not None]
        extra = "".join(f", {name}" for name in parts)
        return f"BlockScaled(float8_e4m3fn{list(self.shape)}, block={self.block}{extra})"


def check(q: BlockScaled, op: str, name: str) -> None:
    """Raises unless the parts of `q` fit together; the one checker of eager and traced callers."""
    prefix = f"{op}: {name}." if name else f"{op}: "
    _check_pair(q.codes, q.scales, q.rows_per_scale, prefix, name or "values")
    if q.transposed is None:
        return
    if q.rows_per_scale != SCALE_BLOCK:
        raise ValueError(f"{prefix}transposed needs {SCALE_BLOCK}x{SCALE_BLOCK} blocks, got {q.block}")
    codes, scales = q.transposed
    _check_pair(codes, scales, q.rows_per_scale, f"{prefix}transposed.", "transposed codes")
    expected = (*q.codes.shape[:-2], q.codes.shape[-1], q.codes.shape[-2])
    if codes.shape != expected:
        raise ValueError(f"{prefix}transposed.codes has shape {codes.shape}; codes {q.codes.shape} need {expected}")


def _check_pair(codes: Any, scales: Any, rows_per_scale: int, prefix: str, name: str) -> None:
    if codes.dtype != jnp.uint8:
        raise TypeError(
            f"{prefix}codes must be uint8, got {_dtype_name(codes)}; a tree-wide cast must skip BlockScaled"
        )
    if codes.ndim < 2:
        raise ValueError(f"{prefix}values needs at least 2 axes (rows, k), got shape {codes.shape}")
    if getattr(scales, "dtype", None) != jnp.float32:
        raise TypeError(
            f"{prefix}scales must be float32, got {_dtype_name(scales)}; keep BlockScaled out of casts of a whole tree"
        )
    expected = scales_shape(codes.shape, rows_per_scale)
    if scales.shape != expected:
        *_, rows, k = codes.shape
        raise ValueError(
            f"{prefix}scales has shape {scales.shape}; {name} ({rows}, {k}) "
            f"in {rows_per_scale}x{SCALE_BLOCK} blocks needs {expected}"
        )


def rows_per_scale_of(block: Any, op: str) -> int:
    """1 or 128, from a block argument."""
    try:
        block = tuple(block)
    except TypeError:
        block = (block,)
    if block not in ((1, SCALE_BLOCK), (SCALE_BLOCK, SCALE_BLOCK)):
        raise ValueError(
            f"{op}: block must be (1, 128) or (128, 128), got {block}; for blocks along the first axis "
            "build the transpose and take .T"
        )
    return block[0]


def _dtype_name(x: Any) -> str:
    return str(getattr(x, "dtype", type(x).__name__))
