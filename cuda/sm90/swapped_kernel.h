// The Hopper blockwise FP8 product for few rows of a: entry point.
//
//   first warpgroups: SwappedMathWarpContext      last warp: SwappedLoadWarpContext      one CTA a tile and share of k
//
// 64 rows of b lie on the rows of WGMMA, so that no row of it is wasted on padding; several CTAs an SM hide each
// other's start and end. load warp --[input ring]--> math warpgroups --[sum over the cluster]--> stores
#pragma once

#include "pipeline/input_tile_pipeline.h"
#include "pipeline/named_barrier.h"
#include "pipeline/split_sum.h"
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

  // A CTA's tile lies where the ring's tiles lay; what others send, who may be early, behind the slots in use.
  __device__ void* own_tile() {
    static_assert(pipeline::TileSum<C>::kBytes == C.sum_bytes() && C.sum_bytes() <= C.stage_bytes());
    return &input.payload[0];
  }
  __device__ void* received(int stages) { return &input.payload[stages]; }
};

template <typename Config>
__global__ void __launch_bounds__(Config::kConfig.threads(), Config::kConfig.ctas_per_sm)
    blockwise_fp8_matmul_swapped_sm90(const __grid_constant__ tile::MatmulParams params) {
  constexpr tile::TileConfig C = Config::kConfig;
  using Sums = pipeline::TileSum<C>;
  auto& shared = *static_cast<SwappedStorage<C>*>(ptx::dynamic_shared_memory());
  constexpr int kRingReady = static_cast<int>(pipeline::NamedBarrier::kRingReady);
  const int warp = ptx::warp_index(), split_log2 = params.split_log2;
  const tile::TilePart part =
      tile::tile_part(params.grid, ptx::block_index(), ptx::block_index_y(), split_log2, params.num_steps);
  if (warp < C.load_warp()) {
    ptx::let_next_kernel_start();
    ptx::named_barrier_sync(kRingReady, C.role_threads());
    Sums::arrive(split_log2);
    ptx::await_previous_kernels();
    const Sums sums(shared.own_tile(), shared.received(params.stages), shared.sums_landed, split_log2, part.rank);
    SwappedMathWarpContext<C>(params, shared.input, sums, part, warp / 4).run();
  } else {  // comes first in the machine code, so that a cold CTA starts loading soon
    SwappedLoadWarpContext<C>::prefetch(params);
    shared.input.init(true);
    if (ptx::elect_one()) Sums::init(shared.sums_landed);
    ptx::named_barrier_arrive(kRingReady, C.role_threads());
    Sums::arrive(split_log2);
    ptx::await_previous_kernels();
    SwappedLoadWarpContext<C>(params, shared.input, part).run();
    Sums::leave(split_log2);
  }
}

}  // namespace jax_fp8::sm90
