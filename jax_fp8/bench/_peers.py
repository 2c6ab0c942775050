"""Rows of cuBLASLt's products: starts `_torch_peers` in its own process, and reads its lines and profiles."""

from __future__ import annotations

import importlib.util
import json
import statistics
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from jax_fp8.bench import _timing
from jax_fp8.bench._profile import (
    CALLS,
    FLUSH_BYTES,
    IDLE_S,
    WARM_UP_S,
    Kernel,
    cold_calls,
    torch_kernels,
    union_us,
)
from jax_fp8.bench._report import Row, row
from jax_fp8.bench._shapes import Shape

SCRIPT = Path(__file__).with_name("_torch_peers.py")


def measure(shapes: Sequence[Shape], keep_trace: Path | None, versions: dict[str, Any]) -> Iterator[Row]:
    """One row per product that cuBLASLt has for the shapes, as they get ready; none without PyTorch.

    Args:
      keep_trace: folder where the profiles stay, if given.
      versions: PyTorch's are added.
    """
    if importlib.util.find_spec("torch") is None:
        print("PyTorch isn't installed: no rows of cuBLASLt's block-scaled products.", file=sys.stderr)
        return
    request = {
        "shapes": [{"set": s.set, "m": s.m, "n": s.n, "k": s.k} for s in shapes],
        "calls": CALLS,
        "idle_s": IDLE_S,
        "warm_up_s": WARM_UP_S,
        "flush_bytes": FLUSH_BYTES,
        "loop_us": _timing.LOOP_US,
    }
    with _timing.trace_folder(keep_trace) as folder:
        command = [sys.executable, "-P", str(SCRIPT), str(folder)]  # -P: its folder is no place to import from
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            json.dump(request, process.stdin)
            process.stdin.close()
            yield from read(process.stdout, folder, versions)
        if process.returncode:
            print(f"PyTorch: ended with status {process.returncode}, rows may be missing", file=sys.stderr)


def read(lines: Iterable[str], folder: Path, versions: dict[str, Any]) -> Iterator[Row]:
    """Rows from the lines that `_torch_peers` prints; those of one profile stand together."""
    waiting: list[dict[str, Any]] = []
    for line in lines:
        answer = json.loads(line)
        if "versions" in answer:
            versions.update(answer["versions"])
            continue
        if waiting and answer["trace"] != waiting[0]["trace"]:
            yield from _rows(waiting, folder)
            waiting = []
        waiting.append(answer)
    yield from _rows(waiting, folder)


def _rows(answers: list[dict[str, Any]], folder: Path) -> Iterator[Row]:
    if not answers:
        return
    trace = answers[0]["trace"]
    try:
        found = _cold_calls(torch_kernels(folder / trace), len(answers))
    except RuntimeError as error:
        print(f"PyTorch: {trace}: {error}; left out", file=sys.stderr)
        return
    for answer, case in zip(answers, found, strict=True):
        shape = Shape(answer["set"], answer["m"], answer["n"], answer["k"])
        times = [union_us(kernels) for kernels in case]
        timing = _timing.Timing(
            us=statistics.median(times),
            us_min=min(times),
            us_max=max(times),
            us_loop=answer["us_loop"],
            us_event=answer["us_event"],
            kernels=tuple(kernel.name for kernel in case[-1]),
        )
        yield row(shape, answer["impl"], timing, shape.flops, shape.fp8_bytes)


def _cold_calls(kernels: list[Kernel], cases: int) -> list[list[list[Kernel]]]:
    """The session starts with a flush, so its first kernel's name is that of the flushes."""
    first = min(kernels).name if kernels else ""
    return cold_calls(kernels, lambda kernel: kernel.name == first, cases)
