// The Hopper blockwise FP8 product for few rows of a: entry point.
//
//   first warpgroups: SwappedMathWarpContext      last warp: SwappedLoadWarpContext      one CTA a tile and share of k
//
// 64 rows of b lie on the rows of WGMMA, so that no row of it is wasted on padding; several CTAs an SM hide each
// other's start and end. load warp --[input ring]--> math warpgroups --[sum over the cluster]--> stores
#pragma once

#include "pipeline/input_tile_pipeline.h"
#include "pipeline/split_sum.h"
#include "ptx/copy.h"
#include "ptx/kernel.h"
#include "ptx/mbarrier.h"
#include "ptx/shared_address.h"
#include "ptx/thread.h"
#include "sm90/configured.h"
#include "sm90/swapped_load_warp_context.h"
#include "sm90/swapped_math_warp_context.h"

namespace jax_fp8::sm90 {

template <tile::TileConfig C>
struct SwappedStorage {
  static_assert(C.is_valid(), "TileConfig breaks a rule of TileConfig::is_valid");

  ptx::Barrier sums_landed;
  pipeline::InputRing<C> input;  // behind the slots in use only the sums of a cluster are allocated

  // One CTA's sums lie where the ring's tiles lay; those of a cluster, where anybody may be early, behind the ring.
  __device__ void* sums(int stages, int split_log2) {
    static_assert(pipeline::TileSum<C>::kBytes == C.sum_bytes() && C.sum_bytes() <= C.stage_bytes());
    return &input.payload[split_log2 == 0 ? 0 : stages];
  }
};

template <typename Config>
__global__ void __launch_bounds__(Config::kConfig.threads(), Config::kConfig.ctas_per_sm)
    blockwise_fp8_matmul_swapped_sm90(const __grid_constant__ tile::MatmulParams params) {
  constexpr tile::TileConfig C = Config::kConfig;
  using Sums = pipeline::TileSum<C>;
  auto& shared = *static_cast<SwappedStorage<C>*>(ptx::dynamic_shared_memory());
  const int warp = ptx::warp_index(), split_log2 = params.split_log2;
  if (warp == C.load_warp() && ptx::elect_one()) {
    ptx::prefetch_tensor_map(params.b);
    ptx::prefetch_tensor_map(params.a);
  }
  const tile::TilePart part = tile::tile_part(params.grid, ptx::block_index(), ptx::block_index_y(), split_log2,
                                              params.num_k_blocks, C.k_blocks_per_stage);
  if (warp == C.load_warp()) {
    shared.input.init(params.stages, true);
    if (ptx::elect_one()) Sums::init(shared.sums_landed);
  }
  ptx::block_sync();
  Sums::arrive(split_log2);
  if (warp == C.load_warp()) {
    SwappedLoadWarpContext<C>(params, shared.input, part).run();
    Sums::leave(split_log2);
  } else {
    const Sums sums(shared.sums(params.stages, split_log2), shared.sums_landed, split_log2, part.rank);
    SwappedMathWarpContext<C>(params, shared.input, sums, part, warp / 4).run();
  }
}

}  // namespace jax_fp8::sm90
