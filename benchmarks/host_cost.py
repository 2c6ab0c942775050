"""Host time of one call inside a compiled function, ours beside XLA's cuBLASLt calls: python benchmarks/host_cost.py

A jitted function makes CALLS small products one after the other, without command buffers, and without Triton, so that
XLA calls cuBLASLt. The kernels are shorter than the host takes to start them (both are printed), so the host is timed.
"""

import os

os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_gpu_enable_command_buffer= --xla_gpu_enable_triton_gemm=false"
)

import statistics
import tempfile
import time
from pathlib import Path

import jax

from jax_fp8.bench._cases import cases
from jax_fp8.bench._profile import xla_kernels
from jax_fp8.bench._shapes import Shape
from jax_fp8.bench._timing import loop_of

CALLS = 300
RUNS = 15

for case in cases(Shape("P", 64, 512, 512)):
    if case.impl == "dequantise_bf16":  # two calls
        continue
    # a loop that is never entered, behind the calls in front of it
    run = jax.jit(loop_of(case.fn, CALLS, 0)).lower(*case.args).compile()
    targets = sorted({text.split('"')[0] for text in run.as_text().split('custom_call_target="')[1:]})
    jax.block_until_ready(run(*case.args))
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        jax.block_until_ready(run(*case.args))
        times.append((time.perf_counter() - start) / CALLS * 1e6)
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            jax.block_until_ready(run(*case.args))
        (trace,) = Path(folder).rglob("*.xplane.pb")
        on_device = sum(kernel.duration for kernel in xla_kernels(trace)) / CALLS
    called = ", ".join(targets) or "no library"
    print(f"{case.impl:10} {statistics.median(times):6.2f} us a call, {on_device:.2f} us of it on the GPU ({called})")
