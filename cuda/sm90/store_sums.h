// The end of the kernels that split k: the sums of the rows that this CTA owns, to global memory.
#pragma once

#include <cstdint>

#include "pipeline/split_sum.h"
#include "ptx/thread.h"
#include "sm90/store.h"
#include "tile/matmul_params.h"
#include "tile/scheduler.h"

namespace jax_fp8::sm90 {

// All threads that put, after sums.exchange.
template <tile::TileConfig C>
__device__ void store_sums(const tile::MatmulParams& params, const tile::WorkTile& tile, pipeline::TileSum<C>& sums) {
  const int first_row = tile.m * C.block_m + sums.first_row(), first_column = tile.n * C.block_n;
  const int left = params.m - first_row, rows = left < sums.rows_per_owner() ? left : sums.rows_per_owner();
  const int64_t start = (static_cast<int64_t>(tile.batch) * params.m + first_row) * params.n + first_column;
  if (params.n % 4 == 0) {  // so that four columns are aligned, and all inside of the array or none
    const bool is_inside = first_column + sums.column() < params.n;
    int64_t index = start + static_cast<int64_t>(sums.row()) * params.n + sums.column();
    sums.for_each_sum(is_inside ? rows : 0, [&](bool inside, const float (&values)[4]) {
      store_four<C.out>(params, index, inside, values);
      index += int64_t{sums.kRowStep} * params.n;
    });
  } else {
#pragma unroll 1
    for (int i = ptx::thread_index(); i < rows * C.block_n; i += sums.kNumThreads) {
      const int row = i / C.block_n, column = i % C.block_n;
      if (first_column + column >= params.n) continue;
      store_element<C.out>(params, start + static_cast<int64_t>(row) * params.n + column, sums.sum(row, column));
    }
  }
}

}  // namespace jax_fp8::sm90
