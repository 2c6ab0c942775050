// A whole product: choose, encode, launch. Callers: the FFI handler, the test driver.
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

#include "host/problem.h"
#include "host/tensor_maps.h"

namespace jax_fp8::host {

// Bytes of scratch that a product needs: copies of both operands with padded rows where TMA can't read theirs, else 0.
int64_t scratch_bytes(const MatmulProblem& problem);

// Enqueues the product on `stream` of `device`. `config`: a name, or empty for the cheapest. Throws
// std::invalid_argument or std::runtime_error.
void run_matmul(const MatmulProblem& problem, MatmulBuffers buffers, void* scratch, std::string_view config, int device,
                cudaStream_t stream);

}  // namespace jax_fp8::host
