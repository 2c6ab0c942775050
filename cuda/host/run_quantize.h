// A whole quantisation: validate and launch. Callers: the FFI handler, the test driver.
#pragma once

#include <cuda_runtime_api.h>

#include "quantize/quantize_params.h"

namespace jax_fp8::host {

// Enqueues on `stream` of `device`. Throws std::runtime_error.
void run_quantize(quantize::InType in, const quantize::QuantizeParams& params, int device, cudaStream_t stream);

}  // namespace jax_fp8::host
