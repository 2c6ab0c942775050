// The Hopper blockwise FP8 product: entry point.
//
//   warpgroups 0, 1: MathWarpContext      warpgroup 2, first warp: LoadWarpContext      one CTA an SM, persistent
//
//   load warp --[input ring: A, B, scales of a k block]--> math warpgroups --[output buffer]--> TMA store
#pragma once

#include "ptx/kernel.h"
#include "ptx/mbarrier.h"
#include "ptx/shared_address.h"
#include "ptx/thread.h"
#include "sm90/load_warp_context.h"
#include "sm90/math_warp_context.h"
#include "sm90/shared_storage.h"

namespace jax_fp8::sm90 {

// A configuration as a type: nvcc 13.0 writes host stubs that don't compile for kernels with a namespaced class value
// as argument.
template <tile::TileConfig C>
struct Configured {
  static constexpr tile::TileConfig kConfig = C;
};

template <typename Config>
__global__ void __launch_bounds__(tile::TileConfig::kThreads, 1)
    blockwise_fp8_matmul_sm90(const __grid_constant__ tile::MatmulParams params) {
  constexpr tile::TileConfig C = Config::kConfig;
  auto& shared = *static_cast<SharedStorage<C>*>(ptx::dynamic_shared_memory());
  const int warp = ptx::warp_index();
  if (ptx::thread_index() == 0) {
    shared.input.init(params.scales_by_copy);
    ptx::fence_barrier_init();
  }
  ptx::block_sync();

  const tile::TileScheduler schedule(params.grid, ptx::block_index(), ptx::num_blocks());
  if (warp >= C.kLoadWarp) {
    ptx::shrink_registers<C.kLoadRegisters>();
    if (warp == C.kLoadWarp) LoadWarpContext<C>(params, shared.input).run(schedule);
  } else {
    ptx::grow_registers<C.kMathRegisters>();
    const int warpgroup = warp / 4;
    MathWarpContext<C>(params, shared.input, shared.output[warpgroup], warpgroup).run(schedule);
  }
}

}  // namespace jax_fp8::sm90
