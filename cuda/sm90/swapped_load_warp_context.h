// The load warp of the swapped kernel: one output tile, its share of the k blocks, a few of them a stage.
//
// This single warp sets the pace of the whole CTA, so that its loop only advances what was computed before it.
#pragma once

#include <cstdint>

#include "pipeline/input_tile_pipeline.h"
#include "ptx/copy.h"
#include "ptx/kernel.h"
#include "ptx/thread.h"
#include "tile/matmul_params.h"
#include "tile/scheduler.h"

namespace jax_fp8::sm90 {

template <tile::TileConfig C>
class SwappedLoadWarpContext {
 public:
  __device__ SwappedLoadWarpContext(const tile::MatmulParams& params, pipeline::InputRing<C>& ring,
                                    const tile::TilePart& part)
      : params_(params),
        inputs_(ring, params.stages),
        kb_(part.range.first * C.k_blocks_per_stage),
        steps_(part.range.steps),
        a_row_(part.tile.m * C.block_m),
        b_row_(part.tile.n * C.block_n),
        a_batch_(params.a_index(part.tile.batch)),
        b_batch_(params.b_index(part.tile.batch)),
        lane_(ptx::lane_index()),
        a_scales_(params.a_scale_data + static_cast<uint32_t>(kb_) * params.a_scale_step +
                  static_cast<uint32_t>(a_batch_) * static_cast<uint32_t>(params.m) +
                  static_cast<uint32_t>(a_row_ + lane_)),
        b_scales_(params.b_scale_data +
                  (static_cast<uint32_t>(b_batch_) * params.b_scale_rows +
                   static_cast<uint32_t>(b_row_ / tile::kScaleBlock)) *
                      static_cast<uint32_t>(params.num_k_blocks) +
                  static_cast<uint32_t>(kb_ + lane_)),
        b_policy_(ptx::evict_first()) {}

  // All lanes of one warp, first of all, so that the first copy finds its map.
  static __device__ void prefetch(const tile::MatmulParams& params) {
    if (!ptx::elect_one()) return;
    ptx::prefetch_tensor_map(params.b);
    ptx::prefetch_tensor_map(params.a);
  }

  // All lanes of one warp.
  __device__ void run() {
#pragma unroll 1
    for (int step = 0; step < steps_; ++step) {
      auto stage = inputs_.acquire();
      if (ptx::elect_one()) load_tiles(stage);
      copy_scales(stage.payload);
      stage.commit(C.tile_bytes(), true);
      kb_ += C.k_blocks_per_stage;
    }
    inputs_.drain();
  }

 private:
  __device__ void load_tiles(pipeline::InputProducerStage<C>& stage) {
    if (params_.whole_k_blocks) {  // the weights first: they come from far
      ptx::tma_load(stage.payload.b, params_.b, stage.full, 0, b_row_, kb_, b_batch_, b_policy_);
      ptx::tma_load(stage.payload.a, params_.a, stage.full, 0, a_row_, kb_, a_batch_);
      return;
    }
    for (int i = 0; i < C.k_blocks_per_stage; ++i) {
      const int k = (kb_ + i) * tile::kBlockK;
      ptx::tma_load(stage.payload.b[i], params_.b, stage.full, k, b_row_, 0, b_batch_, b_policy_);
      ptx::tma_load(stage.payload.a[i], params_.a, stage.full, k, a_row_, 0, a_batch_);
    }
  }

  // By cp.async, for any number of rows; zeros beyond the last row and the last k block.
  __device__ void copy_scales(pipeline::BlockwiseFp8TilePayload<C>& payload) {
#pragma unroll
    for (int i = 0; i < C.k_blocks_per_stage; ++i) {
#pragma unroll
      for (int first = 0; first < C.block_m; first += ptx::kWarpSize) {
        if (C.block_m < ptx::kWarpSize && lane_ >= C.block_m) break;
        const bool inside = a_row_ + first + lane_ < params_.m && kb_ + i < params_.num_k_blocks;
        ptx::copy_async_float(&payload.a_scales[i][first + lane_], a_scales_ + first, inside);
      }
      a_scales_ += params_.a_scale_step;
    }
    if (lane_ < C.k_blocks_per_stage) {
      ptx::copy_async_float(payload.b_scales[lane_], b_scales_, kb_ + lane_ < params_.num_k_blocks);
    }
    b_scales_ += C.k_blocks_per_stage;
  }

  const tile::MatmulParams& params_;
  pipeline::InputProducer<C> inputs_;
  int kb_, steps_;
  int a_row_, b_row_, a_batch_, b_batch_;
  int lane_;
  const float *a_scales_, *b_scales_;  // this lane's next ones
  ptx::L2Policy b_policy_;
};

}  // namespace jax_fp8::sm90
