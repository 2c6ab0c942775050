"""Reads the calls of a benchmark out of a profile: whose kernels belong to which call, and how long they ran.

A profiled session measures cases one after the other. Each call of a case comes right after a flush of the L2 cache,
and one more flush opens the case:

    flush, (flush, idle, warm-up ..., (flush, call) x CALLS) x number of cases

The host waits for every step, so the flushes cut the profile into calls whatever their kernels are called. Whether the
very first flush is seen doesn't matter: a profiler may miss what runs while it starts.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax

CALLS = 21
IDLE_S = 0.1  # a sweep without pauses heats the chip and changes the ranking
WARM_UP_S = 0.03  # after it, so that all rows are timed in the same state
FLUSH_BYTES = 256 << 20  # several times the L2 of an H200; written, so that its lines are dirty
FLUSH_NAME = "l2_flush"

_TRACED_ON_GPU = {"kernel", "gpu_memset", "gpu_memcpy"}  # categories of PyTorch's trace


class Kernel(NamedTuple):
    """Something that ran on the GPU, in microseconds."""

    start: float
    duration: float
    name: str
    module: str = ""  # the jitted function, where XLA says so


def union_us(kernels: list[Kernel]) -> float:
    """Time covered by kernels: work on several streams counts once."""
    covered = end = 0.0
    for kernel in sorted(kernels):
        hidden = max(0.0, end - kernel.start)
        covered += max(0.0, kernel.duration - hidden)  # not from start to stop: starts are too large to be exact
        end = max(end, kernel.start + kernel.duration)
    return covered


def cold_calls(kernels: list[Kernel], is_flush: Callable[[Kernel], bool], cases: int) -> list[list[list[Kernel]]]:
    """The kernels of each call: `cases` lists of CALLS.

    Raises:
      RuntimeError: another number of flushes than such a session has, a call without kernels.
    """
    segments: list[list[Kernel]] = []
    for kernel in sorted(kernels):
        if is_flush(kernel):
            segments.append([])
        elif segments:
            segments[-1].append(kernel)
    per_case = CALLS + 1
    expected = cases * per_case
    if len(segments) - expected not in (0, 1):
        raise RuntimeError(f"the profile shows {len(segments)} flushes, not 1 and {per_case} for each of {cases} cases")
    segments = segments[-expected:]
    found = [segments[i + 1 : i + per_case] for i in range(0, expected, per_case)]
    empty = sum(not call for calls in found for call in calls)
    if empty:
        raise RuntimeError(f"the profile shows no kernel for {empty} of {cases * CALLS} calls")
    return found


def xla_kernels(trace: Path) -> list[Kernel]:
    """What ran on the GPU, from the .xplane.pb file of a jax.profiler trace."""
    found = []
    for plane in jax.profiler.ProfileData.from_file(str(trace)).planes:
        if plane.name.startswith("/device:GPU"):
            for line in plane.lines:
                if line.name.startswith("Stream"):
                    for e in line.events:
                        module = str(dict(e.stats).get("hlo_module", ""))
                        found.append(Kernel(e.start_ns / 1e3, e.duration_ns / 1e3, e.name, module))
    return found


def torch_kernels(trace: Path) -> list[Kernel]:
    """What ran on the GPU, from a Chrome trace that PyTorch's profiler exported."""
    events = json.loads(trace.read_text())["traceEvents"]
    return [Kernel(e["ts"], e["dur"], e["name"]) for e in events if e.get("cat") in _TRACED_ON_GPU]
