"""Command line of the benchmark: progress, table, files."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

import jax

from jax_fp8.bench import _report
from jax_fp8.bench._cases import CASES
from jax_fp8.bench._shapes import SETS, Shape, parse
from jax_fp8.bench._timing import measure


def _shapes(text: str) -> list[Shape]:
    try:
        return parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m jax_fp8.bench",
        description="Time jax_fp8 beside jnp.dot in bfloat16, XLA's per-tensor FP8 dot and dequantise-then-dot. "
        + _report.METHOD,
    )
    parser.add_argument(
        "--set",
        action="append",
        type=_shapes,
        metavar="SET",
        help=f"{', '.join(SETS)}, or MxNxK; may be given several times (default: 4096x4096x7168 and 8192x8192x8192)",
    )
    parser.add_argument("--impl", action="append", metavar="NAME", help="only these implementations")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows and the method")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw the roofline (needs matplotlib)")
    parser.add_argument("--trace", type=Path, metavar="DIR", help="keep the profiles, for XProf or Perfetto")
    args = parser.parse_args(argv)
    if args.plot is not None:
        try:
            importlib.import_module("matplotlib.figure")
        except ImportError as error:
            parser.error(f"argument --plot: needs matplotlib (pip install 'jax_fp8[plot]'): {error}")
    return args


def main(argv: list[str] | None = None) -> int:
    args = parse_args(argv)
    shapes = [shape for group in args.set or [parse("4096x4096x7168"), parse("8192x8192x8192")] for shape in group]
    device = jax.devices()[0]
    if device.platform != "gpu":
        print("No GPU: kernel times can't be measured; loop times are those of the CPU path.", file=sys.stderr)
    print(f"{device.device_kind}, driver {_report.driver_version()}, jax {jax.__version__}")
    print(_report.HEADER)
    rows = []
    for i, shape in enumerate(dict.fromkeys(shapes), 1):
        print(f"[{i}/{len(shapes)}] {shape}", file=sys.stderr)
        for case in CASES[shape.set](shape):
            if args.impl and case.impl not in args.impl:
                continue
            case.check()
            keep = None if args.trace is None else args.trace / f"{shape}_{case.impl}".replace(" ", "_")
            rows.append(_report.row(shape, case, measure(case.fn, case.args, keep)))
            print(_report.line(rows[-1]), flush=True)
    if args.json is not None:
        _report.write_json(args.json, rows)
    if args.plot is not None:
        _report.write_plot(args.plot, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
