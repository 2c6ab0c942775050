// Scales by cp.async, for any number of rows: TMA can't stride over vectors that aren't multiples of 16 bytes.
#pragma once

#include <cstdint>

#include "ptx/copy.h"
#include "ptx/thread.h"
#include "tile/matmul_params.h"

namespace jax_fp8::sm90 {

// The scales of rows first .. first + kRows of one k block; zeros beyond the last row and the last k block. All lanes;
// completion by barrier_arrive_after_copies.
template <int kRows>
__device__ void copy_row_scales(float* destination, const tile::RowScales& scales, int first, int batch, int kb) {
  const int64_t vector = kb * static_cast<int64_t>(scales.batch) + (scales.batch == 1 ? 0 : batch);
  const float* source = scales.data + vector * scales.rows + first;
#pragma unroll
  for (int i = ptx::lane_index(); i < kRows; i += ptx::kWarpSize) {
    const bool inside = first + i < scales.rows && kb < scales.k_blocks;
    ptx::copy_async_float(destination + i, inside ? source + i : scales.data, inside);
  }
}

}  // namespace jax_fp8::sm90
