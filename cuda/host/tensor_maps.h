// The kernel's argument: tensor maps and extents of one product.
#pragma once

#include "host/problem.h"
#include "host/select.h"
#include "tile/matmul_params.h"

namespace jax_fp8::host {

// Device pointers of a product; codes with rows of `padded_k()` bytes where `pads_k()`.
struct MatmulBuffers {
  const void* a;
  const void* a_scales;
  const void* b;
  const void* b_scales;
  void* out;
};

// Throws std::runtime_error if a map can't be encoded.
tile::MatmulParams matmul_params(const MatmulProblem& problem, const Choice& choice, const MatmulBuffers& buffers);

}  // namespace jax_fp8::host
