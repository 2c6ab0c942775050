"""Checks the benchmark's arithmetic, its command line and its files, with tiny shapes; times are not judged.

Catches: overlapping kernels counted twice, warm-up or flush counted as a call, calls that XLA merges in the timed loop,
scales in a layout that costs a transposition per call, a baseline that computes something else, an unwritten result, a
row without a field, a comparison upside down, a README that shows other numbers than the results.
"""

import json
import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding

from jax_fp8.bench import __main__ as bench
from jax_fp8.bench import (
    _cases,
    _check,
    _compare,
    _peers,
    _plot,
    _profile,
    _readme,
    _report,
    _shapes,
    _timing,
)
from jax_fp8.bench._profile import CALLS, Kernel

ROOT = Path(__file__).parents[1]
P = _shapes.Shape("P", 4096, 4096, 7168)


# ---- profiles ------------------------------------------------------------------------------------------------------


def test_union_counts_overlapping_work_once():
    def union(*intervals):
        return _profile.union_us([Kernel(start, duration, "") for start, duration in intervals])

    assert union() == 0
    assert union((10, 5), (20, 5)) == 10
    assert union((12, 3), (10, 10), (15, 10)) == 15
    assert union((5265087545317.304, 4.321)) == 4.321  # as large as PyTorch's times: their difference isn't exact


def session(cases, flush="flush", first=True):
    """A profiled session: each case's kernels (name, duration) run 5 times to warm up, then CALLS times."""
    kernels = []

    def add(name, duration):
        kernels.append(Kernel(100.0 * len(kernels), duration, name, name))

    if first:
        add(flush, 90)
    for case in cases:
        add(flush, 90)
        for _ in range(5):
            for name, duration in case:
                add(name, 10 * duration)
        for _ in range(CALLS):
            add(flush, 90)
            for name, duration in case:
                add(name, duration)
    return kernels


@pytest.mark.parametrize("first", [True, False], ids=["whole", "first flush missed"])
def test_calls_are_what_runs_between_flushes(first):
    kernels = session([[("product", 7)], [("split", 3), ("reduce", 2)]], first=first)
    found = _profile.cold_calls(kernels[::-1], lambda kernel: kernel.name == "flush", 2)
    assert [{_profile.union_us(call) for call in case} for case in found] == [{7}, {5}]
    assert [len(case) for case in found] == [CALLS, CALLS]
    assert [kernel.name for kernel in found[1][0]] == ["split", "reduce"]


def test_incomplete_profile_is_refused():
    kernels = session([[("product", 7)]])
    with pytest.raises(RuntimeError, match=f"shows {CALLS + 2} flushes, not 1 and {CALLS + 1} for each of 2 cases"):
        _profile.cold_calls(kernels, lambda kernel: kernel.name == "flush", 2)
    with pytest.raises(RuntimeError, match=f"no kernel for 1 of {CALLS} calls"):
        _profile.cold_calls(kernels[:-1], lambda kernel: kernel.name == "flush", 1)


def test_xla_profile_is_read_from_the_streams_of_the_device(monkeypatch):
    def event(start, name):
        return SimpleNamespace(start_ns=start, duration_ns=2000, name=name, stats=[("hlo_module", "jit_f")])

    def plane(name, **lines):
        lines = [SimpleNamespace(name=key.replace("_", " "), events=events) for key, events in lines.items()]
        return SimpleNamespace(name=name, lines=lines)

    planes = [
        plane("/device:GPU:0", Stream_1=[event(5000, "a")], XLA_Ops=[event(5000, "twice")]),
        plane("/host:CPU", Stream_1=[event(1000, "host")]),
    ]
    fake = SimpleNamespace(from_file=lambda path: SimpleNamespace(planes=planes))
    monkeypatch.setattr(jax.profiler, "ProfileData", fake)
    assert _profile.xla_kernels(Path("x")) == [Kernel(5.0, 2.0, "a", "jit_f")]


# ---- timing --------------------------------------------------------------------------------------------------------


