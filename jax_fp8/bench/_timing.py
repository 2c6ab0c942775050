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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jax_fp8.bench._profile import (
    CALLS,
    FLUSH_BYTES,
    FLUSH_NAME,
    IDLE_S,
    WARM_UP_S,
    Kernel,
    cold_calls,
    union_us,
    xla_kernels,
)

LOOP_US = 5000  # of one loop; nine run: three times the difference between two and one
MAX_CALLS_IN_BODY = 8  # XLA makes no command buffer of fewer than 5 operations

Call = tuple[Callable[..., Any], tuple[Any, ...]]  # a jitted function, its arguments


@dataclasses.dataclass(frozen=True)
class Timing:
    """Microseconds of one call: median, fastest and slowest of the kernels' time, and wall time in a loop."""

    us: float | None  # None where no device is traced
    us_min: float | None
    us_max: float | None
    us_loop: float
    us_event: float | None = None  # between two CUDA events
    noise: float | None = None  # relative difference between `us` and the same again after all others
    kernels: tuple[str, ...] = ()  # of one call, in order


def _named_flush(scratch: jax.Array) -> jax.Array:
    return scratch + 1


_named_flush.__name__ = FLUSH_NAME  # its kernels carry it in the profile
_flush = jax.jit(_named_flush)


@contextlib.contextmanager
def trace_folder(keep: Path | None) -> Iterator[Path]:
    """The folder `keep`, made if it isn't there; without one a temporary folder."""
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def _cold_calls(calls: Sequence[Call], keep_trace: Path | None) -> list[list[list[Kernel]]]:
    """The kernels of CALLS calls of each function, with a cold L2."""
    scratch = jnp.zeros(FLUSH_BYTES // 4, jnp.int32)
    jax.block_until_ready([_flush(scratch), *(fn(*args) for fn, args in calls)])
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    with trace_folder(keep_trace) as folder, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="builtin type .* has no __module__")  # jax's binding, Python 3.12
        before = set(folder.rglob("*.xplane.pb"))
        with jax.profiler.trace(str(folder), profiler_options=options):
            jax.block_until_ready(_flush(scratch))
            for fn, args in calls:
                jax.block_until_ready(_flush(scratch))
                time.sleep(IDLE_S)
                start = time.perf_counter()
                while time.perf_counter() - start < WARM_UP_S:
                    jax.block_until_ready(fn(*args))
                for _ in range(CALLS):
                    jax.block_until_ready(_flush(scratch))
                    jax.block_until_ready(fn(*args))
        (trace,) = set(folder.rglob("*.xplane.pb")) - before
        return cold_calls(xla_kernels(trace), lambda kernel: FLUSH_NAME in kernel.module, len(calls))


def loop_of(fn: Callable[..., Any], calls: int, trips: int) -> Callable[..., Any]:
    """A function that calls `fn` calls * (trips + 1) times, each call after the one before."""

    def chain(args: Any, out: Any) -> Any:
        outs = []
        for _ in range(calls):
            # arguments that depend on the last result: nothing moves out of the loop. And a result that is used only
            # after the barrier: else XLA drops it there, and then merges the calls, which are all alike
            operands, before = lax.optimization_barrier((args, out))
            outs.append(before)
            out = fn(*operands)
        return (*outs[1:], out)

    # a known number of trips: XLA then doesn't ask the device after each whether there is another
    return lambda *args: lax.fori_loop(0, trips, lambda _, outs: chain(args, outs[-1]), chain(args, None))


def loop_counts(estimate_us: float) -> tuple[int, int]:
    """Calls in the body and trips of a loop of about LOOP_US.

    At least two trips: one is no loop to XLA, which then merges its calls with those in front of it.
    """
    calls = max(1, min(MAX_CALLS_IN_BODY, int(LOOP_US / estimate_us / 3)))
    return calls, max(2, round(LOOP_US / estimate_us / calls) - 1)


def loop_us(fn: Callable[..., Any], args: tuple[Any, ...], estimate_us: float) -> float:
    """Wall time per call inside a compiled loop; warm L2."""
    calls, trips = loop_counts(estimate_us)
    run = jax.jit(loop_of(fn, calls, trips)).lower(*args).compile()

    def seconds(runs: int) -> float:
        start = time.perf_counter()
        for _ in range(runs):
            out = run(*args)
        jax.block_until_ready(out)
        return time.perf_counter() - start

    seconds(2)
    return statistics.median(seconds(2) - seconds(1) for _ in range(3)) / (calls * (trips + 1)) * 1e6


def _call_us(fn: Callable[..., Any], args: tuple[Any, ...]) -> float:
    """Median wall time of single calls: for a CPU, where XLA moves the product out of any loop."""
    times = []
    for _ in range(CALLS):
        start = time.perf_counter()
        jax.block_until_ready(fn(*args))
        times.append((time.perf_counter() - start) * 1e6)
    return statistics.median(times)


def measure(calls: Sequence[Call], keep_trace: Path | None = None) -> list[Timing]:
    """Times jitted functions one after the other, and the first once more after the last: that bounds the noise.

    The profile stays in the folder `keep_trace`, if given. On a CPU only single calls are timed.
    """
    if jax.devices()[0].platform != "gpu":
        tracing = contextlib.nullcontext() if keep_trace is None else jax.profiler.trace(str(keep_trace))
        with tracing:
            return [Timing(None, None, None, _call_us(*call)) for call in calls]
    found = _cold_calls([*calls, calls[0]], keep_trace)
    times = [[union_us(kernels) for kernels in case] for case in found]
    medians = [statistics.median(case) for case in times]
    noise = abs(medians[0] - medians[-1]) / min(medians[0], medians[-1])
    return [
        Timing(
            us=medians[i],
            us_min=min(times[i]),
            us_max=max(times[i]),
            us_loop=loop_us(*call, medians[i]),
            noise=noise if i == 0 else None,
            kernels=tuple(kernel.name for kernel in found[i][-1]),
        )
        for i, call in enumerate(calls)
    ]
