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

// Starts `kernel(params)` on `stream`, maybe before the kernel in front of it has ended: see await_previous_kernels.
template <typename Params>
cudaError_t launch(void (*kernel)(Params), const LaunchShape& shape, int shared_bytes, cudaStream_t stream,
                   const Params& params) {
  cudaLaunchAttribute attributes[2]{};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {static_cast<unsigned>(shape.cluster), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(shape.blocks, shape.rows);
  config.blockDim = dim3(shape.threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = shape.cluster > 1 ? 2 : 1;
  return cudaLaunchKernelEx(&config, kernel, params);
}
#endif

}  // namespace jax_fp8::ptx