def test_first_call_is_timed_again_and_bounds_the_noise(monkeypatch):
    cases = [[("ours", 8)], [("peer", 10)], [("ours", 9)]]
    seen = []

    def fake(calls, keep_trace):
        seen.append([args for _, args in calls])
        return _profile.cold_calls(session(cases), lambda kernel: kernel.name == "flush", len(cases))

    monkeypatch.setattr(jax, "devices", lambda: [SimpleNamespace(platform="gpu")])
    monkeypatch.setattr(_timing, "_cold_calls", fake)
    monkeypatch.setattr(_timing, "loop_us", lambda fn, args, estimate_us: estimate_us / 2)
    ours, peer = _timing.measure([(jnp.sin, (1,)), (jnp.cos, (2,))])
    assert seen == [[(1,), (2,), (1,)]]
    assert (ours.us, ours.us_loop, ours.noise, ours.kernels) == (8, 4, 1 / 8, ("ours",))
    assert (peer.us, peer.noise) == (10, None)


@pytest.mark.parametrize("us", [1, 8, 100, 500, 700, 1000, 1700, 2600, 20000])
def test_a_loop_has_two_trips_and_takes_its_time(us):
    calls, trips = _timing.loop_counts(us)
    assert trips >= 2
    assert 1 <= calls <= _timing.MAX_CALLS_IN_BODY
    total = calls * (trips + 1)
    assert total == 3 or 0.6 < total * us / _timing.LOOP_US < 1.5


@pytest.mark.parametrize(("calls", "trips"), [(8, 10), (1, 2)])
def test_calls_of_the_loop_are_all_there_on_a_gpu(calls, trips):
    os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")  # of libraries that only running needs
    config = (Path(__file__).parent / "data" / "h100.txtpb").read_text()
    try:
        topology = topologies.get_topology_desc("h100:1x1x1", "cuda", target_config=config, topology="1x1x1")
    except Exception as error:  # jax has no one type for this
        pytest.skip(f"jax can't compile for CUDA here (jax[cuda13-local] is enough): {error}")
    sharding = SingleDeviceSharding(topology.devices[0])
    x, w = (jax.ShapeDtypeStruct((rows, 512), jnp.bfloat16, sharding=sharding) for rows in (256, 384))
    loop = _timing.loop_of(jax.jit(lambda x, w: jnp.dot(x, w.T)), calls, trips)
    program = jax.jit(loop).lower(x, w).compile().as_text()
    (body,) = re.findall(r" while\(.*body=%([\w.]+)", program)
    (text,) = re.findall(rf"^%{re.escape(body)} .*?^}}", program, re.MULTILINE | re.DOTALL)
    made = re.findall(r"= bf16\[256,384\]\S* ([\w-]+)\(", text)
    assert [op for op in made if op not in ("get-tuple-element", "parameter", "bitcast")] == ["fusion"] * calls
    assert f'"known_trip_count":{{"n":"{trips}"}}' in program


# ---- shapes and cases ----------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("kind", "DPWQET")
def test_every_case_passes_its_own_check(kind):
    shape = _shapes.Shape(kind, 24, 0 if kind == "Q" else 160, 256)
    impls = []
    for case in _cases.cases(shape):
        case.check()
        assert case.bytes > 0
        impls.append(case.impl)
    assert len(set(impls)) == len(impls)
    assert impls[0].startswith("jax_fp8")


@pytest.mark.parametrize(("kind", "layouts"), [("D", [(1, 0), (0, 1)]), ("W", [(1, 0), (1, 0)])])
def test_scales_lie_as_the_kernel_reads_them(kind, layouts):
    case = next(_cases.cases(_shapes.Shape(kind, 24, 160, 256)))
    assert [q.scales.format.layout.major_to_minor for q in case.args] == layouts


def test_product_runs_in_the_configurations_asked_for():
    shape = _shapes.Shape("D", 24, 160, 256)
    names = _cases.config_names(shape)
    impls = [case.impl for case in _cases.cases(shape, ["", *names])]
    assert impls[: 1 + len(names)] == ["jax_fp8", *(f"jax_fp8:{name}" for name in names)]


def test_a_configuration_that_a_shape_cannot_run_in_is_left_out(monkeypatch, capsys):
    def explain(fn, *args):
        if len(asked) > 1:
            raise ValueError("too many rows")
        return "sm90 a: why"

    asked = []
    real = _cases._jit
    monkeypatch.setattr(_cases, "_jit", lambda *args, **options: asked.append(args[0]) or real(*args, **options))
    monkeypatch.setattr(_cases, "_config", explain)
    shape = _shapes.Shape("D", 24, 160, 256)
    impls = [case.impl for case in _cases.cases(shape, ["", "128x128"])]
    assert impls == ["jax_fp8", "jnp_bf16", "xla_fp8", "dequantise_bf16"]
    assert "D 24x160x256: not in configuration 128x128: too many rows" in capsys.readouterr().err


