"""cuBLASLt's FP8 products through PyTorch, in a process of their own: `python _torch_peers.py FOLDER < REQUEST`.

Started by `_peers`, as a file: it imports nothing of jax_fp8, so that jax and PyTorch, which both bring CUDA libraries
and a memory pool, never share a process. The method is `_timing`'s, in the same order and with the same flush.

REQUEST, one JSON object: "shapes", a list of {"set", "m", "n", "k"}, and "calls", "idle_s", "warm_up_s",
"flush_bytes", "loop_us". Answer: JSON lines, {"versions": {...}} and then for each product {"set", "impl", "m", "n",
"k", "us_event", "us_loop", "trace"}. Its kernel times are in the Chrome trace FOLDER/trace, where the products of these
lines come one after the other, as `_profile` describes it. Notes about what can't be timed go to stderr.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("TEARDOWN_CUPTI", "0")  # read by the profiler: starting CUPTI anew after CUDA graphs has failed

import torch
from torch.profiler import ProfilerActivity, profile

BLOCK = 128
FP8 = torch.float8_e4m3fn


class Product(NamedTuple):
    impl: str
    call: Callable[[], Any]
    operands: tuple[Any, Any]  # what it multiplies, float32
    tolerance: float


def note(text: str) -> None:
    print(f"PyTorch: {text}", file=sys.stderr, flush=True)


# ---- products ------------------------------------------------------------------------------------------------------


def quantise_rows(x: Any) -> tuple[Any, Any]:
    """(r, k) -> codes, and scales (r, k / 128) of 1x128 blocks, column by column as cuBLASLt reads them."""
    blocks = x.float().unflatten(1, (-1, BLOCK))
    scales = blocks.abs().amax(2).clamp(min=1e-12) / 448
    return (blocks / scales[:, :, None]).to(FP8).flatten(1), scales.t().contiguous().t()


def quantise_blocks(x: Any) -> tuple[Any, Any]:
    """(r, k) -> codes, and scales (ceil(r / 128), k / 128) of 128x128 blocks, rows 16 bytes aligned."""
    rows = x.shape[0]
    padded = torch.nn.functional.pad(x.float(), (0, 0, 0, -rows % BLOCK))
    blocks = padded.unflatten(1, (-1, BLOCK)).unflatten(0, (-1, BLOCK))
    scales = blocks.abs().amax((1, 3)).clamp(min=1e-12) / 448
    codes = (blocks / scales[:, None, :, None]).to(FP8).flatten(2).flatten(0, 1)[:rows]
    return codes, torch.nn.functional.pad(scales, (0, -scales.shape[1] % 4))[:, : scales.shape[1]]


def dequantise(codes: Any, scales: Any) -> Any:
    rows, k = codes.shape
    per_row = scales if scales.shape[0] == rows else scales.repeat_interleave(BLOCK, 0)[:rows]
    return codes.float() * per_row.repeat_interleave(BLOCK, 1)[:, :k]


def products(kind: str, m: int, n: int, k: int, device: str = "cuda") -> Iterator[Product]:
    """One scale for all (the ceiling), and the block scales of the set; where cuBLASLt has them."""
    x, w = (torch.randn(rows, k, device=device, dtype=torch.bfloat16) for rows in (m, n))
    one = torch.ones((), device=device)
    a, b = x.to(FP8), w.to(FP8)

    def scaled_mm(a: Any, b: Any, scale_a: Any, scale_b: Any, **options: Any) -> Callable[[], Any]:
        return lambda: torch._scaled_mm(a, b.t(), scale_a=scale_a, scale_b=scale_b, out_dtype=torch.bfloat16, **options)

    fast = scaled_mm(a, b, one, one, use_fast_accum=True)
    yield Product("cublaslt_tensorwise_fast", fast, (a.float(), b.float()), 5e-2)
    if k % BLOCK or m < 2:
        note(f"{m}x{n}x{k}: no block scales, they need k % {BLOCK} == 0 and m > 1")
        return
    a, a_scales = quantise_rows(x)
    b, b_scales = quantise_rows(w) if kind == "W" else quantise_blocks(w)
    impl = "cublaslt_block_1x128_1x128" if kind == "W" else "cublaslt_block_1x128_128x128"
    blockwise = scaled_mm(a, b, a_scales, b_scales.t())
    yield Product(impl, blockwise, (dequantise(a, a_scales), dequantise(b, b_scales)), 2e-2)


def check(product: Product) -> None:
    """Raises ValueError unless the result is finite, and some rows of it are the float32 product of the operands."""
    out = product.call()
    a, b = product.operands
    rows = torch.linspace(0, a.shape[0] - 1, min(8, a.shape[0]), device=a.device).long()
    expected = a[rows] @ b.t()
    error = float((out[rows].float() - expected).norm() / expected.norm())
    if not error < product.tolerance or not bool(out.isfinite().all()):
        raise ValueError(f"its relative error is {error:.2e}, allowed are {product.tolerance:.0e}")


# ---- time ----------------------------------------------------------------------------------------------------------


class Flush:
    """Reads and writes `size` bytes, as `_timing`'s flush does."""

    def __init__(self, size: int) -> None:
        self.source = torch.zeros(size // 4, dtype=torch.int32, device="cuda")
        self.target = torch.empty_like(self.source)

    def __call__(self) -> None:
        torch.add(self.source, 1, out=self.target)


def event_us(call: Callable[[], Any], flush: Flush, calls: int) -> float:
    """Median time between two events around a call, cold L2."""
    call()
    pairs = []
    for _ in range(3):
        flush()  # the host runs ahead of the device
    for _ in range(calls):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        flush()
        start.record()
        call()
        end.record()
        pairs.append((start, end))
    torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(end) for start, end in pairs) * 1e3


