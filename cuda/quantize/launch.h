// Launches the quantise kernel.
#pragma once

#include <cuda_runtime_api.h>

#include "quantize/quantize_params.h"

namespace jax_fp8::quantize {

// Once per device, outside of any capture.
cudaError_t prepare();

// `params` describes a non-empty array.
cudaError_t launch(InType in, const QuantizeParams& params, cudaStream_t stream);

}  // namespace jax_fp8::quantize
