// The Hopper blockwise FP8 product: entry point.
//
//   warpgroups 0, 1: MathWarpContext      warpgroup 2, first warp: LoadWarpContext      one CTA an SM, persistent
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
  if (warp == C.load_warp()) {
    LoadWarpContext<C>::prefetch(params);
    shared.input.init(C.stages, params.scales_by_copy);
  }
  ptx::block_sync();

  const tile::TileScheduler schedule(params.grid, ptx::block_index(), ptx::num_blocks());
  if (warp >= C.load_warp()) {
    ptx::shrink_registers<C.kLoadRegisters>();
    if (warp == C.load_warp()) LoadWarpContext<C>(params, shared.input).run(schedule);
  } else {
    ptx::grow_registers<C.kMathRegisters>();
    const int warpgroup = warp / 4;
    MathWarpContext<C>(params, shared.input, shared.output[warpgroup], warpgroup).run(schedule);
  }
}

}  // namespace jax_fp8::sm90
