// Instantiates the quantise kernel for every input type; starts it and the kernel that pads rows.
#include "quantize/launch.h"

#include "quantize/kernel.h"
#include "quantize/pad_rows.h"

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
  return ptx::reserve_shared_memory(fp8_pad_rows, 0);
}

cudaError_t launch(InType in, const QuantizeParams& params, cudaStream_t stream) {
  const int64_t tiles = tile::ceil_div(params.rows, kTile) * tile::ceil_div(params.columns, kTile) * params.batch;
  if (tiles > INT32_MAX) return cudaErrorInvalidConfiguration;
  return ptx::launch(kKernels[static_cast<int>(in)], {static_cast<int>(tiles), 1, kThreads, 1}, kSharedBytes, stream,
                     params);
}

cudaError_t pad_rows(const void* source, void* padded, int64_t rows, int k, int pitch, cudaStream_t stream) {
  const PadRowsParams params{static_cast<const uint8_t*>(source), static_cast<uint8_t*>(padded), rows, k, pitch};
  const int64_t blocks = tile::ceil_div(pad_threads(params), kPadThreads);
  if (blocks > INT32_MAX) return cudaErrorInvalidConfiguration;
  return ptx::launch(fp8_pad_rows, {static_cast<int>(blocks), 1, kPadThreads, 1}, 0, stream, params);
}

}  // namespace jax_fp8::quantize
