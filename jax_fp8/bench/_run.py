"""One run of the benchmark: checks and times shape after shape, then starts PyTorch's part."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence

import jax

from jax_fp8.bench import _peers, _report
from jax_fp8.bench._cases import OURS, Case, cases, config_names
from jax_fp8.bench._compare import BLOCK, CEILING
from jax_fp8.bench._shapes import Shape
from jax_fp8.bench._timing import measure


def progress(text: str) -> None:
    """Says what goes on, beside the table."""
    print(text, file=sys.stderr, flush=True)


class Run:
    """One run: shapes, their rows as they come, and what went wrong."""

    def __init__(self, args: argparse.Namespace, shapes: Sequence[Shape]) -> None:
        self.args = args
        self.shapes = list(dict.fromkeys(shapes))
        self.versions = _report.versions()
        self.rows: list[_report.Row] = []
        self.failures: list[str] = []
        self.compile_s = 0.0

    def _wanted(self, impl: str) -> bool:
        return not self.args.impl or not {impl, impl.split(":")[0]}.isdisjoint(self.args.impl)

    def _configs(self, shape: Shape) -> list[str]:
        names = config_names(shape)
        if self.args.config:
            return [name for name in self.args.config if name in names]
        return ["", *names] if self.args.all_configs else [""]

    def _fail(self, text: str) -> None:
        self.failures.append(text)
        progress(f"FAILED {text}")

    def _checked(self, shape: Shape) -> Iterator[Case]:
        for case in cases(shape, self._configs(shape)):
            if self._wanted(case.impl):
                try:
                    case.check()
                except (AssertionError, RuntimeError) as error:  # wrong, or XLA refuses it
                    self._fail(f"{shape} {case.impl}: {error}; not timed")
                else:
                    yield case

    def _measure(self, shape: Shape) -> None:
        """Checks, then times everything of a shape in one session of the profiler."""
        start = time.perf_counter()
        found = list(self._checked(shape))
        checked = time.perf_counter()
        self.compile_s += checked - start
        if not found:
            return
        keep = None if self.args.trace is None else self.args.trace / str(shape).replace(" ", "_")
        timings = measure([(case.fn, case.args) for case in found], keep)
        for case, timing in zip(found, timings, strict=True):
            self._add(_report.row(shape, case.impl, timing, case.flops, case.bytes, case.config))
            if shape.is_product and case.impl.startswith(OURS) and len(timing.kernels) > 1:
                progress(f"{shape} {case.impl} ran {len(timing.kernels)} kernels: {', '.join(timing.kernels)}")
        progress(f"  {checked - start:.1f} s to compile and check, {time.perf_counter() - checked:.1f} s to time")

    def _add(self, row: _report.Row) -> None:
        self.rows.append(row)
        print(_report.line(row), flush=True)

    def measure(self) -> None:
        start = time.perf_counter()
        print(_report.HEADER)
        for i, shape in enumerate(self.shapes, 1):
            progress(f"[{i}/{len(self.shapes)}] {shape}")
            try:
                self._measure(shape)
            except RuntimeError as error:  # XLA's errors, or a profile that can't be read: the next shape may work
                self._fail(f"{shape}: {error}")
            self.write()
        products = [shape for shape in self.shapes if shape.is_product]
        wanted = not self.args.no_torch and any(map(self._wanted, (CEILING, *BLOCK.values())))
        if jax.devices()[0].platform == "gpu" and products and wanted:
            progress("cuBLASLt through PyTorch")
            for row in _peers.measure(products, self.args.trace, self.versions):
                if self._wanted(row["impl"]):
                    self._add(row)
        self.write()
        progress(f"{time.perf_counter() - start:.0f} s, of which {self.compile_s:.0f} s to compile and check")

    def write(self) -> None:
        if self.args.json is not None:
            _report.write_json(self.args.json, _report.document(self.rows, self.versions))
