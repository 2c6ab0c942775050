"""A byte-level transformer language model in plain JAX, trained twice by `python -m jax_fp8`.

Both runs share the seed, the initial parameters and the batches. They differ in one function,
`linear(x, w)`, which every linear layer calls: `jnp.dot` in the compute dtype (baseline) or
`jax_fp8.dot`. Parameters and Adam state are float32, stacked over layers and scanned, so compile
time does not grow with depth.

Nothing here prints: `__main__` passes a callback that receives `Progress` and formats what
`compare` returns.
"""

from __future__ import annotations

import dataclasses
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import jax_fp8
from jax_fp8._explain import Explanation

Linear = Callable[[jax.Array, jax.Array], jax.Array]
Params = dict[str, Any]

NUM_BYTES = 256
MAX_RELATIVE_GAP = 0.02
MAX_WINDOW = 20  # steps whose mean loss is the final loss: single batches differ by 0.3
SYNC_EVERY = 5  # steps between two waits for the device: progress is fresh and the device never idles


class NonFiniteLoss(ArithmeticError):
    """The loss of a run became NaN or infinite."""


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Extents of the model and of its training."""

    d_model: int
    num_layers: int
    num_heads: int
    d_ff: int
    seq_len: int
    batch: int
    steps: int
    learning_rate: float

    @classmethod
    def for_platform(cls, platform: str) -> Sizes:
        """Returns sizes for both runs within 100 s on two CPU cores or two minutes on an H200."""
        if platform == "cpu":
            return cls(128, 3, 4, 320, seq_len=128, batch=16, steps=160, learning_rate=2e-3)
        return cls(2048, 8, 16, 5632, seq_len=512, batch=16, steps=200, learning_rate=3e-4)

    @property
    def num_params(self) -> int:
        """Number of parameters, embedding and norms included."""
        shapes = jax.eval_shape(lambda: init_params(self, jax.random.key(0)))
        return sum(leaf.size for leaf in jax.tree.leaves(shapes))


@dataclasses.dataclass(frozen=True)
class LinearLayer:
    """A linear layer's forward product, (m, k) by (k, n), and how often a step runs it."""

    name: str
    m: int
    n: int
    k: int
    count: int

    def extents(self, role: str) -> tuple[int, int, int]:
        """Returns (m, n, k) of "forward", "dgrad" or "wgrad"; the latter gives w's own (k, n)."""
        return {
            "forward": (self.m, self.n, self.k),
            "dgrad": (self.m, self.k, self.n),
            "wgrad": (self.k, self.n, self.m),
        }[role]


@dataclasses.dataclass(frozen=True)
class Progress:
    """State of one run: its last finished step, 0 while it compiles, and that step's loss."""

    run: str
    step: int
    steps: int
    loss: float
    seconds_per_step: float


@dataclasses.dataclass(frozen=True)
class Run:
    """Losses and timings of one finished run."""

    name: str
    losses: np.ndarray  # (steps,) float32, before each step's update
    seconds_per_step: float
    compile_seconds: float

    @property
    def final_loss(self) -> float:
        """Mean loss of the last `smoothing_window` steps."""
        return float(np.mean(self.losses[-smoothing_window(len(self.losses)) :]))


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Both runs side by side. Gaps are relative to the baseline."""

    sizes: Sizes
    baseline: Run
    fp8: Run

    @property
    def gaps(self) -> np.ndarray:
        """(fp8 - baseline) / baseline of every step's loss."""
        return (self.fp8.losses - self.baseline.losses) / self.baseline.losses

    @property
    def final_gap(self) -> float:
        """Relative gap of the smoothed final losses: the number that decides the exit status."""
        return (self.fp8.final_loss - self.baseline.final_loss) / self.baseline.final_loss

    @property
    def agrees(self) -> bool:
        """Whether the smoothed final losses differ by at most `MAX_RELATIVE_GAP`."""
        return abs(self.final_gap) <= MAX_RELATIVE_GAP


