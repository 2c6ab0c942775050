"""Checks the choice of a configuration: a pure function, so no GPU is needed.

Catches: two configurations of one name, a measured exception that names none or is never used, one applied to another
GPU, a product that nothing can run, a plan that doesn't fit into shared memory.
"""

import json
import re
from pathlib import Path

import pytest

from jax_fp8 import _extension

ROOT = Path(__file__).parent.parent
HEADER = ROOT / "cuda" / "host" / "measured.h"
RESULTS = ROOT / "benchmarks" / "nvidia-h200.json"
H200, H100_PCIE = 132, 114  # multiprocessors
SHARED_BYTES = 228 * 1024


def select(m, n, k, *, batch=1, rows=128, out="bfloat16", num_sms=H200, config=""):
    return _extension.host.select_config(batch, m, n, k, rows, out, num_sms, config)


def measured():
    """(m_from, m_to, n, k, name) of every line of the table."""
    text = HEADER.read_text().split("kMeasured[] = {")[1]
    for numbers in re.findall(r"\{([\d, ]+)\}", text):
        first, last, n, k, block_m, block_n, k_blocks, split_log2 = map(int, numbers.split(","))
        name = f"{block_m}x{block_n}" + ("k1" if k_blocks == 1 and block_m < 128 else "")
        yield first, last, n, k, name + (f"/{1 << split_log2}" if split_log2 else "")


def extents(name):
    """block_m, block_n, split of a name such as 64x64, 64x64k1 (one k block a stage) or 64x64/2 (k split in two)."""
    block, _, split = name.partition("/")
    return (*map(int, block.removesuffix("k1").split("x")), int(split or 1))


@pytest.mark.parametrize("out", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("rows", [1, 128])
def test_names_are_unique_and_can_be_asked_for(out, rows):
    names = _extension.host.config_names(rows, out)
    assert len(set(names)) == len(names) > 1
    for name in names:
        chosen = select(100, 300, 500, rows=rows, out=out, config=name)
        assert chosen["name"] == name
        assert (chosen["block_m"], chosen["block_n"], chosen["split"]) == extents(name)
        assert chosen["reason"].startswith("asked for by name")


def test_measured_exceptions_are_chosen_on_the_gpu_they_were_measured_on():
    names = _extension.host.config_names(128, "bfloat16")
    rows = list(measured())
    assert rows
    for first, last, n, k, name in rows:
        assert first <= last
        assert name in names
        for m in (first, last):
            assert select(m, n, k)["name"] == name
        assert "measured" not in select(first, n, k, num_sms=H100_PCIE)["reason"]
        assert "measured" not in select(first, n, k, out="float32")["reason"]
        assert "measured" not in select(first, n, k, batch=2)["reason"]
    assert any("measured on an H200 to be the fastest" in select(first, n, k)["reason"] for first, _, n, k, _ in rows)


def test_measured_exceptions_do_not_overlap():
    rows = list(measured())
    for i, (first, last, n, k, _) in enumerate(rows):
        for other_first, other_last, other_n, other_k, _ in rows[i + 1 :]:
            assert (n, k) != (other_n, other_k) or last < other_first or other_last < first


def test_choices_are_those_that_were_measured():
    """The times in README are of these configurations: a changed cost model needs a new measurement."""
    rows = [r for r in json.loads(RESULTS.read_text())["rows"] if r["set"] in "DP" and r["impl"] == "jax_fp8"]
    assert len(rows) == 44
    for r in rows:
        chosen = select(r["m"], r["n"], r["k"])
        assert r["config"].startswith(f"sm90 {chosen['name']}: "), (r["m"], r["n"], r["k"], chosen["name"])


@pytest.mark.parametrize(
    ("config", "m", "n", "copies", "elements"),
    [
        ("16x64", 5, 132, False, False),
        ("16x64", 5, 130, False, True),
        ("128x128", 4096, 136, False, False),
        ("128x128", 4096, 132, False, True),
        ("128x128", 4097, 136, True, False),
    ],
)
def test_slow_routes_are_those_of_the_kernel(config, m, n, copies, elements):
    """Few rows: scales are always copied, results leave four at once; else by TMA, in multiples of 16 bytes."""
    chosen = select(m, n, 256, config=config)
    assert (chosen["scales_by_copy"], chosen["stores_elements"]) == (copies, elements)


@pytest.mark.parametrize(("n", "k"), [(4096, 4096), (14336, 4096), (4096, 14336), (2112, 7168), (32768, 512)])
def test_tiles_grow_with_the_number_of_rows(n, k):
    assert select(1, n, k)["block_m"] == 16
    assert select(4096, n, k)["block_m"] == 128
    assert select(4096, n, k)["split"] == 1


def test_cost_grows_with_k():
    for m in (1, 64, 4096):
        times = [select(m, 4096, k)["predicted_us"] for k in (512, 4096, 32768)]
        assert times == sorted(set(times))


@pytest.mark.parametrize("m", [1, 17, 64, 128, 300])
@pytest.mark.parametrize("k", [1, 128, 300, 2048, 131072])
def test_rings_fit_into_shared_memory(m, k):
    for name in _extension.host.config_names(128, "float32"):
        chosen = select(m, 4096, k, out="float32", config=name)
        block_m, block_n, split = extents(name)
        k_blocks = 2 if block_m < 128 and "k1" not in name else 1  # of a stage; few rows: two
        stage_bytes = (block_m + block_n) * 128 * k_blocks  # of tiles
        sums = block_m * (block_n + 4) * 4 if split > 1 and block_m < 128 else 0  # behind the ring
        assert chosen["stages"] >= 1
        assert chosen["stages"] * stage_bytes + sums < SHARED_BYTES - 3 * 1024
        if block_m < 128:
            assert chosen["num_ctas"] == -(-m // block_m) * -(-4096 // block_n) * split


def test_rings_leave_room_for_the_other_ctas_of_an_sm():
    few, many = select(64, 64 * H200, 8192, config="64x64"), select(64, 64 * 3 * H200, 8192, config="64x64")
    assert few["stages"] > many["stages"] >= 2
    assert few["stages"] * (64 + 64) * 256 < SHARED_BYTES
    assert 3 * many["stages"] * (64 + 64) * 256 < SHARED_BYTES


def test_many_batch_elements_are_left_to_the_persistent_kernel():
    assert select(4, 128, 128, batch=70000)["block_m"] == 128
    with pytest.raises(ValueError, match=r"configuration 16x64 can't have more than .* 65535 batch elements"):
        select(4, 128, 128, batch=70000, config="16x64")


def test_scales_beyond_32_bits_are_left_to_the_persistent_kernel():
    assert select(2**24, 16, 128 * 127)["block_m"] == 128
    assert select(2**24, 16, 128 * 127, config="64x64")["block_m"] == 64  # 127 * 2^24 < 2^31
    with pytest.raises(ValueError, match=r"configuration 64x64 can't have more than .* 2\^31 scales of a"):
        select(2**24, 16, 128 * 128, config="64x64")


def test_too_many_tiles_are_refused():
    with pytest.raises(ValueError, match="more than 2\\^30 output tiles"):
        select(2**31 - 300, 2**31 - 300, 16)
