"""The program XLA makes for an H100: our custom calls with their layouts, and nothing around them.

Compiles for a described device (tests/data/h100.txtpb), so no GPU is needed, only jax's CUDA plugin
and the kernels' module. Would catch: a transpose or copy that XLA inserts around a call because a
layout isn't what it seems, a quantisation that runs twice, a residual kept in float8, a dtype
conversion before quantisation, missing scratch.
"""

from __future__ import annotations

import functools
import os
import re
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding

import jax_fp8
from jax_fp8 import _extension

MATMUL, QUANTIZE = _extension.MATMUL_TARGET, _extension.QUANTIZE_TARGET
PASSIVE = {"parameter", "get-tuple-element", "tuple", "bitcast"}  # no kernel runs for these
FLOAT8 = re.compile(r"float8|f8_?e\dm\d", re.IGNORECASE)  # as jaxprs, StableHLO and HLO spell it
M, K, N = 1024, 512, 768


def _missing(reason: str) -> None:
    if os.environ.get("JAX_FP8_STRICT", "0") not in ("", "0"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def h100():
    """A device that can be compiled for."""
    os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")  # of libraries that only running needs
    if _extension.cuda is None:
        _missing("jax_fp8._cuda is missing: this installation has no CUDA kernels")
    if not _extension.use_kernels():
        _missing("the GPU of this machine isn't a Hopper GPU, and lowering follows it")
    config = (Path(__file__).parent / "data" / "h100.txtpb").read_text()
    try:
        topology = topologies.get_topology_desc("h100:1x1x1", "cuda", target_config=config, topology="1x1x1")
    except Exception as error:  # jax has no one type for this
        _missing(f"jax can't compile for CUDA here (jax[cuda13-local] is enough): {error}")
    return topology.devices[0]


@pytest.fixture
def array(h100):
    """Makes a described array on the device."""
    sharding = SingleDeviceSharding(h100)
    return lambda *shape, dtype=jnp.bfloat16: jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)


@pytest.fixture
def on_device(array):
    """Describes the results of a function of described arrays."""

    def describe(fn, *args):
        return jax.tree.map(lambda x: array(*x.shape, dtype=x.dtype), jax.eval_shape(fn, *args))

    return describe


# ---- optimised HLO -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Instruction:
    shape: str
    opcode: str
    operands: list[str]
    attributes: str

    @property
    def target(self) -> str:
        found = re.search(r'custom_call_target="([^"]*)"', self.attributes)
        return found[1] if found else ""

    @property
    def operand_layouts(self) -> list[str]:
        found = re.search(r"operand_layout_constraints=\{((?:\w+\[[\d,]*\]\{[\d,]*\}(?:, )?)*)\}", self.attributes)
        assert found, self
        return re.findall(r"\w+\[[\d,]*\]\{[\d,]*\}", found[1])

    @property
    def results(self) -> list[str]:
        return re.findall(r"\w+\[[\d,]*\]\{[\d,]*\}", self.shape)


class Program:
    """The instructions of a compiled function, those inside of fusions included."""

    def __init__(self, fn, *args):
        self.text = jax.jit(fn).lower(*args).compile().as_text()
        line = r"^ +(?:ROOT )?%?([\w.-]+) = (\([^()]*\)|\S+) ([\w-]+)\((.*?)\)(.*)$"
        self.instructions = {
            name: Instruction(shape, opcode, re.findall(r"%([\w.-]+)", operands), attributes)
            for name, shape, opcode, operands, attributes in re.findall(line, self.text, re.MULTILINE)
        }
        assert any(i.opcode == "parameter" for i in self.instructions.values()), self.text

    def calls(self, target: str) -> list[Instruction]:
        return [i for i in self.instructions.values() if i.target == target]

    def shapes(self) -> str:
        return " ".join(i.shape for i in self.instructions.values())

    def num_calls(self) -> tuple[int, int]:
        return len(self.calls(QUANTIZE)), len(self.calls(MATMUL))

    def other_work(self) -> Counter:
        """Opcodes of everything that runs besides our calls."""
        return Counter(
            i.opcode
            for i in self.instructions.values()
            if i.opcode not in PASSIVE and i.target not in (MATMUL, QUANTIZE)
        )

    def source(self, name: str) -> Instruction:
        """What made a value, seen through tuples and bitcasts."""
        found = self.instructions[name]
        return self.source(found.operands[0]) if found.opcode in ("get-tuple-element", "bitcast") else found

    def assert_codes_and_scales_are_untouched(self):
        """Products read what a quantisation or a parameter gave; nothing else reads or makes 8-bit data."""
        for call in self.calls(MATMUL):
            sources = [self.source(operand) for operand in call.operands]
            assert all(s.target == QUANTIZE or s.opcode == "parameter" for s in sources), sources
        for name, i in self.instructions.items():
            if i.opcode not in PASSIVE and i.target not in (MATMUL, QUANTIZE):
                assert "u8[" not in i.shape, (name, i)
                assert not any("u8[" in self.instructions[operand].shape for operand in i.operands), (name, i)


