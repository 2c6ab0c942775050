"""Checks the main job, `python -m jax_fp8`, with a tiny model on the CPU.

Catches: runs that see different batches or parameters, a linear layer that bypasses `linear`, a
wrong exit status or message, a late complaint about matplotlib, a traceback after Ctrl-C.
"""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_fp8
from jax_fp8 import __main__ as main_job
from jax_fp8 import _training as training

TINY = training.Sizes(64, 2, 2, 80, seq_len=24, batch=5, steps=24, learning_rate=5e-3)


@pytest.fixture
def tiny(monkeypatch):
    """Makes every platform train `TINY`."""
    monkeypatch.setattr(training.Sizes, "for_platform", lambda platform: TINY)


@pytest.fixture(scope="module")
def comparison():
    return training.compare(TINY, seed=3, platform="cpu")


def test_losses_of_both_runs_fall_and_stay_close(comparison):
    for run in (comparison.baseline, comparison.fp8):
        assert run.losses.shape == (TINY.steps,)
        assert 5 < run.losses[0] < 7
        assert run.final_loss < run.losses[0] - 1.5
        assert run.seconds_per_step > 0
    assert np.abs(comparison.gaps).max() < 0.05
    assert comparison.agrees


def test_runs_differ_only_in_their_linear_layers(comparison):
    assert not np.array_equal(comparison.baseline.losses, comparison.fp8.losses)
    batches = training.sample_batches(training.load_text(), TINY, seed=3)
    again = training.train("again", jnp.dot, TINY, batches, 3, training.compute_dtype("cpu"))
    # not bit for bit on a GPU: there XLA adds up the embedding's gradient in any order
    np.testing.assert_allclose(
        again.losses, comparison.baseline.losses, rtol=1e-4 if jax.default_backend() == "gpu" else 0
    )


def test_both_runs_see_equal_batches(monkeypatch):
    seen = {}

    def record(name, linear, sizes, batches, seed, dtype, report):
        seen[name] = (np.stack(list(batches)), seed)
        return training.Run(name, np.ones(sizes.steps, np.float32), 1.0, 1.0)

    monkeypatch.setattr(training, "train", record)
    training.compare(TINY, seed=5, platform="cpu")
    (baseline, baseline_seed), (fp8, fp8_seed) = seen["float32"], seen["fp8"]
    assert baseline.shape == (TINY.steps, TINY.batch, TINY.seq_len + 1)
    np.testing.assert_array_equal(baseline, fp8)
    assert baseline_seed == fp8_seed == 5
    other = np.stack(list(training.sample_batches(training.load_text(), TINY, seed=6)))
    assert not np.array_equal(baseline, other)
    assert bytes(baseline[0, 0]) in training.load_text().tobytes()


def test_text_is_english_prose():
    text = training.load_text()
    assert len(text) > 300_000
    assert text.tobytes().count(b" the ") > 3000


