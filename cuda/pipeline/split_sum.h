// The sum over those who share the k blocks of one output tile, in a fixed order.
//
// Rows of the tile are dealt out to the CTAs of the cluster, their owners. Everybody puts his partial results into the
// owner's buffer, one place a source; then each owner adds up its rows, source by source, out of its own shared memory.
// So nobody reads from a CTA that may have ended, and the order is always the same.
//
//   init           one thread, before a barrier of the CTA
//   arrive         this CTA's buffer may be written
//   wait           every CTA's may
//   put
//   publish        everything that was put for this CTA has landed
//   sum            rows that this CTA owns
#pragma once

#include <bit>
#include <cstdint>

#include "pipeline/named_barrier.h"
#include "ptx/cluster.h"
#include "ptx/kernel.h"
#include "ptx/mbarrier.h"
#include "ptx/memory.h"
#include "ptx/thread.h"
#include "tile/config.h"

namespace jax_fp8::pipeline {

// Of tiles of kRows rows by kColumns columns. kThreads threads, the first of the CTA, wait, put, publish and sum; all
// threads of the CTA arrive, the others leave.
template <int kRows, int kColumns, int kThreads>
class SplitSum {
 public:
  static_assert(std::has_single_bit(unsigned{kRows}));
  static constexpr int kPitch = kColumns + 4;  // neighbouring rows start on different banks
  static constexpr int kBytes = 4 * kRows * kPitch;
  static constexpr int kNumThreads = kThreads;

  // 1 << split_log2 CTAs share the tile; this one has `rank`.
  __device__ SplitSum(void* buffer, ptx::Barrier& landed, int split_log2, int rank)
      : buffer_(static_cast<float*>(buffer)), landed_(landed), split_log2_(split_log2), rank_(rank) {}

  static __device__ void init(ptx::Barrier& landed) {
    ptx::barrier_init(landed, 1);
    ptx::fence_barrier_init();
  }
  static __device__ void arrive(int split_log2) {
    if (split_log2 > 0) ptx::cluster_arrive_relaxed();  // only `landed` is published, by its fence
  }
  // The other threads of the CTA, before they end.
  static __device__ void leave(int split_log2) {
    if (split_log2 > 0) ptx::cluster_wait();
  }
  __device__ void wait() {
    if (split_log2_ > 0) {
      // the owned rows, once from each CTA; bytes may land before they are announced, the phase ends after both
      if (ptx::thread_index() == 0) ptx::barrier_arrive_expect(landed_, 4 * kRows * kColumns);
      ptx::cluster_wait();
    } else {
      ptx::named_barrier_sync(kBarrier, kThreads);
    }
  }
  __device__ void publish() {
    if (split_log2_ > 0) {
      ptx::barrier_wait_cluster(landed_, 0);
    } else {
      ptx::named_barrier_sync(kBarrier, kThreads);
    }
  }

  __device__ int rows_per_owner() const { return kRows >> split_log2_; }
  __device__ int first_row() const { return rank_ * rows_per_owner(); }

  // values[i] to (row(i), column(i)) of the tile.
  template <int kCount, typename Row, typename Column>
  __device__ void put(const float (&values)[kCount], Row row, Column column) {
    if (split_log2_ == 0) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) *at(0, row(i), column(i)) = values[i];
    } else {
      const int owner_shift = std::countr_zero(unsigned{kRows}) - split_log2_;
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const int owner = row(i) >> owner_shift;
        ptx::store_async(at(rank_, row(i) - (owner << owner_shift), column(i)), landed_, owner, values[i]);
      }
    }
  }

  // Columns column .. column + 3 of row first_row() + row.
  __device__ void sum(int row, int column, float (&values)[4]) {
    ptx::load_shared(at(0, row, column), values);
#pragma unroll 1
    for (int source = 1; source < 1 << split_log2_; ++source) {
      float more[4];
      ptx::load_shared(at(source, row, column), more);
#pragma unroll
      for (int i = 0; i < 4; ++i) values[i] += more[i];
    }
  }

 private:
  __device__ float* at(int source, int row, int column) {
    return buffer_ + (source * rows_per_owner() + row) * kPitch + column;
  }

  static constexpr int kBarrier = static_cast<int>(NamedBarrier::kSplitSum);

  float* buffer_;
  ptx::Barrier& landed_;  // what was put for this CTA, where k is split
  int split_log2_, rank_;
};

// For the math warpgroups of a configuration.
template <tile::TileConfig C>
using TileSum = SplitSum<C.block_m, C.block_n, ptx::kWarpgroupSize * C.math_warpgroups()>;

}  // namespace jax_fp8::pipeline