def _quantized_inside(x, w):
    return jax_fp8.dot(x, jax_fp8.quantize(w, (128, 128)).T)


def _times_transpose(x, w):
    return jax_fp8.dot(x, w.T)


def _vjp(fn):
    """Result and gradients of a function, given its cotangent."""

    def run(*args):
        y, pullback = jax.vjp(fn, *args[:-1])
        return y, *pullback(args[-1])

    return run


def _dot_attached(x, q, master):
    return jax_fp8.dot(x, jax_fp8.attach(q, master))


def _vjp_attached(x, q, ct):
    y, pullback = jax.vjp(lambda x, master: _dot_attached(x, q, master), x, q.master)
    return y, *pullback(ct)


# ---- forward -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fn", "w_shape"),
    [(jax_fp8.dot, (K, N)), (_times_transpose, (N, K)), (_quantized_inside, (N, K))],
    ids=["dot(x, w)", "dot(x, w.T)", "dot(x, quantize(w).T)"],
)
def test_forward_is_three_calls(array, fn, w_shape):
    program = Program(fn, array(M, K), array(*w_shape))
    assert program.num_calls() == (2, 1)
    assert not program.other_work()
    (product,) = program.calls(MATMUL)
    assert product.operand_layouts == ["u8[1024,512]{1,0}", "f32[1024,4]{0,1}", "u8[768,512]{1,0}", "f32[6,4]{1,0}"]
    assert product.results == ["bf16[1024,768]{1,0}", "u8[0]{0}"]  # no scratch
    assert "rows_per_b_scale = 128 : i64" in product.attributes
    shape = ",".join(map(str, w_shape))
    assert sorted(layout for call in program.calls(QUANTIZE) for layout in call.operand_layouts) == [
        "bf16[1024,512]{1,0}",
        f"bf16[{shape}]{{1,0}}",
    ]


@pytest.mark.parametrize("for_inference", [True, False])
@pytest.mark.parametrize("stored", ["k, n", "n, k"])
def test_forward_with_a_quantized_argument_is_two_calls(array, on_device, stored, for_inference):
    def quantize(w):
        w = w if stored == "k, n" else w.T
        return jax_fp8.quantize_weight(w, for_inference=for_inference)

    q = on_device(quantize, array(*((K, N) if stored == "k, n" else (N, K))))
    program = Program(jax_fp8.dot, array(M, K), q)
    assert program.num_calls() == (1, 1)
    assert not program.other_work()
    program.assert_codes_and_scales_are_untouched()


def test_forward_with_a_checkpoint_weight_is_two_calls(array):
    q = jax_fp8.BlockScaled._make(array(N, K, dtype=jnp.uint8), array(6, 4, dtype=jnp.float32), 128)
    program = Program(lambda x, q: jax_fp8.dot(x, q.T), array(M, K), q)
    assert program.num_calls() == (1, 1)
    assert not program.other_work()
    (product,) = program.calls(MATMUL)
    assert product.operand_layouts == ["u8[1024,512]{1,0}", "f32[1024,4]{0,1}", "u8[768,512]{1,0}", "f32[6,4]{1,0}"]


def test_quantize_weight_reads_the_weight_once(array):
    program = Program(lambda w: jax_fp8.quantize_weight(w).codes, array(K, N))
    assert program.num_calls() == (1, 0)
    both = Program(jax_fp8.quantize_weight, array(K, N))
    assert both.num_calls() == (1, 0)
    assert both.calls(QUANTIZE)[0].results == ["u8[768,512]{1,0}", "f32[6,4]{1,0}", "u8[512,768]{1,0}", "f32[4,6]{1,0}"]


