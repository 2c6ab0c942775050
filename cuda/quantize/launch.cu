// Instantiates the quantise kernel for every input type, and starts it.
#include "quantize/launch.h"

#include "quantize/kernel.h"

namespace jax_fp8::quantize {
namespace {

using Kernel = void (*)(QuantizeParams);

constexpr int kSharedBytes = static_cast<int>(sizeof(SharedStorage));
constexpr Kernel kKernels[] = {fp8_quantize<InType::kFloat32>, fp8_quantize<InType::kBfloat16>,
                               fp8_quantize<InType::kFloat16>};  // in the order of InType

}  // namespace

cudaError_t prepare() {
  for (const Kernel kernel : kKernels) {
    if (const auto error = ptx::reserve_shared_memory(kernel, kSharedBytes)) return error;
  }
  return cudaSuccess;
}

cudaError_t launch(InType in, const QuantizeParams& params, cudaStream_t stream) {
  const int64_t tiles = tile::ceil_div(params.rows, kTile) * tile::ceil_div(params.columns, kTile) * params.batch;
  if (tiles > INT32_MAX) return cudaErrorInvalidConfiguration;
  return ptx::launch(kKernels[static_cast<int>(in)], static_cast<int>(tiles), kThreads, kSharedBytes, stream, params);
}

}  // namespace jax_fp8::quantize
