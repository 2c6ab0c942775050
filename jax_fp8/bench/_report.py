"""Results: rows, the table a person reads, the JSON file."""

from __future__ import annotations

import datetime
import json
import platform
import statistics
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jaxlib.version

import jax_fp8
from jax_fp8.bench._profile import CALLS, FLUSH_BYTES, IDLE_S
from jax_fp8.bench._shapes import Shape
from jax_fp8.bench._timing import Timing

METHOD = (
    "us: kernel time by the XLA profiler (PyTorch's products: by its own), union of the kernels of a call, median of "
    f"{CALLS} calls, {FLUSH_BYTES >> 20} MiB read and as much written before each, {IDLE_S:g} s idle before each row, "
    "then warm-up; us_loop: wall time per call in a compiled loop or CUDA graph (on a CPU: of single calls); us_event: "
    "between two CUDA events; noise: relative difference to a second measurement of the same; random normal data, "
    "results checked first"
)
Row = dict[str, Any]
_DIGITS = {"us": 3, "us_min": 3, "us_max": 3, "us_loop": 3, "us_event": 3, "noise": 4}


def row(shape: Shape, impl: str, timing: Timing, flops: int, moved: int, config: str = "") -> Row:
    us = timing.us_loop if timing.us is None else timing.us
    times = {key: None if (t := getattr(timing, key)) is None else round(t, n) for key, n in _DIGITS.items()}
    return {
        "set": shape.set,
        "impl": impl,
        "m": shape.m,
        "n": shape.n,
        "k": shape.k,
        **times,
        "tflops": round(flops / us / 1e6, 2),
        "gbps": round(moved / us / 1e3, 1),
        "flops_per_byte": round(flops / moved, 2),
        "kernels": len(timing.kernels),
        "config": config,
    }


COLUMNS = {"us": "kernel us", "us_min": "min", "us_max": "max", "us_loop": "loop us"}
HEADER = (
    f"{'set':3} {'m x n x k':18} {'impl':29} {' '.join(f'{name:>9}' for name in COLUMNS.values())} {'TFLOP/s':>8} "
    f"{'GB/s':>6}  configuration"
)


def line(row: Row) -> str:
    times = [" " * 8 + "-" if row[key] is None else f"{row[key]:9.1f}" for key in COLUMNS]
    shape = f"{row['m']}x{row['n']}x{row['k']}"
    rates = f"{row['tflops']:8.0f} {row['gbps']:6.0f}"
    kernels = ", ".join(dict.fromkeys(product.split(":")[0] for product in row["config"].split(" | ")))
    return f"{row['set']:3} {shape:18} {row['impl']:29} {' '.join(times)} {rates}  {kernels}".rstrip()


def noise_line(rows: Sequence[Row]) -> str | None:
    """How far two measurements of the same were apart; a difference below that says nothing."""
    noise = [100 * r["noise"] for r in rows if r["noise"] is not None]
    if not noise:
        return None
    return f"noise, the same timed twice: median {statistics.median(noise):.1f} %, largest {max(noise):.1f} %"


def driver_version() -> str | None:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout.split()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return None


def versions() -> dict[str, Any]:
    return {
        "jax": jax.__version__,
        "jaxlib": jaxlib.version.__version__,
        "jax_fp8": jax_fp8.__version__,
        "python": platform.python_version(),
        "jax_backend": jax.devices()[0].client.platform_version.strip().replace("\n", ", "),
    }


def document(rows: Sequence[Row], versions: dict[str, Any]) -> dict[str, Any]:
    """One row per (set, impl, m, n, k), with the device, the versions and the method."""
    return {
        "device": jax.devices()[0].device_kind,
        "driver": driver_version(),
        "date": datetime.date.today().isoformat(),
        "versions": versions,
        "method": METHOD,
        "rows": list(rows),
    }


def write_json(path: Path, document: dict[str, Any]) -> None:
    """One line per row: two runs can be compared line by line."""
    head = json.dumps({key: value for key, value in document.items() if key != "rows"}, indent=1)
    rows = ",\n".join("  " + json.dumps(row) for row in document["rows"])
    path.write_text(f'{head[: -len("}")].rstrip()},\n "rows": [\n{rows}\n ]\n}}\n')