def test_sample_reaches_the_last_row_and_column():
    assert _check.picked(1, 8).tolist() == [0]
    assert _check.picked(5, 8).tolist() == [0, 1, 2, 3, 4]
    assert _check.picked(16384, 256)[[0, -1]].tolist() == [0, 16383]
    x = jnp.arange(3000 * 700.0).reshape(3000, 700)
    part = _check.sample(lambda x: x, x)
    assert part.shape == (8, 256)
    np.testing.assert_array_equal(part, x[_check.picked(3000, 8)][:, _check.picked(700, 256)])


def test_one_unwritten_element_is_noticed():
    out = jnp.ones((3000, 700)).at[1, 1].set(jnp.nan)  # no sampled one
    with pytest.raises(AssertionError, match="never written"):
        _check.sample(lambda out: out, out)


@pytest.mark.parametrize("kind", ["D", "W"])
def test_a_wrong_product_is_noticed(kind, monkeypatch):
    real = _cases.jax_fp8.blockwise_matmul
    monkeypatch.setattr(_cases.jax_fp8, "blockwise_matmul", lambda a, b, config: real(a, b).at[:, -1].multiply(1.5))
    case = next(_cases.cases(_shapes.Shape(kind, 24, 300, 256)))
    with pytest.raises(AssertionError, match="elements are off"):
        case.check()


def test_a_wrong_baseline_is_noticed():
    out = np.arange(1.0, 7.0).reshape(2, 3)
    _check.check_close(out * 1.005, out, 1e-2)
    for wrong in (-out, out * np.nan, out * 1.02):
        with pytest.raises(AssertionError, match="relative error"):
            _check.check_close(wrong, out, 1e-2)


@pytest.mark.parametrize("axis", [-1, -2])
def test_a_wrong_code_is_noticed(axis):
    x = jax.random.normal(jax.random.key(0), (200, 256), jnp.bfloat16)
    codes, scales = _cases.quantize_along(x, axis)
    _check.check_quantised(x, [codes, scales], (axis,), 1)
    with pytest.raises(AssertionError, match="differ from the reference"):
        _check.check_quantised(x, [codes.at[-1, -1].add(1), scales], (axis,), 1)


# ---- peers ---------------------------------------------------------------------------------------------------------


def answer(impl, trace, **more):
    shape = {"set": "P", "m": P.m, "n": P.n, "k": P.k}
    return json.dumps({**shape, "impl": impl, "us_event": 12.5, "us_loop": 6.5, "trace": trace, **more})


def write_trace(path, cases):
    kernels = session(cases, flush="vectorized_add")
    events = [
        {"ph": "X", "cat": "kernel" if i % 2 else "gpu_memset", "ts": k.start, "dur": k.duration, "name": k.name}
        for i, k in enumerate(kernels)
    ]
    events += [{"ph": "X", "cat": "cuda_runtime", "ts": 1.0, "dur": 9.0, "name": "cudaLaunchKernel"}, {"ph": "M"}]
    path.write_text(json.dumps({"traceEvents": events}))


def test_rows_come_from_the_lines_and_profiles_of_pytorch(tmp_path, capsys):
    write_trace(tmp_path / "a.json", [[("one_scale", 9)], [("prepare", 1), ("blocks", 10)]])
    write_trace(tmp_path / "b.json", [[("one_scale", 7)]])
    write_trace(tmp_path / "short.json", [])
    lines = [
        json.dumps({"versions": {"torch": "2.11"}}),
        answer("one", "a.json"),
        answer("blocks", "a.json", us_event=13.5),
        answer("one", "short.json"),
        answer("one", "b.json"),
    ]
    versions = {"jax": "x"}
    rows = list(_peers.read(lines, tmp_path, versions))
    assert versions == {"jax": "x", "torch": "2.11"}
    assert [(r["impl"], r["us"], r["us_event"], r["us_loop"], r["kernels"]) for r in rows] == [
        ("one", 9, 12.5, 6.5, 1),
        ("blocks", 11, 13.5, 6.5, 2),
        ("one", 7, 12.5, 6.5, 1),
    ]
    assert rows[0]["tflops"] == pytest.approx(2e-6 * P.m * P.n * P.k / 9, rel=1e-4)
    assert "short.json: the profile shows 1 flushes" in capsys.readouterr().err


