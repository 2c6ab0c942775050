"""README's part on speed, written from the results: between two markers, so that the numbers have one source."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jax_fp8.bench._compare import FASTER, Comparison, compare, ratios
from jax_fp8.bench._profile import CALLS
from jax_fp8.bench._report import Row, noise_line

BEGIN, END = "<!-- benchmark:begin -->", "<!-- benchmark:end -->"
PEERS = {
    "jnp.dot in bfloat16": "`jnp.dot` in bfloat16",
    "XLA's per-tensor FP8 dot": "XLA's FP8 dot, one scale",
    "cuBLASLt with the same block scales": "cuBLASLt, same block scales",
    FASTER: "faster of that and DeepGEMM (1)",
    "cuBLASLt with one scale for all, the ceiling": "cuBLASLt, one scale",
}
GROUPS = {"D": "decode, m = {m}", "P": "prefill, m = {m}", "W": "weight gradient, {k} tokens"}
IMPLS = {
    "jax_fp8_1x128": "quantise, 1x128",
    "jax_fp8_1x128_both": "quantise, 1x128, both orientations",
    "jax_fp8_128x128_both": "quantise, 128x128, both orientations",
    "jax_fp8": "`jax_fp8.dot`",
    "jax_fp8_quantised_w": "`jax_fp8.dot`, weight quantised before",
}


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows)]


def _by_rows(comparisons: Sequence[Comparison]) -> list[str]:
    def group(c: Comparison) -> str:
        kind, m, _, k = c.key
        return GROUPS[kind].format(m=m, k=k)

    groups: dict[str, list[Comparison]] = {}
    for c in sorted(comparisons, key=lambda c: ("DPW".index(c.key[0]), c.key[3] if c.key[0] == "W" else c.key[1])):
        groups.setdefault(group(c), []).append(c)
    body = []
    for name, found in groups.items():
        cells = [name, str(len(found))]
        for peer in PEERS:
            values = ratios(found, peer).values()
            cells.append(f"{statistics.geometric_mean(values):.2f} ({min(values):.2f})" if values else "-")
        body.append(cells)
    return _table(["", "shapes", *PEERS.values()], body)


def _times(comparisons: Sequence[Comparison]) -> list[str]:
    products = {c.key[1:]: c for c in comparisons if c.key[0] in ("D", "P")}
    counts = Counter((n, k) for _, n, k in products)
    shapes = [shape for shape in counts if counts[shape] > 1]  # one of a kind has no row to itself
    ms = sorted({m for m, n, k in products if (n, k) in shapes})

    def cell(m: int, n: int, k: int) -> str:
        c = products.get((m, n, k))
        return "" if c is None else f"{c.ours:.1f} ({2e-6 * m * n * k / c.ours:.0f})"

    body = [[f"{n} x {k}", *(cell(m, n, k) for m in ms)] for n, k in shapes]
    return _table(["n x k", *(f"m = {m}" for m in ms)], body) if body else []


def _whole(rows: Sequence[Row]) -> list[str]:
    baseline: Mapping[Any, float] = {
        tuple(r[c] for c in ("set", "m", "n", "k")): r["us"] for r in rows if r["impl"] == "jnp_bf16"
    }
    most = max((r["m"] * r["k"] for r in rows if r["set"] == "Q"), default=0)
    body = []
    for r in rows:
        if r["set"] == "Q" and r["m"] * r["k"] < most:
            continue
        if r["set"] not in ("Q", "E", "T") or r["impl"] not in IMPLS or r["us"] is None:
            continue
        name = IMPLS[r["impl"]] if r["set"] != "T" else "SwiGLU block, forward and backward"
        shape = f"{r['m']} x {r['k']}" if r["set"] == "Q" else f"{r['m']} x {r['n']} x {r['k']}"
        rate = f"{r['gbps']:.0f} GB/s" if r["set"] == "Q" else f"{r['tflops']:.0f} TFLOP/s"
        other = baseline.get((r["set"], r["m"], r["n"], r["k"]))
        body.append([name, shape, f"{r['us']:.0f} us", rate, "" if other is None else f"{other / r['us']:.2f}"])
    return _table(["", "shape", "time", "rate", "bfloat16's time / ours"], body) if body else []


def block(document: dict[str, Any], peers: Mapping[tuple[int, int, int], Mapping[str, float]], picture: str) -> str:
    """The text between the markers, without them."""
    rows = document["rows"]
    comparisons = compare(rows, peers, "jax_fp8")
    versions = document["versions"]
    software = ", ".join(
        [f"driver {document['driver']}", *(f"{name} {versions[name]}" for name in ("jax", "torch") if name in versions)]
    )
    noise = noise_line(rows)
    paragraphs = [
        [
            f"One {document['device']}, {software}, {document['date']}. Kernel time by the profiler,",
            f"median of {CALLS} calls, L2 flushed before each, random normal data, each result checked first"
            f"{'' if noise is None else '; ' + noise}.",
        ],
        [f"![TFLOP/s over FLOP per byte]({picture})"],
        ["Time of a peer / time of ours, geometric mean over the shapes and, in parentheses, the worst one:"],
        _by_rows(comparisons),
        [
            "(1) DeepGEMM's time is an estimate: it was measured in another run, and is related to this one through",
            "cuBLASLt, which was in both (`benchmarks/peers-h200.json`, `jax_fp8/bench/_compare.py`).",
        ],
        ["Products of 1x128 by 128x128 blocks, us (TFLOP/s):"],
        _times(comparisons),
        _whole(rows),
    ]
    return "\n\n".join("\n".join(lines) for lines in paragraphs if lines)


def replace(text: str, block: str) -> str:
    """`text` with `block` between the markers.

    Raises:
      ValueError: it doesn't have both markers once, in order.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end or BEGIN in rest or END in after:
        raise ValueError(f"needs the lines {BEGIN} and {END}, once each, in this order")
    return f"{before}{BEGIN}\n{block}\n{END}{after}"


def write(path: Path, block: str) -> None:
    path.write_text(replace(path.read_text(), block))
