// The Hopper blockwise FP8 product for up to eight rows of a: entry point and its only role.
//
// Here nothing is reused, so nothing is staged: each warp loads whole k blocks of 16 rows of b straight into registers,
// multiplies, promotes; the warps of the CTA and of the cluster share the k blocks. No ring, no barrier before the sum.
#pragma once

#include <cstdint>

#include "pipeline/split_sum.h"
#include "ptx/kernel.h"
#include "ptx/mbarrier.h"
#include "ptx/memory.h"
#include "ptx/mma.h"
#include "ptx/shared_address.h"
#include "ptx/thread.h"
#include "sm90/configured.h"
#include "sm90/store_sums.h"
#include "tile/fragment.h"
#include "tile/matmul_params.h"
#include "tile/promote.h"
#include "tile/scheduler.h"

namespace jax_fp8::sm90 {

template <tile::TileConfig C>
class RegisterWarpContext {
 public:
  using Sums = pipeline::SplitSum<C.block_m, C.block_n>;

  // `warp`: of the cluster's `num_warps`, which take turns on the k blocks.
  __device__ RegisterWarpContext(const tile::MatmulParams& params, const tile::WorkTile& tile, int warp, int num_warps)
      : num_k_blocks_(params.num_k_blocks),
        num_whole_(params.k_pitch / tile::kBlockK),
        warp_(warp),
        num_warps_(num_warps),
        fragment_{0, ptx::lane_index()} {
    // Rows that don't exist: the last one instead, whose products nobody stores.
    const auto clamp = [](int row, int rows) { return row < rows ? row : rows - 1; };
    const int row = ptx::lane_index() / 4, chunk = ptx::lane_index() % 4 * kChunk;
    const int a_row = tile.m * C.block_m + row, b_row = tile.n * C.block_n + row;
    const int64_t a_rows = static_cast<int64_t>(params.a_index(tile.batch)) * params.m;
    const int64_t b_rows = static_cast<int64_t>(params.b_index(tile.batch)) * params.n;
    a_ = params.a_data + (a_rows + clamp(a_row, params.m)) * params.k_pitch + chunk;
    for (int half = 0; half < 2; ++half) {
      b_[half] = params.b_data + (b_rows + clamp(b_row + 8 * half, params.n)) * params.k_pitch + chunk;
    }
    k_left_ = params.k_pitch - chunk;
    a_scale_step_ = static_cast<int64_t>(params.a_batch) * params.m;
    for (int i = 0; i < 2; ++i) {
      a_scales_[i] = params.a_scale_data + a_rows + clamp(tile.m * C.block_m + fragment_.column(i), params.m);
    }
    b_scales_ = params.b_block_scales(tile.batch, tile.n * C.block_n);
  }

  // All lanes. The warp's sum over its k blocks goes to `sums`, as from `source`.
  __device__ void run(Sums& sums, int source) {
    float accum[kRegisters] = {};
    int kb = warp_;
    constexpr int kGroup = C.k_blocks_per_stage;
    for (; kb + (kGroup - 1) * num_warps_ < num_whole_; kb += kGroup * num_warps_) k_blocks<kGroup, true>(accum, kb);
    for (; kb < num_k_blocks_; kb += num_warps_) {
      kb < num_whole_ ? k_blocks<1, true>(accum, kb) : k_blocks<1, false>(accum, kb);
    }
    sums.wait();
    sums.put(
        source, accum, [&](int i) { return fragment_.column(i); },
        [&](int i) { return fragment_.row(tile::Fragment::half(i)); });
  }

 private:
  static constexpr int kRegisters = 4;  // of a 16 x 8 fragment
  static constexpr int kChunk = 16;     // bytes of one load; four lanes read 64 bytes of a row, twice a k block
  static constexpr int kRun = 4 * kChunk;
  static constexpr int kRuns = tile::kBlockK / kRun;

