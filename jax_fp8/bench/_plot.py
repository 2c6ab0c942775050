"""The roofline picture: what each product reaches, under what the chip can do; names stand beside what they name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jax_fp8.bench._report import Row

COPY_TBPS = 4.3  # H200, read plus write of a large device copy
FP8_TFLOPS = 1979  # H200, datasheet

# name in the picture, colour, by implementation; drawn in this order, ours last and largest
_STYLES = {
    "jnp_bf16": ("jnp.dot in bfloat16", "#9a9a9a"),
    "dequantise_bf16": ("dequantised, then bfloat16", "#c9a77c"),
    "cublaslt_block_1x128_128x128": ("cuBLASLt, block scales", "#4c9a6a"),
    "xla_fp8": ("XLA FP8, one scale", "#b58fd0"),
    "cublaslt_tensorwise_fast": ("cuBLASLt FP8, one scale", "#5b8ec4"),
    "jax_fp8": ("jax_fp8, block scales", "#d1361f"),
}
_INK = "#444444"


def _spread(heights: Sequence[float], gap: float) -> list[float]:
    """The heights, from low to high, moved as little as keeps them `gap` apart: crowded ones around their middle."""
    groups: list[list[float]] = []
    for height in heights:
        groups.append([height])
        while len(groups) > 1 and _bottom(groups[-1], gap) < _bottom(groups[-2], gap) + gap * len(groups[-2]):
            crowd = groups.pop()
            groups[-1] += crowd
    return [_bottom(group, gap) + gap * i for group in groups for i in range(len(group))]


def _bottom(group: Sequence[float], gap: float) -> float:
    return sum(group) / len(group) - gap * (len(group) - 1) / 2


def _label_at_the_edge(axes: Any, last: dict[str, tuple[float, float]], edge: float) -> None:
    """Names each implementation at the right edge, with a line from its rightmost point."""
    bottom, top = (math.log10(limit) for limit in axes.get_ylim())
    order = sorted(last, key=lambda impl: last[impl][1])
    heights = _spread([math.log10(last[impl][1]) for impl in order], gap=(top - bottom) / 26)
    for impl, height in zip(order, heights, strict=True):
        text, color = _STYLES[impl]
        ours = impl == "jax_fp8"
        axes.annotate(
            text,
            xy=last[impl],
            xytext=(edge, 10**height),
            color=color,
            weight="bold" if ours else "normal",
            fontsize=11 if ours else 9.5,
            va="center",
            arrowprops={"arrowstyle": "-", "color": color, "lw": 0.8, "shrinkB": 4, "relpos": (0, 0.5)},
            annotation_clip=False,
        )


def _intensities(rows: Sequence[Row]) -> dict[str, list[float]]:
    """FLOP per byte of FP8 products by their m; prefill's lie too close together to be told apart."""
    found: dict[str, list[float]] = {}
    for row in rows:
        if row["impl"] != "jnp_bf16":
            label = f"m={row['m']}" if row["set"] == "D" else "prefill and training"
            found.setdefault(label, []).append(row["flops_per_byte"])
    return found


def write_plot(path: Path, document: dict[str, Any]) -> None:
    """TFLOP/s over FLOP per byte of the products of sets D and P.

    Raises:
      ValueError: the document has none.
    """
    from matplotlib.figure import Figure

    points: dict[str, list[Row]] = {impl: [] for impl in _STYLES}
    for row in document["rows"]:
        if row["set"] in ("D", "P") and row["impl"] in _STYLES:
            points[row["impl"]].append(row)
    rows = [row for found in points.values() for row in found]
    if not rows:
        raise ValueError("no row is a product of sets decode or prefill: nothing to draw")
    low = min(row["flops_per_byte"] for row in rows) / 1.6
    high = max(row["flops_per_byte"] for row in rows) * 1.6
    bottom = min(row["tflops"] for row in rows) / 2
    top = FP8_TFLOPS * 2.2

    figure = Figure(figsize=(10, 6), layout="constrained")
    axes = figure.add_subplot()
    ridge = FP8_TFLOPS / COPY_TBPS
    axes.plot([low, ridge, high], [low * COPY_TBPS, FP8_TFLOPS, FP8_TFLOPS], color=_INK, lw=1.5)
    axes.fill_between([low, ridge, high], [low * COPY_TBPS, FP8_TFLOPS, FP8_TFLOPS], top, color="#f1f1f1", lw=0)
    for impl, found in points.items():
        ours = impl == "jax_fp8"
        axes.plot(
            [row["flops_per_byte"] for row in found],
            [row["tflops"] for row in found],
            "o",
            color=_STYLES[impl][1],
            ms=8 if ours else 4.5,
            alpha=1 if ours else 0.75,
            mec="white",
            mew=0.7 if ours else 0.3,
            zorder=3 if ours else 2,
        )
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(bottom, top))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.text(
        high / 1.1, FP8_TFLOPS * 1.08, f"FP8 tensor cores: {FP8_TFLOPS} TFLOP/s (datasheet)", color=_INK, ha="right"
    )
    unscaled = [row["tflops"] for impl in ("cublaslt_tensorwise_fast", "xla_fp8") for row in points[impl]]
    if unscaled and max(unscaled) > ridge:
        reached = max(unscaled)
        axes.plot([reached / COPY_TBPS, high], [reached, reached], color=_INK, lw=1, ls=(0, (4, 3)))
        note = f"most reached without block scales: {reached:.0f} TFLOP/s"
        axes.text(reached / COPY_TBPS * 0.97, reached, note, color=_INK, ha="right", va="center", fontsize=9)
    figure.canvas.draw()  # places the axes: the slope of the memory line depends on it
    at = math.sqrt(low * ridge) if low < ridge else low
    ends = axes.transData.transform([(low, low * COPY_TBPS), (ridge, FP8_TFLOPS)])
    angle = math.degrees(math.atan2(ends[1][1] - ends[0][1], ends[1][0] - ends[0][0]))
    memory = f"memory: {COPY_TBPS} TB/s"
    axes.text(at, at * COPY_TBPS * 1.25, memory, color=_INK, rotation=angle, rotation_mode="anchor", ha="center")
    axes.grid(which="major", color="#e6e6e6", lw=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for label, xs in _intensities(rows).items():
        middle = math.sqrt(min(xs) * max(xs))
        axes.text(middle, bottom * 1.15, label, color=_INK, ha="center", fontsize=8.5)
    _label_at_the_edge(
        axes,
        {impl: max((row["flops_per_byte"], row["tflops"]) for row in found) for impl, found in points.items() if found},
        high * 1.06,
    )
    axes.set_xlabel("arithmetic intensity: FLOP per byte of operands and result")
    axes.set_ylabel("TFLOP/s (higher is better)")
    axes.set_title(f"Matrix products on {document['device']}, kernel time with a cold L2, {document['date']}")
    figure.savefig(path, dpi=150)