def loop_us(call: Callable[[], Any], estimate_us: float, loop_us: float) -> float:
    """Wall time per call in a CUDA graph of back-to-back calls; warm L2."""
    calls = max(2, round(loop_us / estimate_us))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            call()

    def seconds(replays: int) -> float:
        start = time.perf_counter()
        for _ in range(replays):
            graph.replay()
        torch.cuda.synchronize()
        return time.perf_counter() - start

    seconds(2)
    return statistics.median(seconds(2) - seconds(1) for _ in range(3)) / calls * 1e6


def write_profile(found: list[Product], flush: Flush, request: dict[str, Any], path: Path) -> None:
    """One profiled session with all products, as `_profile` reads it."""
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as session:
        flush()
        for product in found:
            flush()
            torch.cuda.synchronize()
            time.sleep(request["idle_s"])
            start = time.perf_counter()
            while time.perf_counter() - start < request["warm_up_s"]:
                product.call()
                torch.cuda.synchronize()
            for _ in range(request["calls"]):
                flush()
                torch.cuda.synchronize()
                product.call()
                torch.cuda.synchronize()
    session.export_chrome_trace(str(path))


def measure(shape: dict[str, Any], flush: Flush, request: dict[str, Any], path: Path) -> list[dict[str, Any]]:
    kind, m, n, k = (shape[key] for key in ("set", "m", "n", "k"))
    rows, found = [], []
    for product in products(kind, m, n, k):
        try:
            check(product)
            us = event_us(product.call, flush, request["calls"])
            loop = loop_us(product.call, us, request["loop_us"])
        except (RuntimeError, ValueError) as error:  # what this cuBLASLt has no kernel for is left out
            note(f"{product.impl} {m}x{n}x{k}: {str(error).splitlines()[0]}")
            continue
        found.append(product._replace(operands=(None, None)))
        rows.append({**shape, "impl": product.impl, "us_event": us, "us_loop": loop, "trace": path.name})
    if found:
        write_profile(found, flush, request, path)
    return rows


def main() -> int:
    folder, request = Path(sys.argv[1]), json.load(sys.stdin)
    if not torch.cuda.is_available():
        note("sees no GPU")
        return 0
    warnings.filterwarnings("ignore", module="torch")
    versions = {"torch": torch.__version__, "cuda_of_torch": torch.version.cuda}
    print(json.dumps({"versions": versions}), flush=True)
    torch.manual_seed(0)
    flush = Flush(request["flush_bytes"])
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True):  # the first session starts CUPTI: seconds
        flush()
        torch.cuda.synchronize()
    for i, shape in enumerate(request["shapes"]):
        name = f"torch_{i}_{shape['set']}_{shape['m']}x{shape['n']}x{shape['k']}.json"
        for row in measure(shape, flush, request, folder / name):
            print(json.dumps(row), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