def test_pytorch_runs_in_a_process_without_this_package(tmp_path, monkeypatch):
    script = tmp_path / "script.py"
    script.write_text(
        "import json, sys\n"
        "request = json.load(sys.stdin)\n"
        "print(json.dumps({'versions': {'imported': 'jax' in sys.modules, 'folder': sys.argv[1], **request}}))\n"
    )
    monkeypatch.setattr(_peers, "SCRIPT", script)
    monkeypatch.setattr(_peers.importlib.util, "find_spec", lambda name: object())
    versions = {}
    assert list(_peers.measure([P], tmp_path / "kept", versions)) == []
    assert versions["imported"] is False
    assert versions["folder"] == str(tmp_path / "kept")
    assert versions["shapes"] == [{"set": "P", "m": 4096, "n": 4096, "k": 7168}]
    assert versions["calls"] == CALLS


def test_missing_or_failing_pytorch_is_said(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(_peers.importlib.util, "find_spec", lambda name: None)
    assert list(_peers.measure([P], None, {})) == []
    assert "PyTorch isn't installed" in capfd.readouterr().err
    script = tmp_path / "script.py"
    script.write_text("import sys; sys.exit(3)")
    monkeypatch.setattr(_peers, "SCRIPT", script)
    monkeypatch.setattr(_peers.importlib.util, "find_spec", lambda name: object())
    assert list(_peers.measure([P], None, {})) == []
    assert "ended with status 3" in capfd.readouterr().err


def test_script_for_pytorch_imports_nothing_of_ours():
    imported = re.findall(r"^(?:from|import) (\w+)", _peers.SCRIPT.read_text(), re.MULTILINE)
    assert set(imported) <= {*sys.stdlib_module_names, "torch"}


# ---- comparison ----------------------------------------------------------------------------------------------------


def row(impl, us, shape=P, us_event=None, noise=None, config=""):
    timing = _timing.Timing(us, us, us, us, us_event, noise, ("kernel",))
    return _report.row(shape, impl, timing, shape.flops, shape.fp8_bytes, config)


def test_deepgemm_is_related_through_cublas():
    then = {"deepgemm": 20.0, "cublaslt_tensorwise_fast": 16.0}
    now = {"cublaslt_tensorwise_fast": row("cublaslt_tensorwise_fast", 17.0, us_event=20.0)}
    # 1.25 times as long now, and 3 us of each are the events'
    assert _compare.deepgemm_us(then, now) == pytest.approx(1.25 * 20 - 3)
    assert _compare.deepgemm_us({**then, "deepgemm": 16.0}, now) == pytest.approx(17)
    then["cublaslt_block_1x128_128x128"] = 40.0
    now["cublaslt_block_1x128_128x128"] = row("cublaslt_block_1x128_128x128", 27.0, us_event=32.0)
    assert _compare.deepgemm_us(then, now) == pytest.approx((1.25 * 0.8) ** 0.5 * 20 - 4)
    assert _compare.deepgemm_us({"cublaslt_tensorwise_fast": 16.0}, now) is None
    assert _compare.deepgemm_us(then, {}) is None


def test_ratios_are_the_faster_peer_over_ours():
    small = _shapes.Shape("D", 1, 576, 7168)
    rows = [
        row("jax_fp8", 10.0, small),
        row("jax_fp8", 150.0),
        row("jax_fp8:other", 100.0),
        row("cublaslt_tensorwise_fast", 167.0, us_event=170.0),
        row("cublaslt_block_1x128_128x128", 180.0, us_event=183.0),
        row("cublaslt_tensorwise_fast", 8.0, small, us_event=10.0),
    ]
    peers = {
        (4096, 4096, 7168): {"deepgemm": 176.0, "cublaslt_tensorwise_fast": 170.0},
        (1, 576, 7168): {"deepgemm": 13.0, "cublaslt_tensorwise_fast": 10.0},
    }
    found = _compare.compare(rows, peers, "jax_fp8")
    assert [c.deepgemm for c in found] == pytest.approx([11, 173])
    assert list(_compare.ratios(found, _compare.FASTER).values()) == pytest.approx([1.1, 173 / 150])
    assert list(_compare.ratios(found, "cuBLASLt with the same block scales").values()) == pytest.approx([1.2])
    (other,) = _compare.compare(rows, peers, "jax_fp8:other")
    assert other.peers[_compare.FASTER] / other.ours == pytest.approx(1.73)
    text = "\n".join(_compare.lines(found))
    assert re.search(r"D +faster of DeepGEMM.* 1\.100 +1\.10 1x576x7168 +1$", text, re.MULTILINE)
    assert re.search(r"P +4096x4096x7168 +150\.0 +173\.0 +180\.0 +167\.0 +1\.15$", text, re.MULTILINE)


def test_a_faster_configuration_is_reported_beyond_noise():
    rows = [
        row("jax_fp8", 100.0, noise=0.02, config="sm90 128x256: why"),
        row("jax_fp8:128x192", 99.0),
        row("jax_fp8:128x128", 130.0),
    ]
    assert _compare.configuration_lines(rows, "jax_fp8") == []
    rows[1] = row("jax_fp8:128x192", 90.0)
    (line,) = _compare.configuration_lines(rows, "jax_fp8")
    assert line == "P 4096x4096x7168: jax_fp8:128x192 takes 90.0 us, the choice sm90 128x256 100.0"


# ---- files ---------------------------------------------------------------------------------------------------------


def made_up():
    """Results of a run that never was."""
    rows = []
    for shape in _shapes.SETS["decode"] + _shapes.SETS["prefill"] + _shapes.SETS["wgrad"]:
        us = max(shape.fp8_bytes / 4e6, shape.flops / 1.4e9) + 3
        rows += [row("jax_fp8", us, shape, noise=0.01), row("jnp_bf16", 2 * us, shape)]
        rows += [row("cublaslt_tensorwise_fast", us - 1, shape, us_event=us + 1), row("jax_fp8:128x128", 9e9, shape)]
        if shape.m > 1:
            rows.append(row(_compare.BLOCK[shape.set], 1.25 * us, shape, us_event=1.25 * us + 2))
    rows += [row("jax_fp8_1x128", 123.0, _shapes.Shape("Q", 16384, 0, 16384))]
    rows += [row("jnp_bf16", 300.0, _shapes.Shape("T", 8, 16, 4)), row("jax_fp8", 200.0, _shapes.Shape("T", 8, 16, 4))]
    document = {"device": "NVIDIA H200", "driver": "1.2", "date": "2026-01-02", "versions": {"jax": "0.11.2"}}
    return {**document, "method": _report.METHOD, "rows": rows}


def test_json_is_one_line_per_row_and_reads_back(tmp_path):
    document = made_up()
    _report.write_json(tmp_path / "r.json", document)
    text = (tmp_path / "r.json").read_text()
    assert json.loads(text) == document
    assert sum('"impl"' in line for line in text.splitlines()) == len(document["rows"])
    _report.write_json(tmp_path / "r.json", {**document, "rows": []})
    assert json.loads((tmp_path / "r.json").read_text())["rows"] == []


def test_table_and_files(tmp_path, capsys):
    arguments = ["--set", "16x160x256", "--impl", "jax_fp8", "--all-configs", "--json", str(tmp_path / "r.json")]
    assert bench.main([*arguments, "--trace", str(tmp_path / "trace")]) == 0
    printed = capsys.readouterr()
    assert "16x160x256" in printed.out
    if jax.default_backend() == "cpu":
        assert "No GPU" in printed.err
    assert list((tmp_path / "trace" / "P_16x160x256").rglob("*.xplane.pb"))
    written = json.loads((tmp_path / "r.json").read_text())
    assert written.keys() == {"device", "driver", "date", "versions", "method", "rows"}
    row, *forced = written["rows"]
    assert [r["impl"] for r in forced] == [f"jax_fp8:{name}" for name in _cases.config_names(P)]
    expected = {"set", "impl", "m", "n", "k", "us", "us_min", "us_max", "us_loop", "tflops", "gbps", "config", "noise"}
    assert row.keys() >= expected
    assert (row["set"], row["impl"], row["m"], row["n"], row["k"]) == ("P", "jax_fp8", 16, 160, 256)
    assert row["us_loop"] > 0


def test_a_wrong_result_is_not_timed_and_ends_with_status_1(monkeypatch, capsys):
    def wrong(fn, *args):
        raise AssertionError("it is wrong")

    monkeypatch.setattr(_cases, "sample", wrong)
    assert bench.main(["--set", "16x160x256", "--no-torch"]) == 1
    printed = capsys.readouterr()
    assert "FAILED P 16x160x256 jnp_bf16: it is wrong; not timed" in printed.err
    assert "16x160x256" not in printed.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--config", "7x7"], "must be one of"),
        (["--from", "x.json", "--set", "decode"], "measures nothing"),
        (["--config", "128x128", "--all-configs"], "not allowed with"),
    ],
)
def test_options_that_make_no_sense_are_refused(arguments, message, capsys):
    with pytest.raises(SystemExit) as stop:
        bench.main(arguments)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_readme_and_picture_are_made_from_the_results(tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    _report.write_json(tmp_path / "r.json", made_up())
    readme, picture = tmp_path / "README.md", tmp_path / "plots" / "r.png"
    picture.parent.mkdir()
    readme.write_text(f"before\n{_readme.BEGIN}\nold numbers\n{_readme.END}\nafter\n")
    peers = ROOT / "benchmarks" / "peers-h200.json"
    command = ["--from", str(tmp_path / "r.json"), "--peers", str(peers), "--plot", str(picture)]
    assert bench.main([*command, "--readme", str(readme)]) == 0
    text = readme.read_text()
    assert text.startswith(f"before\n{_readme.BEGIN}\nOne NVIDIA H200, driver 1.2, jax 0.11.2, 2026-01-02.")
    assert text.endswith(f"{_readme.END}\nafter\n")
    assert "old numbers" not in text
    assert "](plots/r.png)" in text
    # bfloat16 takes twice our time, cuBLASLt 1.25 times; configurations asked for by name don't appear
    assert re.search(r"^\| decode, m = 64 \| 7 \| 2\.00 \(2\.00\) \| - \| 1\.25 \(1\.25\) \| ", text, re.MULTILINE)
    assert re.search(r"^\| weight gradient, 16384 tokens \| 7 \| 2\.00 ", text, re.MULTILINE)
    assert "| SwiGLU block, forward and backward | 8 x 16 x 4 | 200 us | 0 TFLOP/s | 1.50 |" in text
    assert "9000000000" not in text
    assert "| 4096 x 4096 |" not in text  # one m only: no row to itself
    assert picture.stat().st_size > 1000
    once = readme.read_text()
    assert bench.main([*command, "--readme", str(readme)]) == 0
    assert readme.read_text() == once


@pytest.mark.parametrize(
    "text", ["", _readme.BEGIN, f"{_readme.END}{_readme.BEGIN}", 2 * (_readme.BEGIN + _readme.END)]
)
def test_readme_without_its_markers_is_refused(text):
    with pytest.raises(ValueError, match="once each"):
        _readme.replace(text, "numbers")


def test_labels_are_spread_around_their_middle():
    assert _plot._spread([1, 5], 1) == [1, 5]
    assert _plot._spread([2, 2, 2, 9], 1) == [1, 2, 3, 9]
    placed = _plot._spread([0, 0.1, 0.2, 1.2], 1)
    assert np.diff(placed) == pytest.approx([1, 1, 1])


def test_picture_needs_a_product():
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    with pytest.raises(ValueError, match="nothing to draw"):
        _plot.write_plot(Path("unused.png"), {**made_up(), "rows": []})


def test_numbers_in_readme_are_those_of_the_results():
    results = ROOT / "benchmarks" / "nvidia-h200.json"
    if not results.is_file():
        pytest.skip(f"no {results.name} yet")
    peers = _compare.read_peers(ROOT / "benchmarks" / "peers-h200.json")
    block = _readme.block(json.loads(results.read_text()), peers, bench.PICTURE)
    text = (ROOT / "README.md").read_text()
    assert _readme.replace(text, block) == text, "run the command in README that makes its tables"
    assert (ROOT / bench.PICTURE).is_file()