def smoothing_window(steps: int) -> int:
    """Number of last steps whose mean loss is the final loss: fewer in short runs."""
    return max(1, min(MAX_WINDOW, steps // 4))


def compute_dtype(platform: str) -> jnp.dtype:
    """Returns the dtype of activations and of the baseline's products."""
    return jnp.dtype(jnp.float32 if platform == "cpu" else jnp.bfloat16)


def load_text() -> np.ndarray:
    """Returns the prose of Python's own language reference, about 460 kB, as uint8."""
    from pydoc_data.topics import topics

    text = "\n\n".join(topics[name] for name in sorted(topics))
    return np.frombuffer(text.encode(), np.uint8)


def sample_batches(text: np.ndarray, sizes: Sizes, seed: int) -> Iterator[np.ndarray]:
    """Yields a (batch, seq_len + 1) uint8 array per step: text windows at random positions."""
    generator = np.random.default_rng(seed)
    for _ in range(sizes.steps):
        starts = generator.integers(len(text) - sizes.seq_len, size=(sizes.batch, 1))
        yield text[starts + np.arange(sizes.seq_len + 1)]


def linear_layers(sizes: Sizes) -> tuple[LinearLayer, ...]:
    """Lists the model's linear layers under the names their `jax.named_scope` carries."""
    tokens, d, layers = sizes.batch * sizes.seq_len, sizes.d_model, sizes.num_layers
    return (
        LinearLayer("attention.qkv", tokens, 3 * d, d, layers),
        LinearLayer("attention.out", tokens, d, d, layers),
        LinearLayer("mlp.gate_up", tokens, 2 * sizes.d_ff, d, layers),
        LinearLayer("mlp.down", tokens, d, sizes.d_ff, layers),
        LinearLayer("unembedding", tokens, NUM_BYTES, d, 1),
    )


def init_params(sizes: Sizes, key: jax.Array) -> Params:
    """Returns float32 parameters; weights are (k, n) and stacked over layers in front."""
    d, layers = sizes.d_model, sizes.num_layers
    embedding_key, *weight_keys = jax.random.split(key, 1 + len(linear_layers(sizes)))
    weights = {}
    for layer, weight_key in zip(linear_layers(sizes), weight_keys, strict=True):
        shape = (layer.k, layer.n) if layer.name == "unembedding" else (layers, layer.k, layer.n)
        # What writes to the residual stream starts smaller: variance must not grow with depth.
        damping = (2 * layers) ** -0.5 if layer.name in ("attention.out", "mlp.down") else 1.0
        weights[layer.name] = jax.random.normal(weight_key, shape) * damping * layer.k**-0.5
    return {
        "embedding": jax.random.normal(embedding_key, (NUM_BYTES, d)) * 0.5,
        "final_norm": jnp.ones(d),
        "unembedding": weights.pop("unembedding"),
        "layers": {
            **weights,
            "attention.norm": jnp.ones((layers, d)),
            "mlp.norm": jnp.ones((layers, d)),
        },
    }


def rms_norm(x: jax.Array, gain: jax.Array) -> jax.Array:
    """Computes x / rms(x) * gain over the last axis in float32."""
    x32 = x.astype(jnp.float32)
    return (x32 * lax.rsqrt(jnp.mean(x32**2, -1, keepdims=True) + 1e-6) * gain).astype(x.dtype)


def rotate(x: jax.Array) -> jax.Array:
    """Applies rotary position embedding to x (batch, seq, heads, head_dim)."""
    seq_len, half = x.shape[1], x.shape[3] // 2
    frequencies = 10000.0 ** (-jnp.arange(half) / half)
    angles = jnp.arange(seq_len)[:, None, None] * frequencies  # (seq, 1, half)
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1).astype(x.dtype)


def logits(params: Params, tokens: jax.Array, linear: Linear, num_heads: int, dtype: jnp.dtype) -> jax.Array:
    """Maps tokens (batch, seq) to next-byte logits (batch, seq, 256), pre-norm and causal."""

    def project(name: str, weights: Params, x: jax.Array) -> jax.Array:
        with jax.named_scope(name):
            return linear(x, weights[name].astype(dtype))

    def block(x: jax.Array, layer: Params) -> tuple[jax.Array, None]:
        qkv = project("attention.qkv", layer, rms_norm(x, layer["attention.norm"]))
        query, key, value = (part.reshape(*part.shape[:2], num_heads, -1) for part in jnp.split(qkv, 3, axis=-1))
        mixed = jax.nn.dot_product_attention(rotate(query), rotate(key), value, is_causal=True)
        x = x + project("attention.out", layer, mixed.reshape(x.shape))
        gate, up = jnp.split(project("mlp.gate_up", layer, rms_norm(x, layer["mlp.norm"])), 2, axis=-1)
        return x + project("mlp.down", layer, jax.nn.silu(gate) * up), None

    x, _ = lax.scan(block, params["embedding"].astype(dtype)[tokens], params["layers"])
    return project("unembedding", params, rms_norm(x, params["final_norm"]))


def cross_entropy(params: Params, window: jax.Array, linear: Linear, num_heads: int, dtype: jnp.dtype) -> jax.Array:
    """Computes the mean next-byte loss in nats over window (batch, seq + 1), in float32."""
    tokens = window.astype(jnp.int32)
    log_probs = jax.nn.log_softmax(logits(params, tokens[:, :-1], linear, num_heads, dtype).astype(jnp.float32))
    return -jnp.mean(jnp.take_along_axis(log_probs, tokens[:, 1:, None], axis=-1))


def learning_rate(step: jax.Array, sizes: Sizes) -> jax.Array:
    """Warms up over a tenth of the steps (at most 20), then follows a cosine to a tenth."""
    warmup = max(1, min(20, sizes.steps // 10))
    cosine = 0.55 + 0.45 * jnp.cos(jnp.pi * step / sizes.steps)
    return sizes.learning_rate * jnp.minimum((step + 1) / warmup, cosine)


def adam(
    params: Params, grads: Params, moments: tuple[Params, Params], step: jax.Array, rate: jax.Array
) -> tuple[Params, tuple[Params, Params]]:
    """Applies one Adam step to gradients clipped to a global norm of 1."""
    beta1, beta2 = 0.9, 0.95
    norm = jnp.sqrt(sum(jnp.sum(grad**2) for grad in jax.tree.leaves(grads)))
    grads = jax.tree.map(lambda grad: grad / jnp.maximum(norm, 1.0), grads)
    first = jax.tree.map(lambda old, grad: beta1 * old + (1 - beta1) * grad, moments[0], grads)
    second = jax.tree.map(lambda old, grad: beta2 * old + (1 - beta2) * grad**2, moments[1], grads)
    rate = rate * jnp.sqrt(1 - beta2 ** (step + 1)) / (1 - beta1 ** (step + 1))
    params = jax.tree.map(lambda w, m, v: w - rate * m / (jnp.sqrt(v) + 1e-8), params, first, second)
    return params, (first, second)


def train(
    name: str,
    linear: Linear,
    sizes: Sizes,
    batches: Iterator[np.ndarray],
    seed: int,
    dtype: jnp.dtype,
    report: Callable[[Progress], None] = lambda progress: None,
) -> Run:
    """Trains the parameters that `seed` gives on `batches`, one step each.

    Args:
      batches: `sizes.steps` arrays (batch, seq_len + 1) uint8.
      report: called before compilation and every `SYNC_EVERY` steps.
    Raises:
      NonFiniteLoss: if a loss is NaN or infinite.
    """

    def step_fn(state: tuple[Any, ...], window: jax.Array) -> tuple[tuple[Any, ...], jax.Array]:
        params, moments, step = state
        loss, grads = jax.value_and_grad(cross_entropy)(params, window, linear, sizes.num_heads, dtype)
        params, moments = adam(params, grads, moments, step, learning_rate(step, sizes))
        return (params, moments, step + 1), loss

    @jax.jit
    def init(key: jax.Array) -> tuple[Any, ...]:
        params = init_params(sizes, key)
        zeros = jax.tree.map(jnp.zeros_like, params)
        return params, (zeros, jax.tree.map(jnp.zeros_like, params)), jnp.int32(0)

    report(Progress(name, 0, sizes.steps, float("nan"), float("nan")))
    start = time.perf_counter()
    state = init(jax.random.key(seed))
    window_type = jax.ShapeDtypeStruct((sizes.batch, sizes.seq_len + 1), jnp.uint8)
    compiled_step = jax.jit(step_fn, donate_argnums=0).lower(state, window_type).compile()
    jax.block_until_ready(state)
    compile_seconds = time.perf_counter() - start

    losses: list[float] = []
    intervals: list[float] = []
    while len(losses) < sizes.steps:
        start = time.perf_counter()
        pending = []
        for window in itertools.islice(batches, SYNC_EVERY):
            state, loss = compiled_step(state, window)
            pending.append(loss)
        jax.block_until_ready(state)
        intervals.append((time.perf_counter() - start) / len(pending))
        for loss in pending:
            losses.append(float(loss))
            if not np.isfinite(losses[-1]):
                raise NonFiniteLoss(f"{name}: the loss is {losses[-1]} at step {len(losses)} of {sizes.steps}")
        report(Progress(name, len(losses), sizes.steps, losses[-1], intervals[-1]))
    # The first interval warms caches and allocators up.
    return Run(
        name,
        np.array(losses, np.float32),
        statistics.median(intervals[1:] or intervals),
        compile_seconds,
    )


def compare(
    sizes: Sizes,
    seed: int,
    platform: str,
    report: Callable[[Progress], None] = lambda progress: None,
) -> Comparison:
    """Trains the baseline, then FP8, from the same parameters on the same batches."""
    dtype = compute_dtype(platform)
    text = load_text()
    baseline, fp8 = (
        train(name, linear, sizes, sample_batches(text, sizes, seed), seed, dtype, report)
        for name, linear in ((dtype.name, jnp.dot), ("fp8", fp8_linear))
    )
    return Comparison(sizes, baseline, fp8)


def fp8_linear(x: jax.Array, w: jax.Array) -> jax.Array:
    """Computes x @ w with `jax_fp8.dot`, whose gradients run in FP8 too."""
    return jax_fp8.dot(x, w)


def explain_step(sizes: Sizes, platform: str) -> Explanation:
    """Returns `jax_fp8.explain` of one training step's loss and gradients; runs nothing."""
    dtype = compute_dtype(platform)
    params = jax.eval_shape(lambda: init_params(sizes, jax.random.key(0)))
    window = jax.ShapeDtypeStruct((sizes.batch, sizes.seq_len + 1), jnp.uint8)

    def loss_and_grads(params: Params, window: jax.Array) -> tuple[jax.Array, Params]:
        return jax.value_and_grad(cross_entropy)(params, window, fp8_linear, sizes.num_heads, dtype)

    return jax_fp8.explain(loss_and_grads, params, window)
