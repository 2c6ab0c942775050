"""Checks the benchmark's arithmetic, its command line and its files, with tiny shapes; times are not judged.

Catches: overlapping kernels counted twice, a row without a field, a baseline that computes something else, a bad set
that goes unnoticed.
"""

import json

import jax
import pytest

from jax_fp8.bench import __main__ as bench
from jax_fp8.bench import _cases, _report, _shapes, _timing


def test_union_counts_overlapping_work_once():
    assert _timing.union_ns([]) == 0
    assert _timing.union_ns([(10, 5), (20, 5)]) == 10
    assert _timing.union_ns([(10, 10), (12, 3), (15, 10)]) == 15


def test_sets_have_no_shape_twice():
    for name, shapes in _shapes.SETS.items():
        assert len(set(shapes)) == len(shapes), name
    assert len(_shapes.parse("decode")) == 28
    assert len(_shapes.parse("prefill")) == 16


@pytest.mark.parametrize("text", ["decoding", "4096", "0x1x1", "1x2x3x4", "axbxc"])
def test_bad_set_is_refused(text, capsys):
    with pytest.raises(SystemExit) as stop:
        bench.main(["--set", text])
    assert stop.value.code == 2
    assert f"got {text!r}" in capsys.readouterr().err


@pytest.mark.parametrize("kind", _cases.CASES)
def test_every_case_passes_its_own_check(kind):
    shape = _shapes.Shape(kind, 24, 0 if kind == "Q" else 160, 256)
    impls = []
    for case in _cases.CASES[kind](shape):
        case.check()
        out = case.fn(*case.args)
        assert all(bool(jax.numpy.isfinite(leaf.astype("float32")).all()) for leaf in jax.tree.leaves(out))
        assert case.bytes > 0
        impls.append(case.impl)
    assert len(set(impls)) == len(impls)


def test_a_wrong_baseline_is_noticed():
    x, w = _cases._normal(0, 16, 128), _cases._normal(1, 32, 128)
    out = jax.numpy.dot(x, w.T)
    _cases._check_close(out, x, w, 1e-2)
    with pytest.raises(AssertionError, match="relative error"):
        _cases._check_close(out, x, -w, 1e-2)


def test_table_and_files(tmp_path, capsys):
    assert bench.main(["--set", "16x160x256", "--impl", "jax_fp8", "--json", str(tmp_path / "r.json")]) == 0
    assert "16x160x256" in capsys.readouterr().out
    written = json.loads((tmp_path / "r.json").read_text())
    assert written.keys() == {"device", "driver", "date", "versions", "method", "rows"}
    (row,) = written["rows"]
    expected = {"set", "impl", "m", "n", "k", "us", "us_min", "us_max", "us_loop", "tflops", "gbps", "config"}
    assert row.keys() >= expected
    assert (row["set"], row["impl"], row["m"], row["n"], row["k"]) == ("P", "jax_fp8", 16, 160, 256)
    assert row["us_loop"] > 0
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    _report.write_plot(tmp_path / "r.png", written["rows"])
    assert (tmp_path / "r.png").stat().st_size > 1000
