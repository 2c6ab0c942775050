// Kernel annotations and launch: the one place that says __global__ and friends are CUDA's, and how a kernel is
// started.
//
// Outside cuda/ptx nobody includes a CUDA header for device code. Callers: every kernel, and its launch function.
#pragma once

#include <cuda_runtime_api.h>

namespace jax_fp8::ptx {

inline constexpr int kWarpSize = 32;
inline constexpr int kWarpgroupSize = 128;

#ifdef __CUDACC__
// Lets `kernel` use `shared_bytes` of dynamic shared memory on the current device. Once per device, before a capture.
template <typename Params>
cudaError_t reserve_shared_memory(void (*kernel)(Params), int shared_bytes) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                              shared_bytes);
}

// Starts `kernel(params)` on `stream` with a one-dimensional grid.
template <typename Params>
cudaError_t launch(void (*kernel)(Params), int grid, int block, int shared_bytes, cudaStream_t stream,
                   const Params& params) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(grid);
  config.blockDim = dim3(block);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, params);
}
#endif

}  // namespace jax_fp8::ptx
