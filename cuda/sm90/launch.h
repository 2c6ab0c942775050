// Launches a Hopper kernel of the table.
#pragma once

#include <cuda_runtime_api.h>

#include "ptx/launch_shape.h"
#include "tile/matmul_params.h"

namespace jax_fp8::sm90 {

// Once per device, outside of any capture: loads the kernels and lets them use their shared memory.
cudaError_t prepare();

// Starts configuration `index` of tile::kSm90Configs.
cudaError_t launch(int index, const tile::MatmulParams& params, const ptx::LaunchShape& shape, cudaStream_t stream);

}  // namespace jax_fp8::sm90