def test_operands_are_quantized_from_their_own_dtype(array):
    program = Program(jax_fp8.dot, array(M, K, dtype=jnp.float32), array(K, N))
    assert program.num_calls() == (2, 1)
    assert not program.other_work()
    assert program.calls(MATMUL)[0].results[0] == "f32[1024,768]{1,0}"


@pytest.mark.parametrize("fn", [jax_fp8.dot, jax.vmap(jax_fp8.dot, (0, None))], ids=["dot", "vmap"])
def test_leading_axes_of_x_are_bitcasts(array, fn):
    program = Program(fn, array(2, 512, K), array(K, N))
    assert program.num_calls() == (2, 1)
    assert not program.other_work()
    assert program.calls(MATMUL)[0].operand_layouts[:2] == ["u8[1024,512]{1,0}", "f32[1024,4]{0,1}"]


def test_batched_weights_are_one_product(array):
    program = Program(jax.vmap(jax_fp8.dot), array(3, M, K), array(3, K, N))
    assert program.num_calls() == (2, 1)
    assert not program.other_work()
    assert program.calls(MATMUL)[0].operand_layouts == [
        "u8[3,1024,512]{2,1,0}",
        "f32[3,1024,4]{1,0,2}",
        "u8[3,768,512]{2,1,0}",
        "f32[3,6,4]{2,1,0}",
    ]


def test_batched_activations_are_one_product(array):
    dims = (((2,), (2,)), ((0,), (0,)))
    program = Program(partial(jax_fp8.dot_general, dimension_numbers=dims), array(3, M, K), array(3, N, K))
    assert program.num_calls() == (2, 1)
    assert not program.other_work()
    (product,) = program.calls(MATMUL)
    assert product.operand_layouts[1::2] == ["f32[3,1024,4]{1,0,2}", "f32[3,768,4]{1,0,2}"]
    assert "rows_per_b_scale = 1 : i64" in product.attributes


@pytest.mark.parametrize("k", [96, 100])
def test_scratch_only_where_tma_cannot_read_the_rows(array, k):
    program = Program(jax_fp8.dot, array(100, k), array(k, 50))
    assert program.num_calls() == (2, 1)
    assert not program.other_work()
    padded = 100 * 112 + 64 + 50 * 112 + 32  # rows of 112 bytes, each part a multiple of 256
    assert program.calls(MATMUL)[0].results[1:] == [f"u8[{padded if k % 16 else 0}]{{0}}"]


# ---- training ------------------------------------------------------------------------------------


def _assert_training_calls(program, n_first):
    """Three quantisations, each in both orientations of one read, and three products with the recipe's operands."""
    assert program.num_calls() == (3, 3)
    program.assert_codes_and_scales_are_untouched()
    assert all(len(call.results) == 4 for call in program.calls(QUANTIZE))
    forward = ["u8[1024,512]{1,0}", "f32[1024,4]{0,1}", "u8[768,512]{1,0}", "f32[6,4]{1,0}"]
    dgrad = ["u8[1024,768]{1,0}", "f32[1024,6]{0,1}", "u8[512,768]{1,0}", "f32[4,6]{1,0}"]
    x, ct = ["u8[512,1024]{1,0}", "f32[512,8]{0,1}"], ["u8[768,1024]{1,0}", "f32[768,8]{0,1}"]
    wgrad = [*ct, *x] if n_first else [*x, *ct]
    layouts = {tuple(call.operand_layouts): call for call in program.calls(MATMUL)}
    assert set(layouts) == {tuple(forward), tuple(dgrad), tuple(wgrad)}
    for operands, rows in ((forward, 128), (dgrad, 128), (wgrad, 1)):
        assert f"rows_per_b_scale = {rows} : i64" in layouts[tuple(operands)].attributes


def test_training_step_is_six_calls(array):
    program = Program(_vjp(jax_fp8.dot), array(M, K), array(K, N), array(M, N))
    _assert_training_calls(program, n_first=False)
    assert not program.other_work()


def test_training_step_of_a_transposed_weight_moves_no_codes_or_scales(array):
    program = Program(_vjp(_times_transpose), array(M, K), array(N, K), array(M, N))
    _assert_training_calls(program, n_first=False)


