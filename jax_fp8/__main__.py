"""The main job, `python -m jax_fp8`: trains a small language model twice and compares the losses.

Command line only: options, progress, tables, exit status. The model and the loop are in
`_training`. Progress goes to stderr, results to stdout.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib
import json
import os
import platform as python_platform
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import jax

from jax_fp8 import _training as training
from jax_fp8._explain import Explanation, Product

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells report it
ROLES = ("forward", "dgrad", "wgrad")


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parses and checks the command line; exits with status 2 and a message if it is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m jax_fp8",
        description="Train a small transformer on Python's own documentation twice from the same "
        "seed, in bf16 (float32 on CPU) and with jax_fp8.dot in every linear layer, and compare "
        "the losses.",
        epilog="Exit status: 0 if the final losses (mean over the last "
        f"{training.MAX_WINDOW} steps) agree within {100 * training.MAX_RELATIVE_GAP:g} %, 1 if "
        "they do not or a loss is not finite, 2 for wrong options, 130 after Ctrl-C.",
    )
    parser.add_argument("--steps", type=_positive, metavar="N", help="training steps of each run")
    parser.add_argument(
        "--seed",
        type=_natural,
        metavar="N",
        default=0,
        help="of parameters and batches (default 0)",
    )
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw both loss curves (needs matplotlib)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write losses, times, device and sizes")
    args = parser.parse_args(argv)
    for option in ("plot", "json"):
        path = getattr(args, option)
        if path is not None and not path.parent.is_dir():
            parser.error(f"argument --{option}: directory {path.parent} does not exist")
        if path is not None and path.is_dir():
            parser.error(f"argument --{option}: {path} is a directory")
    if args.plot is not None:
        if args.plot.suffix != ".png":
            parser.error(f"argument --plot: the file name must end in .png, got {args.plot}")
        try:
            importlib.import_module("matplotlib.figure")
        except ImportError as error:
            parser.error(f"argument --plot: needs matplotlib (pip install 'jax_fp8[plot]'): {error}")
    return args


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"needs an integer of at least 1, got {text!r}")
    return int(text)


def _natural(text: str) -> int:
    if not text.isdecimal() or int(text) >= 2**32:
        raise argparse.ArgumentTypeError(f"needs an integer from 0 to 2**32 - 1, got {text!r}")
    return int(text)


class ProgressLine:
    """Shows `Progress` as one updating line on a terminal, else as a line every few seconds."""

    seconds_between_lines = 5.0

    def __init__(self) -> None:
        self.latest: dict[str, training.Progress] = {}
        self._printed_at = float("-inf")
        self._updates = sys.stderr.isatty()
        self._is_open = False

    def __call__(self, progress: training.Progress) -> None:
        self.latest[progress.run] = progress
        is_edge = progress.step in (0, progress.steps)
        if self._updates:
            self._is_open = True
            print(f"\r\x1b[K{_describe(progress)}", end="", file=sys.stderr, flush=True)
        elif is_edge or time.monotonic() - self._printed_at >= self.seconds_between_lines:
            self._printed_at = time.monotonic()
            print(_describe(progress), file=sys.stderr, flush=True)
        if progress.step == progress.steps:
            self.close()

    @property
    def line_end(self) -> str:
        """What ends an open updating line, so that other output starts on a line of its own."""
        return "\n" if self._is_open else ""

    def close(self) -> None:
        """Ends the updating line if one is open."""
        print(self.line_end, end="", file=sys.stderr, flush=True)
        self._is_open = False

    def summary(self) -> str:
        """Says in one line what each started run has done."""
        return "; ".join(_describe(progress) for progress in self.latest.values()) or "no run had started"


def _describe(progress: training.Progress) -> str:
    if progress.step == 0:
        return f"{progress.run}: compiling"
    return (
        f"{progress.run}: step {progress.step}/{progress.steps}  loss {progress.loss:.4f}  "
        f"{_seconds(progress.seconds_per_step)}/step"
    )


def _seconds(value: float) -> str:
    return f"{value * 1e3:.1f} ms" if value < 1 else f"{value:.2f} s"


def _table(header: Sequence[str], rows: Iterable[Sequence[object]], left: int = 0, right: int = 0) -> str:
    """Aligns text columns, the first `left` and last `right`, to the left and numbers to the right."""
    cells = [header, *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    is_text = [i < left or i >= len(header) - right for i in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if text else cell.rjust(width)
            for cell, width, text in zip(row, widths, is_text, strict=True)
        ).rstrip()
        for row in cells
    )


def loss_table(result: training.Comparison) -> str:
    """Formats the losses of both runs at about nine steps and the smoothed final ones."""
    steps = len(result.baseline.losses)
    shown = sorted({1, *(round(steps * eighth / 8) for eighth in range(1, 9))} - {0})
    rows = [
        (
            str(step),
            f"{result.baseline.losses[step - 1]:.4f}",
            f"{result.fp8.losses[step - 1]:.4f}",
            f"{result.gaps[step - 1]:+.2%}",
        )
        for step in shown
    ]
    rows.append(
        (
            "final",
            f"{result.baseline.final_loss:.4f}",
            f"{result.fp8.final_loss:.4f}",
            f"{result.final_gap:+.2%}",
        )
    )
    largest = int(abs(result.gaps).argmax())
    window = training.smoothing_window(steps)
    speedup = result.baseline.seconds_per_step / result.fp8.seconds_per_step
    return "\n".join(
        [
            _table(
                ("step", f"loss {result.baseline.name}", f"loss {result.fp8.name}", "gap"),
                rows,
            ),
            f"final: mean of the last {window} step{'s' * (window > 1)}",
            f"largest gap of a single step: {result.gaps[largest]:+.2%}, at step {largest + 1}",
            f"time per step (median): {_each(result, 'seconds_per_step')}; {speedup:.2f}x",
            f"compile: {_each(result, 'compile_seconds')}",
        ]
    )


def _each(result: training.Comparison, field: str) -> str:
    return ", ".join(f"{run.name} {_seconds(getattr(run, field))}" for run in (result.baseline, result.fp8))


def layer_table(sizes: training.Sizes, explanation: Explanation) -> str:
    """Formats which kernel runs each product of each linear layer, and why."""

    def why(product: Product) -> str:
        return "; ".join((product.reason, *product.notes))

    def row(name: str, product: Product) -> tuple[object, ...]:
        extents = (product.m, product.n, product.k)
        return (name, product.role, *extents, product.count, product.kernel, why(product))

    rows: list[tuple[object, ...]] = []
    unmatched = list(explanation.products)
    for layer in training.linear_layers(sizes):
        for role in ROLES:
            m, n, k = layer.extents(role)
            found = [
                product
                for product in unmatched
                if product.role == role and product.k == k and {product.m, product.n} == {m, n}
            ]
            rows.extend(row(layer.name, product) for product in found)
            unmatched = [product for product in unmatched if product not in found]
            if not found:
                rows.append((layer.name, role, m, n, k, layer.count, "no FP8 product", ""))
    rows.extend(row("other", product) for product in unmatched)
    header = ("linear layer", "product", "m", "n", "k", "times", "kernel and tile", "why")
    reasons = {why(product) for product in explanation.products}
    if len(reasons) > 1:
        return _table(header, rows, left=2, right=2)
    table = _table(header[:-1], [cells[:-1] for cells in rows], left=2, right=1)
    return "\n".join([table, *(f"why: {reason}" for reason in reasons)])


def as_json(result: training.Comparison, seed: int, device: jax.Device) -> dict[str, Any]:
    """Returns what `--json` writes."""
    runs = {
        run.name: {
            "losses": [float(loss) for loss in run.losses],
            "final_loss": run.final_loss,
            "seconds_per_step": run.seconds_per_step,
            "compile_seconds": run.compile_seconds,
        }
        for run in (result.baseline, result.fp8)
    }
    return {
        "runs": runs,
        "final_gap": result.final_gap,
        "largest_gap": float(abs(result.gaps).max()),
        "agrees": result.agrees,
        "seed": seed,
        "sizes": dataclasses.asdict(result.sizes),
        "device": {"platform": device.platform, "kind": device.device_kind},
        "versions": {"python": python_platform.python_version(), "jax": jax.__version__},
    }


def draw(result: training.Comparison, path: Path) -> None:
    """Draws both loss curves to a PNG file."""
    figure_module = importlib.import_module("matplotlib.figure")
    figure = figure_module.Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.add_subplot(xlabel="step", ylabel="loss (nats per byte)")
    for run, style in ((result.baseline, "-"), (result.fp8, "--")):
        axes.plot(
            range(1, len(run.losses) + 1),
            run.losses,
            style,
            label=f"{run.name}, final {run.final_loss:.4f}",
        )
    axes.legend()
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=150)


def run(args: argparse.Namespace, progress: ProgressLine) -> int:
    """Runs the job and returns the exit status."""
    try:
        device = jax.devices()[0]
        sizes = training.Sizes.for_platform(device.platform)
        if args.steps is not None:
            sizes = dataclasses.replace(sizes, steps=args.steps)
        explanation = training.explain_step(sizes, device.platform)
    except RuntimeError as error:  # no device, or a Hopper GPU and an installation without kernels
        print(f"error: {error}", file=sys.stderr)
        return EXIT_FAILED
    print(
        f"{device.device_kind} ({device.platform}), jax {jax.__version__}, "
        f"Python {python_platform.python_version()}\n"
        f"transformer: {sizes.num_params / 1e6:.1f} M parameters, d_model {sizes.d_model}, "
        f"{sizes.num_layers} layers, {sizes.batch} x {sizes.seq_len} bytes a step, "
        f"{sizes.steps} steps, seed {args.seed}",
        flush=True,
    )
    started = time.monotonic()
    result = training.compare(sizes, args.seed, device.platform, progress)
    print(f"\n{loss_table(result)}\n\n{layer_table(sizes, explanation)}\n")
    if args.json is not None:
        args.json.write_text(json.dumps(as_json(result, args.seed, device), indent=1) + "\n")
    if args.plot is not None:
        draw(result, args.plot)
    verdict = "agree within" if result.agrees else "DIFFER by more than"
    print(
        f"final losses {verdict} {training.MAX_RELATIVE_GAP:.0%} ({result.final_gap:+.2%}); "
        f"{time.monotonic() - started:.0f} s in all"
    )
    return 0 if result.agrees else EXIT_FAILED


@contextlib.contextmanager
def exits_on_ctrl_c(progress: ProgressLine) -> Iterator[None]:
    """On SIGINT, says what was done so far and ends the process with status 130.

    Nothing is raised: a KeyboardInterrupt inside jax's tracing makes jaxlib 0.10.2 crash when the
    interpreter shuts down. An ignored SIGINT stays ignored.
    """

    def leave(signum: int, frame: FrameType | None) -> None:
        # not print: the signal may have come inside a print to the same stream
        line = f"{progress.line_end}interrupted. {progress.summary()}\n"
        os.write(sys.stderr.fileno(), line.encode())
        os._exit(EXIT_INTERRUPTED)

    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `python -m jax_fp8` and returns its exit status."""
    args = parse_args(argv)
    progress = ProgressLine()
    try:
        with exits_on_ctrl_c(progress):
            return run(args, progress)
    except training.NonFiniteLoss as error:
        progress.close()
        print(f"error: {error}", file=sys.stderr)
        return EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
