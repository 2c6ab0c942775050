// The Hopper blockwise FP8 product: entry point.
//
//   warpgroups 0, 1: MathWarpContext      warpgroup 2, first warp: LoadWarpContext      one CTA an SM, persistent
//   (or, where k is split, one CTA a tile and share of k)
//
//   load warp --[input ring: A, B, scales of a k block]--> math warpgroups --[output buffer]--> TMA store
#pragma once

#include "ptx/kernel.h"
#include "ptx/shared_address.h"
#include "ptx/thread.h"
#include "sm90/configured.h"
#include "sm90/load_warp_context.h"
#include "sm90/math_warp_context.h"
#include "sm90/shared_storage.h"

namespace jax_fp8::sm90 {

template <typename Config>
__global__ void __launch_bounds__(Config::kConfig.threads(), 1)
    blockwise_fp8_matmul_sm90(const __grid_constant__ tile::MatmulParams params) {
  constexpr tile::TileConfig C = Config::kConfig;
  auto& shared = *static_cast<SharedStorage<C>*>(ptx::dynamic_shared_memory());
  const int warp = ptx::warp_index();
  using Sums = pipeline::TileSum<C>;
  if (warp == C.load_warp()) {
    shared.input.init(C.stages, params.scales_by_copy);
    if (C.can_split() && ptx::elect_one()) Sums::init(shared.sums_landed);
  }
  ptx::block_sync();
  if constexpr (C.can_split()) Sums::arrive(params.split_log2);

  const int cta = ptx::block_index() >> params.split_log2;
  const int rank = ptx::block_index() - (cta << params.split_log2);
  const tile::TileScheduler schedule(params.grid, cta, ptx::num_blocks() >> params.split_log2);
  const tile::KRange range = tile::k_range(params.num_k_blocks, 1, rank, params.split_log2);
  if (warp >= C.load_warp()) {
    ptx::shrink_registers<C.kLoadRegisters>();
    if (warp == C.load_warp()) LoadWarpContext<C>(params, shared.input).run(schedule, range);
    if constexpr (C.can_split()) Sums::leave(params.split_log2);
  } else {
    ptx::grow_registers<C.kMathRegisters>();
    MathWarpContext<C>(params, shared, warp / 4).run(schedule, rank, range);
  }
}

}  // namespace jax_fp8::sm90
