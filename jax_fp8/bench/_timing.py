"""How time is taken: kernel time from the XLA profiler, wall time from a long jitted loop.

XLA turns command buffers off while a profile is taken, so the two answer different questions.
"""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

CALLS = 21
IDLE_S = 0.1  # a sweep without pauses heats the chip and changes the ranking
WARM_UP_S = 0.03  # after it: an idle chip starts at a fraction of its clock
FLUSH_BYTES = 256 << 20  # several times the L2 of an H200; written, so that its lines are dirty
LOOP_S = 0.1  # wall time that a loop should take


@dataclasses.dataclass(frozen=True)
class Timing:
    """Microseconds of one call: median, fastest and slowest of the kernels' time, and wall time in a loop."""

    us: float | None  # None where no device is traced
    us_min: float | None
    us_max: float | None
    us_loop: float


@jax.jit
def _overwrite(scratch: jax.Array) -> jax.Array:
    return scratch + 1


@contextlib.contextmanager
def _trace_folder(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def union_ns(intervals: list[tuple[float, float]]) -> float:
    """Time covered by (start, duration) intervals: work on several streams counts once."""
    covered = end = 0.0
    for start, duration in sorted(intervals):
        stop = start + duration
        covered += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return covered


def device_intervals(trace: Path, module: str) -> list[tuple[float, float]]:
    """(start, duration) in ns of every kernel that the jitted function `module` ran, from a .xplane.pb file."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="builtin type .* has no __module__")  # jax's binding, Python 3.12
        return sorted(
            (event.start_ns, event.duration_ns)
            for plane in jax.profiler.ProfileData.from_file(str(trace)).planes
            if plane.name.startswith("/device:GPU")
            for line in plane.lines
            if line.name.startswith("Stream")
            for event in line.events
            if dict(event.stats).get("hlo_module") == module
        )


def kernel_us(fn: Callable[..., Any], args: tuple[Any, ...], keep_trace: Path | None = None) -> list[float]:
    """Microseconds of each of CALLS calls of a jitted function, with a cold L2; empty where no device is traced."""
    scratch = jnp.zeros(FLUSH_BYTES // 4, jnp.int32)
    jax.block_until_ready((_overwrite(scratch), fn(*args)))
    time.sleep(IDLE_S)
    with _trace_folder(keep_trace) as folder:
        before = set(folder.rglob("*.xplane.pb"))
        start = time.perf_counter()
        while time.perf_counter() - start < WARM_UP_S:
            jax.block_until_ready(fn(*args))
        with jax.profiler.trace(str(folder)):
            for _ in range(CALLS):
                jax.block_until_ready(_overwrite(scratch))
                jax.block_until_ready(fn(*args))
        (trace,) = set(folder.rglob("*.xplane.pb")) - before
        intervals = device_intervals(trace, f"jit_{fn.__name__}")
    if len(intervals) % CALLS:
        raise RuntimeError(
            f"the profile shows {len(intervals)} kernels of {fn.__name__}, not a multiple of {CALLS} calls"
        )
    per_call = len(intervals) // CALLS
    return [union_ns(intervals[i : i + per_call]) / 1e3 for i in range(0, len(intervals), max(per_call, 1))]


def loop_us(fn: Callable[..., Any], args: tuple[Any, ...]) -> float:
    """Wall time per call inside one compiled loop, where each call waits for the one before; warm L2."""

    def repeat(times: Any, *args: Any) -> Any:
        def body(_: Any, out: Any) -> Any:
            # each call's arguments depend on the last result: nothing moves out of the loop
            operands, _ = lax.optimization_barrier((args, out))
            return fn(*operands)

        return lax.fori_loop(0, times, body, fn(*args))

    run = jax.jit(repeat).lower(0, *args).compile()

    def seconds(times: int) -> float:
        start = time.perf_counter()
        jax.block_until_ready(run(times, *args))
        return time.perf_counter() - start

    seconds(1)
    few = 10
    base = min(seconds(few) for _ in range(3))
    many = few + max(10, int(few * LOOP_S / base))
    return (statistics.median(seconds(many) for _ in range(3)) - base) / (many - few) * 1e6


def call_us(fn: Callable[..., Any], args: tuple[Any, ...]) -> float:
    """Median wall time of single calls: for a CPU, where XLA moves the product out of any loop."""
    times = []
    for _ in range(CALLS):
        start = time.perf_counter()
        jax.block_until_ready(fn(*args))
        times.append((time.perf_counter() - start) * 1e6)
    return statistics.median(times)


def measure(fn: Callable[..., Any], args: tuple[Any, ...], keep_trace: Path | None = None) -> Timing:
    """Times a jitted function; its profile stays in the folder `keep_trace`, if given."""
    us = kernel_us(fn, args, keep_trace)
    if not us:
        return Timing(None, None, None, call_us(fn, args))
    return Timing(statistics.median(us), min(us), max(us), loop_us(fn, args))
