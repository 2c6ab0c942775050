// The load warp: brings the tiles and scales of every k block of every output tile into the input ring.
#pragma once

#include "pipeline/input_tile_pipeline.h"
#include "ptx/copy.h"
#include "ptx/thread.h"
#include "sm90/copy_scales.h"
#include "tile/matmul_params.h"
#include "tile/scheduler.h"

namespace jax_fp8::sm90 {

template <tile::TileConfig C>
class LoadWarpContext {
 public:
  __device__ LoadWarpContext(const tile::MatmulParams& params, pipeline::InputRing<C>& ring)
      : params_(params), inputs_(ring) {}

  // All lanes of one warp; before the block barrier, so that the first copy finds its map.
  static __device__ void prefetch(const tile::MatmulParams& params) {
    if (!ptx::elect_one()) return;
    ptx::prefetch_tensor_map(params.a);
    ptx::prefetch_tensor_map(params.b);
    if (params.scales_by_copy) return;
    ptx::prefetch_tensor_map(params.a_scales);
    if constexpr (C.rows_per_b_scale == 1) ptx::prefetch_tensor_map(params.b_scales);
  }

  // All lanes of one warp.
  __device__ void run(tile::TileScheduler schedule) {
    const bool by_copy = params_.scales_by_copy;
    for (tile::WorkTile tile; schedule.next(tile);) {
      for (int kb = 0; kb < params_.num_k_blocks; ++kb) {
        auto stage = inputs_.acquire();
        if (ptx::elect_one()) load_tiles(stage, tile, kb);
        if (by_copy) copy_scales(stage.payload, tile, kb);
        stage.commit(C.tile_bytes() + (by_copy ? 0 : C.scale_bytes()), by_copy);
      }
    }
    inputs_.drain();
  }

 private:
  __device__ void load_tiles(pipeline::InputProducerStage<C>& stage, const tile::WorkTile& tile, int kb) {
    const int row = tile.m * C.block_m, column = tile.n * C.block_n;
    const int a_batch = params_.a_index(tile.batch), b_batch = params_.b_index(tile.batch);
    ptx::tma_load(stage.payload.a[0], params_.a, stage.full, kb * tile::kBlockK, row, a_batch);
    if (params_.grid.tiles_m == 1) {  // read once
      ptx::tma_load(stage.payload.b[0], params_.b, stage.full, kb * tile::kBlockK, column, b_batch, ptx::evict_first());
    } else {
      ptx::tma_load(stage.payload.b[0], params_.b, stage.full, kb * tile::kBlockK, column, b_batch);
    }
    if (params_.scales_by_copy) return;
    ptx::fence_async_proxy();  // the math warps' reads of the old scales come before TMA's writes
    ptx::tma_load(stage.payload.a_scales[0], params_.a_scales, stage.full, row, a_batch, kb);
    if constexpr (C.rows_per_b_scale == 1) {
      ptx::tma_load(stage.payload.b_scales[0], params_.b_scales, stage.full, column, b_batch, kb);
    }
  }

  __device__ void copy_scales(pipeline::BlockwiseFp8TilePayload<C>& payload, const tile::WorkTile& tile, int kb) {
    copy_row_scales<C.block_m>(payload.a_scales[0], params_.a_rows(), tile.m * C.block_m, tile.batch, kb);
    if constexpr (C.rows_per_b_scale == 1) {
      copy_row_scales<C.block_n>(payload.b_scales[0], params_.b_rows(), tile.n * C.block_n, tile.batch, kb);
    }
  }

  const tile::MatmulParams& params_;
  pipeline::InputProducer<C> inputs_;
};

}  // namespace jax_fp8::sm90
