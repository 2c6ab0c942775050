// Kernel annotations and launch: the one place that says __global__ and friends are CUDA's, and how a kernel is
// started.
//
// Outside cuda/ptx nobody includes a CUDA header for device code. Callers: every kernel, and its launch function.
#pragma once

#include <cuda_runtime_api.h>

#include "ptx/launch_shape.h"

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

// Starts `kernel(params)` on `stream`.
template <typename Params>
cudaError_t launch(void (*kernel)(Params), const LaunchShape& shape, int shared_bytes, cudaStream_t stream,
                   const Params& params) {
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {static_cast<unsigned>(shape.cluster), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(shape.blocks, shape.rows);
  config.blockDim = dim3(shape.threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &cluster;
  config.numAttrs = shape.cluster > 1 ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, params);
}
#endif

}  // namespace jax_fp8::ptx
