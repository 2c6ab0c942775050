"""What all tests share: which need a GPU, one seed for each, and hypothesis' settings.

Tests run on the default backend: without a GPU on the jax.numpy definition, on a Hopper GPU on the
kernels. Those marked `gpu` make sense only there. JAX_FP8_STRICT_GPU=1 turns their skips into failures.
"""

from __future__ import annotations

import os
import zlib

import hypothesis
import jax
import numpy as np
import pytest

hypothesis.settings.register_profile(
    "jax_fp8", deadline=None, derandomize="CI" in os.environ, max_examples=10, print_blob=True
)
hypothesis.settings.load_profile("jax_fp8")


def has_hopper() -> bool:
    if jax.default_backend() != "gpu":
        return False
    return jax.devices()[0].compute_capability == "9.0"


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") is None or has_hopper():
        return
    reason = "needs an NVIDIA Hopper GPU"
    if os.environ.get("JAX_FP8_STRICT_GPU", "0") not in ("", "0"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """Seeded by the test's own name: adding a test changes no other one's data."""
    return np.random.default_rng(zlib.crc32(request.node.nodeid.encode()))
