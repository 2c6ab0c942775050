// The end of the kernels that split k: the sums of the rows that this CTA owns, to global memory.
#pragma once

#include <cstdint>

#include "pipeline/split_sum.h"
#include "ptx/thread.h"
#include "sm90/store.h"
#include "tile/matmul_params.h"
#include "tile/scheduler.h"

namespace jax_fp8::sm90 {

// All threads that put, after sums.publish.
template <tile::TileConfig C>
__device__ void store_sums(const tile::MatmulParams& params, const tile::WorkTile& tile, pipeline::TileSum<C>& sums) {
  constexpr int kFours = C.block_n / 4;
#pragma unroll 1  // a cold CTA fetches its instructions from far: little code beats overlapping loads
  for (int i = ptx::thread_index(); i < sums.rows_per_owner() * kFours; i += sums.kNumThreads) {
    const int owned = i / kFours, in_tile = i % kFours * 4;
    const int row = tile.m * C.block_m + sums.first_row() + owned;
    if (row >= params.m) continue;
    float values[4];
    sums.sum(owned, in_tile, values);
    const int64_t start = (static_cast<int64_t>(tile.batch) * params.m + row) * params.n;
    store_four<C.out>(params, start, tile.n * C.block_n + in_tile, values);
  }
}

}  // namespace jax_fp8::sm90
