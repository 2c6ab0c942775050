// The product of one k block on the tensor cores.
#pragma once

#include <cstdint>

#include "ptx/wgmma.h"
#include "tile/config.h"

namespace jax_fp8::sm90 {

// Starts partial = rows (64 x 128) * columns (n x 128)^T, both swizzled in shared memory, as one WGMMA group.
template <int kCount>
__device__ __forceinline__ void multiply_k_block(float (&partial)[kCount], const void* rows, const void* columns) {
  const uint64_t a = ptx::wgmma_descriptor(rows), b = ptx::wgmma_descriptor(columns);
  ptx::wgmma_fence();
  ptx::wgmma<false>(partial, a, b);
#pragma unroll
  for (int k = 1; k < tile::kBlockK / ptx::kWgmmaK; ++k) {
    ptx::wgmma<true>(partial, a + k * ptx::kDescriptorStepK, b + k * ptx::kDescriptorStepK);
  }
  ptx::wgmma_commit();
}

}  // namespace jax_fp8::sm90