def test_every_linear_layer_calls_linear():
    calls = []

    def linear(x, w):
        calls.append((x.size // x.shape[-1], w.shape[1], w.shape[0]))
        return jnp.dot(x, w)

    params = jax.eval_shape(lambda: training.init_params(TINY, jax.random.key(0)))
    tokens = jax.ShapeDtypeStruct((TINY.batch, TINY.seq_len), jnp.int32)
    logits = jax.eval_shape(lambda p, t: training.logits(p, t, linear, TINY.num_heads, jnp.float32), params, tokens)
    assert logits.shape == (TINY.batch, TINY.seq_len, 256)
    assert set(calls) == {(layer.m, layer.n, layer.k) for layer in training.linear_layers(TINY)}


def test_attention_is_causal():
    params = training.init_params(TINY, jax.random.key(1))
    tokens = jax.random.randint(jax.random.key(2), (1, TINY.seq_len), 0, 256)
    changed = tokens.at[0, 10].add(1)
    first, second = (training.logits(params, each, jnp.dot, TINY.num_heads, jnp.float32) for each in (tokens, changed))
    np.testing.assert_array_equal(first[:, :10], second[:, :10])
    assert np.abs(first[:, 10:] - second[:, 10:]).max() > 1e-3


def test_gpu_sizes_are_large_and_cpu_sizes_small():
    assert training.Sizes.for_platform("gpu").d_model >= 2048
    assert training.Sizes.for_platform("cpu").num_params < 1e6
    assert training.compute_dtype("gpu") == jnp.bfloat16
    assert training.compute_dtype("cpu") == jnp.float32


def test_products_of_the_layers_have_distinct_extents():
    for platform in ("cpu", "gpu"):
        layers = training.linear_layers(training.Sizes.for_platform(platform))
        for role in main_job.ROLES:
            extents = [(*sorted(e[:2]), e[2]) for e in (layer.extents(role) for layer in layers)]
            assert len(set(extents)) == len(layers)


@pytest.mark.usefixtures("tiny")
def test_job_prints_tables_and_writes_files(tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    report, plot = tmp_path / "report.json", tmp_path / "curves.png"
    assert main_job.main(["--steps", "12", "--json", str(report), "--plot", str(plot)]) == 0
    out, err = capsys.readouterr()
    assert "step 12/12" in err
    assert "final losses agree within 2%" in out
    assert "largest gap of a single step" in out
    assert "time per step" in out
    for layer in training.linear_layers(TINY):
        for role in main_job.ROLES:
            rows = [line.split() for line in out.splitlines() if line.startswith(layer.name)]
            row = next(row for row in rows if row[1] == role)
            m, n, k = layer.extents(role)
            assert (sorted(map(int, row[2:4])), int(row[4])) == (sorted((m, n)), k)
            assert int(row[5]) == layer.count
    assert "no FP8 product" not in out
    assert "other" not in {line.split(" ")[0] for line in out.splitlines()}
    written = json.loads(report.read_text())
    assert [len(run["losses"]) for run in written["runs"].values()] == [12, 12]
    assert written["sizes"] == dataclasses.asdict(dataclasses.replace(TINY, steps=12))
    assert written["agrees"] is True
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("tiny")
def test_status_is_1_when_final_losses_differ(comparison, monkeypatch, capsys):
    def scaled(factor):
        fp8 = dataclasses.replace(comparison.fp8, losses=factor * comparison.baseline.losses)
        return lambda *args: dataclasses.replace(comparison, fp8=fp8)

    for factor, status, verdict in (
        (1.019, 0, "final losses agree within 2% (+1.90%)"),
        (1.021, 1, "final losses DIFFER by more than 2% (+2.10%)"),
        (0.979, 1, "final losses DIFFER by more than 2% (-2.10%)"),
    ):
        monkeypatch.setattr(training, "compare", scaled(np.float32(factor)))
        assert main_job.main([]) == status
        assert verdict in capsys.readouterr().out


@pytest.mark.usefixtures("tiny")
def test_status_is_1_when_a_loss_is_not_finite(monkeypatch, capsys):
    def compare(sizes, seed, platform, report):
        batches = training.sample_batches(training.load_text(), sizes, seed)
        dtype = training.compute_dtype(platform)
        training.train("fp8", lambda x, w: x @ w * jnp.nan, sizes, batches, seed, dtype, report)

    monkeypatch.setattr(training, "compare", compare)
    assert main_job.main(["--steps", "6"]) == 1
    assert "error: fp8: the loss is nan at step 1 of 6" in capsys.readouterr().err


@pytest.mark.usefixtures("tiny")
def test_missing_kernels_are_said_before_training(monkeypatch, capsys):
    def explain_step(sizes, platform):
        raise RuntimeError("jax_fp8: this installation has no CUDA kernels")

    monkeypatch.setattr(training, "explain_step", explain_step)
    monkeypatch.setattr(training, "compare", lambda *args: pytest.fail("training has started"))
    assert main_job.main([]) == 1
    assert "error: jax_fp8: this installation has no CUDA kernels\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--steps", "0"], "argument --steps: needs an integer of at least 1, got '0'"),
        (["--steps", "ten"], "argument --steps: needs an integer of at least 1, got 'ten'"),
        (["--seed", "-1"], "argument --seed: needs an integer from 0 to 2**32 - 1, got '-1'"),
        (["--plot", "curves.pdf"], "must end in .png, got curves.pdf"),
        (["--plot", "nowhere/curves.png"], "argument --plot: directory nowhere does not exist"),
        (["--json", "nowhere/a.json"], "argument --json: directory nowhere does not exist"),
        (["--json", "."], "argument --json: . is a directory"),
    ],
)
def test_wrong_options_are_named(argv, message, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as exit_info:
        main_job.main(argv)
    assert exit_info.value.code == 2
    assert message in capsys.readouterr().err


def test_missing_matplotlib_is_said_before_training(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setattr(training, "compare", lambda *args: pytest.fail("training has started"))
    with pytest.raises(SystemExit) as exit_info:
        main_job.main(["--plot", str(tmp_path / "curves.png")])
    assert exit_info.value.code == 2
    assert "--plot: needs matplotlib (pip install 'jax_fp8[plot]')" in capsys.readouterr().err


@pytest.fixture
def default_sigint():
    """Undoes an ignored SIGINT, which a shell gives its background jobs and children inherit."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


@pytest.mark.parametrize("moment", ["compiling", "step "])
@pytest.mark.usefixtures("default_sigint")
def test_ctrl_c_ends_the_job_with_one_line(moment, tmp_path):
    package_root = str(Path(jax_fp8.__file__).parents[1])
    path = os.pathsep.join(filter(None, [package_root, os.environ.get("PYTHONPATH")]))
    progress = tmp_path / "stderr"
    with progress.open("w") as stderr:
        job = subprocess.Popen(
            [sys.executable, "-m", "jax_fp8", "--steps", "100000"],
            env={**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": path},
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
        )
    try:
        deadline = time.monotonic() + 60
        while f"float32: {moment}" not in progress.read_text() and time.monotonic() < deadline:
            assert job.poll() is None, progress.read_text()
            time.sleep(0.1)
        job.send_signal(signal.SIGINT)
        status = job.wait(timeout=30)
    finally:
        job.kill()
        job.wait()
    said = progress.read_text()
    assert status == 130, said
    assert "Traceback" not in said
    last = said.splitlines()[-1]
    assert last.startswith(f"interrupted. float32: {moment}")
    assert moment == "compiling" or "/100000  loss " in last
