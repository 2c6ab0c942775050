// Launches the kernels that make codes: quantise, and pad rows of codes.
#pragma once

#include <cuda_runtime_api.h>

#include "quantize/quantize_params.h"

namespace jax_fp8::quantize {

// Once per device, outside of any capture.
cudaError_t prepare();

// `params` describes a non-empty array.
cudaError_t launch(InType in, const QuantizeParams& params, cudaStream_t stream);

// Copies `rows` rows of k bytes to rows of `pitch` bytes, a multiple of 16; zeros in between. Not for zero bytes.
cudaError_t pad_rows(const void* source, void* padded, int64_t rows, int k, int pitch, cudaStream_t stream);

}  // namespace jax_fp8::quantize
