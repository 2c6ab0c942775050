"""Results: rows, the table a person reads, the JSON file, the roofline picture."""

from __future__ import annotations

import datetime
import json
import platform
import subprocess
from pathlib import Path
from typing import Any

import jax
import jaxlib.version

import jax_fp8
from jax_fp8.bench._cases import Case
from jax_fp8.bench._shapes import Shape
from jax_fp8.bench._timing import CALLS, FLUSH_BYTES, IDLE_S, Timing

METHOD = (
    f"us: kernel time by the XLA profiler, median of {CALLS} calls, {FLUSH_BYTES >> 20} MiB written before each, "
    f"{IDLE_S:g} s idle before each row, then warm-up; us_loop: wall time per call in a compiled loop (on a CPU: of "
    "single calls); random normal data, results checked first"
)
COPY_TBPS = 4.3  # H200, read plus write of a large device copy
FP8_TFLOPS = 1979  # H200, datasheet
Row = dict[str, Any]


def row(shape: Shape, case: Case, timing: Timing) -> Row:
    us = timing.us_loop if timing.us is None else timing.us
    return {
        "set": shape.set,
        "impl": case.impl,
        "m": shape.m,
        "n": shape.n,
        "k": shape.k,
        "us": timing.us,
        "us_min": timing.us_min,
        "us_max": timing.us_max,
        "us_loop": timing.us_loop,
        "tflops": case.flops / us / 1e6,
        "gbps": case.bytes / us / 1e3,
        "flops_per_byte": case.flops / case.bytes,
        "config": case.config,
    }


COLUMNS = ("kernel us", "min", "max", "loop us")
HEADER = (
    f"{'set':3} {'m x n x k':20} {'impl':20} {' '.join(f'{name:>9}' for name in COLUMNS)} {'TFLOP/s':>8} {'GB/s':>6}"
    "  configuration"
)


def line(row: Row) -> str:
    times = [" " * 8 + "-" if row[key] is None else f"{row[key]:9.1f}" for key in ("us", "us_min", "us_max", "us_loop")]
    shape = f"{row['m']}x{row['n']}x{row['k']}"
    rates = f"{row['tflops']:8.0f} {row['gbps']:6.0f}"
    return f"{row['set']:3} {shape:20} {row['impl']:20} {' '.join(times)} {rates}  {row['config']}".rstrip()


def driver_version() -> str | None:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout.split()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return None


def write_json(path: Path, rows: list[Row]) -> None:
    """One row per (set, impl, m, n, k), with the device, the versions and the method."""
    versions = {"jax": jax.__version__, "jaxlib": jaxlib.version.__version__, "jax_fp8": jax_fp8.__version__}
    text = {
        "device": jax.devices()[0].device_kind,
        "driver": driver_version(),
        "date": datetime.date.today().isoformat(),
        "versions": {**versions, "python": platform.python_version()},
        "method": METHOD,
        "rows": rows,
    }
    path.write_text(json.dumps(text, indent=1) + "\n")


def write_plot(path: Path, rows: list[Row]) -> None:
    """TFLOP/s over FLOP/byte, each implementation labelled beside its last point, under the H200's two ceilings."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.add_subplot()
    measured = [r for r in rows if r["tflops"] > 0]
    if not measured:
        raise ValueError("--plot: no row is a product; quantisers have no place in a roofline of FLOPs")
    impls = dict.fromkeys(r["impl"] for r in measured)
    for impl in impls:
        points = sorted((r["flops_per_byte"], r["tflops"]) for r in measured if r["impl"] == impl)
        (dots,) = axes.plot(*zip(*points, strict=True), "o", label=impl)
        axes.annotate(f" {impl}", points[-1], color=dots.get_color(), va="center")
    low, high = min(r["flops_per_byte"] for r in measured) / 2, max(r["flops_per_byte"] for r in measured) * 8
    ridge = FP8_TFLOPS / COPY_TBPS
    axes.plot([low, ridge, high], [low * COPY_TBPS, FP8_TFLOPS, FP8_TFLOPS], color="0.6")
    axes.annotate("FP8 peak 1979", (high, FP8_TFLOPS), color="0.4", ha="right", va="bottom")
    axes.annotate("memory 4.3 TB/s", (low, low * COPY_TBPS), color="0.4", va="bottom")
    axes.set(xscale="log", yscale="log", xlim=(low, high), xlabel="FLOP per byte", ylabel="TFLOP/s")
    axes.set_title(f"{jax.devices()[0].device_kind}, {datetime.date.today().isoformat()}")
    figure.savefig(path, dpi=150)