@pytest.mark.xfail(
    reason="the gradient of w in dot(x, w.T) is made (k, n) and transposed to (n, k) by XLA, 2 bytes an element"
)
def test_training_step_of_a_transposed_weight_is_six_calls(array):
    program = Program(_vjp(_times_transpose), array(M, K), array(N, K), array(M, N))
    assert not program.other_work()


def test_training_step_of_an_einsum_with_an_n_k_weight_is_six_calls(array):
    fn = functools.partial(jax_fp8.einsum, "mk,nk->mn")
    program = Program(_vjp(fn), array(M, K), array(N, K), array(M, N))
    assert program.num_calls() == (3, 3)
    assert not program.other_work()


def test_training_step_with_a_quantized_weight_is_five_calls(array, on_device):
    q = on_device(jax_fp8.quantize_weight, array(K, N))
    program = Program(_vjp_attached, array(M, K), q, array(M, N))
    assert program.num_calls() == (2, 3)
    assert all(len(call.results) == 4 for call in program.calls(QUANTIZE))


def test_training_step_with_a_quantized_weight_moves_no_scales(array, on_device):
    q = on_device(jax_fp8.quantize_weight, array(K, N))
    program = Program(_vjp_attached, array(M, K), q, array(M, N))
    program.assert_codes_and_scales_are_untouched()
    assert not program.other_work()


def _loss(params, x):
    for w in params:
        x = jax.nn.relu(jax_fp8.dot(x, w))
    return jnp.mean(jnp.square(x.astype(jnp.float32)))


def test_training_step_of_two_layers_quantizes_nothing_twice(array):
    params = [array(K, N), array(N, K)]
    program = Program(jax.value_and_grad(_loss), params, array(M, K))
    # x, w1, w2, the hidden layer, and two cotangents; the first layer has no dgrad
    assert program.num_calls() == (6, 5)
    program.assert_codes_and_scales_are_untouched()


# ---- no float8 -----------------------------------------------------------------------------------


def _scanned_loss(params, x):
    def layer(x, w):
        return jax.nn.relu(jax_fp8.dot(x, w)), None

    return jnp.sum(lax.scan(layer, x, params)[0].astype(jnp.float32))


def _jvp(x, w):
    return jax.jvp(jax_fp8.dot, (x, w), (x, w))


def _attached_loss(w, x):
    q = jax_fp8.quantize_weight(lax.stop_gradient(w))
    return jnp.sum(_dot_attached(x, q, w).astype(jnp.float32))


STEPS = {
    "dot": (jax_fp8.dot, [(M, K), (K, N)]),
    "quantize": (_quantized_inside, [(M, K), (N, K)]),
    "vjp": (_vjp(jax_fp8.dot), [(M, K), (K, N), (M, N)]),
    "checkpoint": (jax.grad(jax.checkpoint(_scanned_loss)), [(2, K, K), (M, K)]),
    "scan": (jax.grad(_scanned_loss), [(2, K, K), (M, K)]),
    "attach": (jax.grad(_attached_loss), [(K, N), (M, K)]),
    "jvp": (_jvp, [(M, K), (K, N)]),
}


def _assert_no_float8_in_program(array, name):
    fn, shapes = STEPS[name]
    args = [array(*shape) for shape in shapes]
    assert not FLOAT8.search(jax.jit(fn).lower(*args).as_text())
    assert not FLOAT8.search(Program(fn, *args).shapes())


@pytest.mark.parametrize("name", STEPS)
def test_no_float8_in_jaxprs(array, name):
    fn, shapes = STEPS[name]
    assert not FLOAT8.search(str(jax.make_jaxpr(fn)(*(array(*shape) for shape in shapes))))


@pytest.mark.parametrize("name", [name for name in STEPS if name != "jvp"])
def test_no_float8_in_programs(array, name):
    _assert_no_float8_in_program(array, name)


def test_the_search_for_float8_finds_it(array):
    def fn(x):
        return jax_fp8.quantize(x).values

    assert FLOAT8.search(str(jax.make_jaxpr(fn)(array(M, K))))
    assert FLOAT8.search(jax.jit(fn).lower(array(M, K)).as_text())
    assert FLOAT8.search(Program(fn, array(M, K)).shapes())
