// A math warpgroup of the swapped kernel: 64 rows of b times wave_n rows of a, for the CTA's share of the k blocks.
//
// For each stage: acquire; start the products of all its k blocks; wait for one after the other, promote it while the
// next one runs; release the stage when the last has read it. Then the sum over the cluster, and the store.
#pragma once

#include "pipeline/input_tile_pipeline.h"
#include "pipeline/split_sum.h"
#include "ptx/kernel.h"
#include "ptx/memory.h"
#include "ptx/thread.h"
#include "ptx/wgmma.h"
#include "sm90/multiply.h"
#include "sm90/store_sums.h"
#include "tile/fragment.h"
#include "tile/matmul_params.h"
#include "tile/promote.h"
#include "tile/scheduler.h"

namespace jax_fp8::sm90 {

template <tile::TileConfig C>
class SwappedMathWarpContext {
 public:
  __device__ SwappedMathWarpContext(const tile::MatmulParams& params, pipeline::InputRing<C>& ring,
                                    const pipeline::TileSum<C>& sums, const tile::TilePart& part, int warpgroup)
      : params_(params),
        part_(part),
        inputs_(ring, params.stages),
        sums_(sums),
        first_row_(warpgroup / C.slabs() * C.wave_n),
        first_column_(warpgroup % C.slabs() * C.kWaveM),
        fragment_{ptx::warp_index() % 4, ptx::lane_index()} {}

  // All threads of one warpgroup.
  __device__ void run() {
    float accum[C.wave_registers()] = {};
#pragma unroll 1
    for (int step = 0; step < part_.range.steps; ++step) accumulate(accum);
    sums_.await_buffer();
    // the fragment's rows are columns of the result, and its columns are rows
    sums_.put(
        accum, [&](int i) { return first_row_ + fragment_.column(i); },
        [&](int i) { return first_column_ + fragment_.row(tile::Fragment::half(i)); });
    sums_.exchange();
    store_sums<C>(params_, part_.tile, sums_);
  }

 private:
  __device__ __forceinline__ void accumulate(float (&accum)[C.wave_registers()]) {
    auto stage = inputs_.acquire();
    float partial[C.k_blocks_per_stage][C.wave_registers()];
#pragma unroll
    for (int i = 0; i < C.k_blocks_per_stage; ++i) {
      multiply_k_block(partial[i], stage.payload.b[i][first_column_], stage.payload.a[i][first_row_]);
    }
    finish<0>(accum, partial, stage);
  }

  // K block kIndex of the stage and those behind it.
  template <int kIndex>
  __device__ __forceinline__ void finish(float (&accum)[C.wave_registers()],
                                         float (&partial)[C.k_blocks_per_stage][C.wave_registers()],
                                         pipeline::InputConsumerStage<C>& stage) {
    constexpr int kLeft = C.k_blocks_per_stage - 1 - kIndex;
    const auto scales = wave_scales(stage.payload, kIndex);
    ptx::wgmma_wait<kLeft>(partial[kIndex]);
    if constexpr (kLeft == 0) stage.release();
    tile::promote<false>(accum, partial[kIndex], scales);
    if constexpr (kLeft > 0) finish<kIndex + 1>(accum, partial, stage);
  }

  __device__ auto wave_scales(const pipeline::BlockwiseFp8TilePayload<C>& payload, int k_block) {
    tile::ColumnScales<C.wave_registers()> scales;
    const float b_scale = ptx::load_shared(payload.b_scales[k_block]);
#pragma unroll
    for (int i = 0; i < C.wave_registers(); i += 4) {
      float first, second;
      ptx::load_shared(&payload.a_scales[k_block][first_row_ + fragment_.column(i)], first, second);
      scales.column[i / 2] = first * b_scale;
      scales.column[i / 2 + 1] = second * b_scale;
    }
    return scales;
  }

  const tile::MatmulParams& params_;
  const tile::TilePart& part_;
  pipeline::InputConsumer<C> inputs_;
  pipeline::TileSum<C> sums_;
  int first_row_, first_column_;  // of this warpgroup in the tile
  tile::Fragment fragment_;
};

}  // namespace jax_fp8::sm90