  // Loads kCount k blocks, then multiplies and promotes them.
  template <int kCount, bool kWhole>
  __device__ __forceinline__ void k_blocks(float (&accum)[kRegisters], int first) {
    ptx::Words b[kCount][2][kRuns], a[kCount][kRuns];  // lane l: rows l / 4 and l / 4 + 8 of b, row l / 4 of a
    tile::ColumnScales<kRegisters> scales[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int64_t k = static_cast<int64_t>(first + i * num_warps_) * tile::kBlockK;
      const uint8_t *low = b_[0] + k, *high = b_[1] + k;
#pragma unroll
      for (int run = 0; run < kRuns; ++run) {
        const bool inside = kWhole || k + run * kRun < k_left_;
        b[i][0][run] = inside ? ptx::stream_words(low + run * kRun) : ptx::Words{};
        b[i][1][run] = inside ? ptx::stream_words(high + run * kRun) : ptx::Words{};
      }
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int kb = first + i * num_warps_;
      const int64_t k = static_cast<int64_t>(kb) * tile::kBlockK;
      const uint8_t* row = a_ + k;
#pragma unroll
      for (int run = 0; run < kRuns; ++run) {
        const bool inside = kWhole || k + run * kRun < k_left_;
        a[i][run] = inside ? ptx::load_words(row + run * kRun) : ptx::Words{};
      }
      const float b_scale = ptx::load_readonly(b_scales_ + kb);
      scales[i].column[0] = ptx::load_readonly(a_scales_[0] + kb * a_scale_step_) * b_scale;
      scales[i].column[1] = ptx::load_readonly(a_scales_[1] + kb * a_scale_step_) * b_scale;
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      float partial[kRegisters] = {};
#pragma unroll
      for (int run = 0; run < kRuns; ++run) multiply(partial, b[i][0][run], b[i][1][run], a[i][run]);
      tile::promote<false>(accum, partial, scales[i]);
    }
  }

  // Where in k a lane's bytes lie is the same for a and b, and does not matter else.
  static __device__ void multiply(float (&partial)[kRegisters], const ptx::Words& low, const ptx::Words& high,
                                  const ptx::Words& a) {
    ptx::mma(partial, low.word[0], high.word[0], low.word[1], high.word[1], a.word[0], a.word[1]);
    ptx::mma(partial, low.word[2], high.word[2], low.word[3], high.word[3], a.word[2], a.word[3]);
  }

  int num_k_blocks_, num_whole_, warp_, num_warps_;
  tile::Fragment fragment_;
  const uint8_t *a_, *b_[2];  // this lane's chunk in k block 0
  int k_left_;                // bytes of a row from there on
  const float *a_scales_[2], *b_scales_;
  int64_t a_scale_step_;
};

template <tile::TileConfig C>
struct RegisterStorage {
  static_assert(C.is_valid(), "TileConfig breaks a rule of TileConfig::is_valid");

  alignas(16) unsigned char sums[RegisterWarpContext<C>::Sums::bytes(C.kMaxWarps)];
  ptx::Barrier sums_landed;
};

template <typename Config>
__global__ void __launch_bounds__(Config::kConfig.kMaxWarps* ptx::kWarpSize, 1)
    blockwise_fp8_matvec_sm90(const __grid_constant__ tile::MatmulParams params) {
  constexpr tile::TileConfig C = Config::kConfig;
  using Context = RegisterWarpContext<C>;
  auto& shared = *static_cast<RegisterStorage<C>*>(ptx::dynamic_shared_memory());
  const int warps = ptx::num_threads() / ptx::kWarpSize, warp = ptx::warp_index();
  const tile::TilePart part =
      tile::tile_part(params.grid, ptx::block_index(), ptx::block_index_y(), params.split_log2, params.num_k_blocks, 1);
  if (ptx::thread_index() == 0) Context::Sums::init(shared.sums_landed, warps);
  Context::Sums::arrive(params.split_log2);
  typename Context::Sums sums(shared.sums, shared.sums_landed, params.split_log2, part.rank, warps, ptx::num_threads());
  Context(params, part.tile, part.rank * warps + warp, warps << params.split_log2).run(sums, warp);
  sums.publish();
  store_sums<C>(params, part.tile, sums);
}

}  // namespace jax_fp8::sm90
