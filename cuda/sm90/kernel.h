// The Hopper blockwise FP8 product: entry point.
//
//   warpgroups 0, 1: MathWarpContext      warpgroup 2, first warp: LoadWarpContext      one CTA an SM, persistent
//
//   load warp --[input ring: A, B, scales of a k block]--> math warpgroups --[output buffer]--> TMA store
#pragma once

#include "pipeline/named_barrier.h"
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
  constexpr int kRingReady = static_cast<int>(pipeline::NamedBarrier::kRingReady);
  const int warp = ptx::warp_index();
  const tile::TileScheduler schedule(params.grid, ptx::block_index(), ptx::num_blocks());
  if (warp < C.load_warp()) {
    ptx::let_next_kernel_start();
    ptx::named_barrier_sync(kRingReady, C.role_threads());
    ptx::await_previous_kernels();
    ptx::grow_registers<C.kMathRegisters>();
    const int warpgroup = warp / 4;
    MathWarpContext<C>(params, shared.input, shared.output[warpgroup], warpgroup).run(schedule);
  } else {  // comes first in the machine code, so that a cold CTA starts loading soon
    ptx::shrink_registers<C.kLoadRegisters>();
    if (warp != C.load_warp()) return;
    LoadWarpContext<C>::prefetch(params);
    shared.input.init(params.scales_by_copy);
    ptx::named_barrier_arrive(kRingReady, C.role_threads());
    ptx::await_previous_kernels();
    LoadWarpContext<C>(params, shared.input).run(schedule);
  }
}

}  // namespace jax_fp8::sm90
