"""How our products compare with the peers of the same run, and with DeepGEMM, which was timed in another one."""

from __future__ import annotations

import dataclasses
import itertools
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jax_fp8.bench._report import Row

CEILING = "cublaslt_tensorwise_fast"  # one scale for all: no block scale is applied
BLOCK = {
    "D": "cublaslt_block_1x128_128x128",
    "P": "cublaslt_block_1x128_128x128",
    "W": "cublaslt_block_1x128_1x128",
}
FASTER = "faster of DeepGEMM (estimated) and cuBLASLt with block scales"
Key = tuple[str, int, int, int]  # set, m, n, k


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Times of one product in us; None where nothing was measured."""

    key: Key
    ours: float
    deepgemm: float | None
    others: Mapping[str, float]  # by implementation, same run

    @property
    def peers(self) -> dict[str, float]:
        """Against what it is measured, and the time of that."""
        block = self.others.get(BLOCK[self.key[0]])
        faster = min((t for t in (self.deepgemm, block) if t is not None), default=None)
        times = {
            FASTER: faster if self.key[0] != "W" else None,  # DeepGEMM's are products with 128x128 blocks
            "cuBLASLt with the same block scales": block,
            "cuBLASLt with one scale for all, the ceiling": self.others.get(CEILING),
            "XLA's per-tensor FP8 dot": self.others.get("xla_fp8"),
            "jnp.dot in bfloat16": self.others.get("jnp_bf16"),
        }
        return {name: t for name, t in times.items() if t is not None}


def read_peers(path: Path) -> dict[tuple[int, int, int], dict[str, float]]:
    """(m, n, k) -> event times in us by implementation, from benchmarks/peers-h200.json."""
    return {(r["m"], r["n"], r["k"]): r["us_event"] for r in json.loads(path.read_text())["rows"]}


def deepgemm_us(then: Mapping[str, float], now: Mapping[str, Row]) -> float | None:
    """DeepGEMM's kernel time, had it been in this run: an estimate from its time in another run.

        speed * then["deepgemm"] - overhead

    `then` holds times between CUDA events, which are longer than kernels are. What both runs have is cuBLASLt, with one
    scale and with block scales. Over these products, speed is the geometric mean of event time now / event time then,
    and overhead the mean of event time - kernel time now. From a cuBLASLt product's time then, its kernel time now
    comes out (exactly, if it is the only one). None without such a product.
    """
    both = [
        (now[impl]["us"], now[impl]["us_event"], us)
        for impl, us in then.items()
        if impl in now and now[impl]["us"] is not None and now[impl]["us_event"] is not None
    ]
    if "deepgemm" not in then or not both:
        return None
    speed = statistics.geometric_mean(event / other for _, event, other in both)
    overhead = statistics.fmean(event - us for us, event, _ in both)
    return speed * then["deepgemm"] - overhead


def compare(
    rows: Sequence[Row], peers: Mapping[tuple[int, int, int], Mapping[str, float]], ours: str
) -> list[Comparison]:
    """Sets D, P and W, for each shape that the implementation `ours` was measured on."""
    by_key: dict[Key, dict[str, Row]] = {}
    for r in rows:
        if r["set"] in BLOCK and r["us"] is not None:
            by_key.setdefault((r["set"], r["m"], r["n"], r["k"]), {})[r["impl"]] = r
    return [  # in the order of the rows, set by set
        Comparison(
            key=key,
            ours=found[ours]["us"],
            deepgemm=deepgemm_us(peers.get(key[1:], {}), found) if key[0] != "W" else None,
            others={impl: r["us"] for impl, r in found.items()},
        )
        for key, found in sorted(by_key.items(), key=lambda item: item[0][0])
        if ours in found
    ]


def ratios(comparisons: Sequence[Comparison], peer: str) -> dict[Key, float]:
    """Time of the peer / ours, where the peer was measured; above 1 ours is faster."""
    return {c.key: c.peers[peer] / c.ours for c in comparisons if peer in c.peers}


def lines(comparisons: Sequence[Comparison]) -> list[str]:
    """A table by shape and one by set: a peer's time over ours."""
    if not any(c.peers for c in comparisons):
        return []
    titles = f"{'ours':>8} {'DeepGEMM':>9} {'block':>8} {'1 scale':>8}"
    out = [f"{'set':3} {'m x n x k':18} {titles} {'faster block / ours':>19}"]
    for c in comparisons:
        times = [c.ours, c.deepgemm, c.others.get(BLOCK[c.key[0]]), c.others.get(CEILING)]
        cells = [" " * (w - 1) + "-" if t is None else f"{t:{w}.1f}" for t, w in zip(times, (8, 9, 8, 8), strict=True)]
        block = c.peers.get(FASTER, c.others.get(BLOCK[c.key[0]]))
        ratio = "" if block is None else f"{block / c.ours:19.2f}"
        out.append(f"{c.key[0]:3} {'x'.join(map(str, c.key[1:])):18} {' '.join(cells)} {ratio}".rstrip())
    out += ["", f"{'set':3} {'peer, its time / ours':62} {'geomean':>7} {'worst':>6} {'at':18} {'shapes':>6}"]
    for name, group in itertools.groupby(comparisons, lambda c: c.key[0]):
        members = list(group)
        for peer in dict.fromkeys(itertools.chain.from_iterable(c.peers for c in members)):
            found = ratios(members, peer)
            worst = min(found, key=lambda key: found[key])
            mean = statistics.geometric_mean(found.values())
            at = "x".join(map(str, worst[1:]))
            out.append(f"{name:3} {peer:62} {mean:7.3f} {found[worst]:6.2f} {at:18} {len(found):6}")
    return out


def configuration_lines(rows: Sequence[Row], ours: str) -> list[str]:
    """Where a configuration that was asked for by name beat the one chosen by more than the noise of that row."""
    out = []
    for r in rows:
        if r["impl"] != ours or r["us"] is None:
            continue
        same = [
            x for x in rows if x["impl"].startswith(f"{ours}:") and all(x[c] == r[c] for c in ("set", "m", "n", "k"))
        ]
        best: dict[str, Any] | None = min(same, key=lambda x: x["us"], default=None)
        if best is not None and best["us"] * (1 + (r["noise"] or 0)) < r["us"]:
            chosen, shape = r["config"].split(":")[0], f"{r['set']} {r['m']}x{r['n']}x{r['k']}"
            out.append(f"{shape}: {best['impl']} takes {best['us']:.1f} us, the choice {chosen} {r['us']:.1f}")
    return out
