"""The sets of shapes that are measured, and how one is named on the command line."""

from __future__ import annotations

import dataclasses
import itertools
import re

_NK = ((2112, 7168), (576, 7168), (24576, 1536), (32768, 512), (7168, 16384), (4096, 7168), (7168, 2048))


@dataclasses.dataclass(frozen=True)
class Shape:
    """One product: `set` says which kind. n = 0 in set Q (m rows, k columns); in set T m tokens, n ff, k d_model."""

    set: str  # D decode, P prefill, W weight gradient, Q quantise, E dot with quantisation, T MLP forward and backward
    m: int
    n: int
    k: int

    def __str__(self) -> str:
        return f"{self.set} {self.m}x{self.n}x{self.k}"

    @property
    def is_product(self) -> bool:
        """Whether it's one product of two quantised matrices."""
        return self.set in ("D", "P", "W")

    @property
    def rows_per_b_scale(self) -> int:
        return 1 if self.set == "W" else 128

    @property
    def flops(self) -> int:
        return 2 * self.m * self.n * self.k

    @property
    def fp8_bytes(self) -> int:
        """Codes read once, a bfloat16 result written once."""
        return (self.m + self.n) * self.k + 2 * self.m * self.n


def _product(name: str, rows: tuple[int, ...]) -> list[Shape]:
    return [Shape(name, m, n, k) for m, (n, k) in itertools.product(rows, _NK)]


SETS: dict[str, list[Shape]] = {
    "decode": _product("D", (1, 16, 64, 128)),
    "prefill": [*_product("P", (4096, 16384)), Shape("P", 4096, 4096, 4096), Shape("P", 8192, 8192, 8192)],
    # as an output (n, k), contracted over 4096 and 16384 tokens
    "wgrad": [Shape("W", n, k, tokens) for tokens, (n, k) in itertools.product((4096, 16384), _NK)],
    "quantise": [Shape("Q", m, 0, k) for m, k in ((4096, 7168), (8192, 8192), (16384, 16384))],
    "dot": [Shape("E", m, n, k) for m, n, k in ((4096, 4096, 4096), (4096, 7168, 16384), (8192, 8192, 8192))],
    "mlp": [Shape("T", 8192, 14336, 4096)],
}


def parse(text: str) -> list[Shape]:
    """The shapes that `text` names: a set, or MxNxK, which is measured as set P.

    Raises:
      ValueError: anything else.
    """
    if text in SETS:
        return SETS[text]
    match = re.fullmatch(r"(\d+)x(\d+)x(\d+)", text)
    if match is None or min(map(int, match.groups())) < 1:
        raise ValueError(f"a set is one of {', '.join(SETS)}, or MxNxK with positive extents; got {text!r}")
    m, n, k = map(int, match.groups())
    return [Shape("P", m, n, k)]
