"""Times products under the XLA profiler, after checking them against the oracle: `python -m jax_fp8.bench [MxNxK ...]`.

Kernel time: the device plane of a `jax.profiler` trace, median over calls, the L2 cache flushed before each by writing
256 MiB, inputs random normal, 100 ms of idle before each row. Wall time: a loop of asynchronous calls, divided by their
number.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jax_fp8
from jax_fp8 import testing

CALLS = 21
IDLE_S = 0.1
FLUSH_BYTES = 256 << 20
DEFAULT_SHAPES = ("4096x4096x7168", "8192x8192x8192")


def parse_shape(text: str) -> tuple[int, int, int]:
    match = re.fullmatch(r"(\d+)x(\d+)x(\d+)", text)
    if match is None or min(map(int, match.groups())) < 1:
        raise argparse.ArgumentTypeError(
            f"a shape is MxNxK with positive extents, such as 4096x7168x2048; got {text!r}"
        )
    m, n, k = map(int, match.groups())
    return m, n, k


def kernel_microseconds(call: Callable[[], Any], module: str) -> float | None:
    """Median device time of one `call` of the jitted function named `module`; None where no device is traced."""
    flush = jax.jit(lambda x: x + 1)
    scratch = jnp.zeros(FLUSH_BYTES // 4, jnp.int32)
    jax.block_until_ready((flush(scratch), call()))
    time.sleep(IDLE_S)
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            for _ in range(CALLS):
                flush(scratch)
                jax.block_until_ready(call())
        (trace,) = Path(folder).rglob("*.xplane.pb")
        profile = jax.profiler.ProfileData.from_file(str(trace))
    warnings.filterwarnings("ignore", message="builtin type event_stats")  # of jax's own binding, Python 3.12
    events = [
        (event.start_ns, event.duration_ns)
        for plane in profile.planes
        if plane.name.startswith("/device:GPU")
        for line in plane.lines
        if line.name.startswith("Stream")
        for event in line.events
        if dict(event.stats).get("hlo_module") == module
    ]
    if not events or len(events) % CALLS:
        return None
    per_call = len(events) // CALLS
    durations = [duration for _, duration in sorted(events)]
    return statistics.median(sum(durations[i : i + per_call]) for i in range(0, len(durations), per_call)) / 1e3


def wall_microseconds(call: Callable[[], Any]) -> float:
    jax.block_until_ready(call())
    start = time.perf_counter()
    for _ in range(CALLS):
        result = call()
    jax.block_until_ready(result)
    return (time.perf_counter() - start) / CALLS * 1e6


def check_rows(a: jax_fp8.BlockScaled, b: jax_fp8.BlockScaled, out: jax.Array, rows: int = 8) -> None:
    """Compares some rows of the product with the oracle."""
    picked = np.linspace(0, a.shape[0] - 1, min(rows, a.shape[0])).astype(int)
    part = jax_fp8.BlockScaled(a.codes[picked], a.scales[picked], (1, 128))
    testing.assert_matmul_close(out[picked], part, b)


def measure(m: int, n: int, k: int) -> list[dict[str, Any]]:
    keys = jax.random.split(jax.random.key(0))
    x = jax.random.normal(keys[0], (m, k), jnp.bfloat16)
    w = jax.random.normal(keys[1], (n, k), jnp.bfloat16)
    a, b = jax_fp8.quantize(x), jax_fp8.quantize(w, (128, 128))

    @jax.jit
    def fp8_product(a: jax_fp8.BlockScaled, b: jax_fp8.BlockScaled) -> jax.Array:
        return jax_fp8.blockwise_matmul(a, b)

    @jax.jit
    def bf16_product(x: jax.Array, w: jax.Array) -> jax.Array:
        return jnp.dot(x, w.T)

    check_rows(a, b, fp8_product(a, b))
    choice = jax_fp8.explain(jax_fp8.blockwise_matmul, a, b).products[0]
    calls: dict[str, tuple[Callable[[], Any], str, str]] = {
        "jax_fp8": (lambda: fp8_product(a, b), "jit_fp8_product", choice.kernel),
        "jnp_bf16": (lambda: bf16_product(x, w), "jit_bf16_product", ""),
    }
    rows = []
    for impl, (call, module, config) in calls.items():
        kernel, wall = kernel_microseconds(call, module), wall_microseconds(call)
        us = wall if kernel is None else kernel
        rows.append(
            {
                "impl": impl,
                "m": m,
                "n": n,
                "k": k,
                "us": kernel,
                "us_wall": wall,
                "tflops": 2 * m * n * k / us / 1e6,
                "config": config,
            }
        )
    return rows


def print_row(row: dict[str, Any]) -> None:
    kernel = "      -" if row["us"] is None else f"{row['us']:9.1f}"
    shape = f"{row['m']}x{row['n']}x{row['k']}"
    print(
        f"{shape:20} {row['impl']:10} {kernel} {row['us_wall']:9.1f} {row['tflops']:8.0f}  {row['config']}", flush=True
    )


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m jax_fp8.bench", description=__doc__.splitlines()[0])
    parser.add_argument("shapes", nargs="*", type=parse_shape, default=[parse_shape(s) for s in DEFAULT_SHAPES])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows and the method to FILE")
    args = parser.parse_args(argv)
    device = jax.devices()[0]
    if device.platform != "gpu":
        print("No GPU: kernel times can't be measured; wall times of the jax.numpy path follow.", file=sys.stderr)
    print(f"{device.device_kind}, jax {jax.__version__}, median of {CALLS} calls, L2 flushed")
    print(f"{'m x n x k':20} {'impl':10} {'kernel us':>9} {'wall us':>9} {'TFLOP/s':>8}  configuration")
    rows = []
    for shape in args.shapes:
        for row in measure(*shape):
            print_row(row)
            rows.append(row)
    if args.json:
        versions = {"jax": jax.__version__, "jax_fp8": jax_fp8.__version__}
        text = {"device": device.device_kind, "versions": versions, "method": __doc__, "rows": rows}
        args.json.write_text(json.dumps(text, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
