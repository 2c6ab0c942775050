"""Blockwise FP8 matrix products for JAX: `jax_fp8.dot` where `jnp.dot` was. See README.md."""

import pkgutil as _pkgutil

# started inside a checkout, this folder hides the installed package, which has the compiled modules
__path__ = _pkgutil.extend_path(__path__, __name__)

from jax_fp8._block_scaled import BlockScaled as BlockScaled
from jax_fp8._dot import dot as dot
from jax_fp8._dot import dot_general as dot_general
from jax_fp8._dot import einsum as einsum
from jax_fp8._dot import matmul as matmul
from jax_fp8._explain import Explanation as Explanation
from jax_fp8._explain import explain as explain
from jax_fp8._matmul import blockwise_matmul as blockwise_matmul
from jax_fp8._matmul import blockwise_matmul_p as blockwise_matmul_p
from jax_fp8._quantize import attach as attach
from jax_fp8._quantize import quantize as quantize
from jax_fp8._quantize import quantize_weight as quantize_weight

__version__ = "0.1.0"
