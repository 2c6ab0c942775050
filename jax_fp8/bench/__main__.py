"""Command line of the benchmark: progress, table, files."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from jax_fp8 import _extension
from jax_fp8.bench import _compare, _plot, _readme, _report
from jax_fp8.bench._cases import OURS
from jax_fp8.bench._run import Run, progress
from jax_fp8.bench._shapes import SETS, Shape, parse

DEFAULT_SHAPES = ("4096x4096x7168", "8192x8192x8192")
PICTURE = "benchmarks/nvidia-h200.png"  # as README refers to it
PEERS_FILE = Path("benchmarks/peers-h200.json")


def _shapes(text: str) -> list[Shape]:
    try:
        return parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m jax_fp8.bench",
        description="Time jax_fp8 beside jnp.dot in bfloat16, XLA's per-tensor FP8 dot, dequantise-then-dot and, where "
        "PyTorch is installed, cuBLASLt's FP8 products. " + _report.METHOD + ".",
    )
    parser.add_argument(
        "--set",
        action="append",
        type=_shapes,
        metavar="SET",
        help=f"{', '.join(SETS)}, or MxNxK; may be given several times (default: {' and '.join(DEFAULT_SHAPES)})",
    )
    parser.add_argument("--impl", action="append", metavar="NAME", help="only these implementations")
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--config", action="append", metavar="NAME", help="run our product in this configuration (rows jax_fp8:NAME)"
    )
    group.add_argument("--all-configs", action="store_true", help="run our product in every configuration as well")
    parser.add_argument("--no-torch", action="store_true", help="leave out cuBLASLt's products through PyTorch")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows and the method")
    parser.add_argument("--trace", type=Path, metavar="DIR", help="keep the profiles, for XProf or Perfetto")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw the roofline (needs matplotlib)")
    parser.add_argument("--readme", type=Path, metavar="FILE.md", help="write the tables between the file's markers")
    parser.add_argument(
        "--from", type=Path, metavar="FILE.json", dest="source", help="measure nothing, read these rows"
    )
    parser.add_argument(
        "--peers",
        type=Path,
        metavar="FILE.json",
        help=f"DeepGEMM's times in another run (default: {PEERS_FILE}, where it is)",
    )
    args = parser.parse_args(argv)
    if args.source is not None and any((args.set, args.impl, args.config, args.all_configs, args.json, args.trace)):
        parser.error("argument --from: takes only --peers, --plot and --readme with it: it measures nothing")
    if args.plot is not None:
        try:
            importlib.import_module("matplotlib.figure")
        except ImportError as error:
            parser.error(f"argument --plot: needs matplotlib (pip install 'jax_fp8[plot]'): {error}")
    known = [name for rows in (1, 128) for name in _extension.host.config_names(rows, "bfloat16")]
    for name in args.config or ():
        if name not in known:
            parser.error(f"argument --config: must be one of {', '.join(dict.fromkeys(known))}, got {name!r}")
    if args.peers is None and PEERS_FILE.is_file():
        args.peers = PEERS_FILE
    return args


def _report_on(document: dict[str, Any], args: argparse.Namespace) -> None:
    """What follows the table: comparisons, noise, picture, README."""
    rows = document["rows"]
    peers = {} if args.peers is None else _compare.read_peers(args.peers)
    for ours in dict.fromkeys(r["impl"] for r in rows if r["impl"].split(":")[0] == OURS):
        if table := _compare.lines(_compare.compare(rows, peers, ours)):
            print(f"\n{ours} and its peers, kernel us")
            print("\n".join(table))
    ends = [*_compare.configuration_lines(rows, OURS), _report.noise_line(rows)]
    print("\n".join(line for line in ends if line))
    if args.plot is not None:
        _plot.write_plot(args.plot, document)
    if args.readme is not None:
        picture = PICTURE if args.plot is None else os.path.relpath(args.plot, args.readme.parent)
        _readme.write(args.readme, _readme.block(document, peers, picture))


def main(argv: Sequence[str] | None = None) -> int:
    args = parse_args(argv)
    if args.source is not None:
        document = json.loads(args.source.read_text())
        print(
            f"{document['device']}, driver {document['driver']}, jax {document['versions']['jax']}, {document['date']}"
        )
        print("\n".join([_report.HEADER, *map(_report.line, document["rows"])]))
        _report_on(document, args)
        return 0
    device = jax.devices()[0]
    if device.platform != "gpu":
        progress("No GPU: kernel times can't be measured, nor cuBLASLt; loop times are single calls on the CPU path.")
    print(f"{device.device_kind}, driver {_report.driver_version()}, jax {jax.__version__}")
    groups = args.set or [parse(text) for text in DEFAULT_SHAPES]
    run = Run(args, [shape for group in groups for shape in group])
    run.measure()
    _report_on(_report.document(run.rows, run.versions), args)
    for failure in run.failures:
        progress(f"FAILED {failure}")
    return 1 if run.failures else 0


if __name__ == "__main__":
    sys.exit(main())
