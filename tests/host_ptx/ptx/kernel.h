// Stand-in for cuda/ptx/kernel.h: CUDA's keywords mean nothing to g++, and kernels are ordinary functions.
#pragma once

#include <cuda_runtime_api.h>

#include "ptx/launch_shape.h"

#define __device__
#define __global__
#define __forceinline__
#define __grid_constant__
#define __launch_bounds__(...)

namespace jax_fp8::ptx {

inline constexpr int kWarpSize = 32;
inline constexpr int kWarpgroupSize = 128;

template <typename Params>
cudaError_t reserve_shared_memory(void (*kernel)(Params), int shared_bytes);
template <typename Params>
cudaError_t launch(void (*kernel)(Params), const LaunchShape& shape, int shared_bytes, cudaStream_t stream,
                   const Params& params);

}  // namespace jax_fp8::ptx
