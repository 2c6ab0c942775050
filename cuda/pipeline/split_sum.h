// The sum over those who share the k blocks of one output tile, in a fixed order.
//
// Rows of the tile are dealt out to the CTAs of the cluster, their owners. Everybody puts his partial results into the
// owner's buffer, one place a source; then each owner adds up its rows, source by source, out of its own shared memory.
// So nobody reads from a CTA that may have ended, and the order is always the same.
//
//   init           one thread, before a barrier of the CTA or the cluster
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
#include "ptx/mbarrier.h"
#include "ptx/memory.h"
#include "ptx/thread.h"

namespace jax_fp8::pipeline {

// `kRows` rows of the tile times `kColumns` columns; sources: `per_cta` in each CTA of a cluster. `threads` threads,
// the first of the CTA, put, publish and sum; all threads of the CTA arrive.
template <int kRows, int kColumns>
class SplitSum {
 public:
  static_assert(std::has_single_bit(unsigned{kRows}));
  static constexpr int kPitch = kColumns + 4;  // neighbouring rows start on different banks
  static constexpr int bytes(int per_cta) { return 4 * per_cta * kRows * kPitch; }

  // 1 << split_log2 CTAs share the tile; this one has `rank`.
  __device__ SplitSum(void* buffer, ptx::Barrier& landed, int split_log2, int rank, int per_cta, int threads)
      : buffer_(static_cast<float*>(buffer)),
        landed_(landed),
        split_log2_(split_log2),
        rank_(rank),
        per_cta_(per_cta),
        threads_(threads) {}

  static __device__ void init(ptx::Barrier& landed, int per_cta) {
    ptx::barrier_init(landed, 1);
    ptx::fence_barrier_init();
    ptx::barrier_arrive_expect(landed, 4 * per_cta * kRows * kColumns);  // whatever the split
  }
  static __device__ void arrive(int split_log2) {
    if (split_log2 > 0) ptx::cluster_arrive_relaxed();  // only `landed` is published, by its fence
  }
  __device__ void wait() {
    if (split_log2_ > 0) {
      ptx::cluster_wait();
    } else {
      ptx::named_barrier_sync(kBarrier, threads_);
    }
  }
  __device__ void publish() {
    if (split_log2_ > 0) {
      ptx::barrier_wait_cluster(landed_, 0);
    } else {
      ptx::named_barrier_sync(kBarrier, threads_);
    }
  }

  __device__ int rows_per_owner() const { return kRows >> split_log2_; }
  __device__ int threads() const { return threads_; }
  __device__ int first_row() const { return rank_ * rows_per_owner(); }

  // values[i] to (row(i), column(i)) of the tile. `source`: of this CTA.
  template <int kCount, typename Row, typename Column>
  __device__ void put(int source, const float (&values)[kCount], Row row, Column column) {
    const int from = rank_ * per_cta_ + source;
    if (split_log2_ == 0) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) *at(from, row(i), column(i)) = values[i];
    } else {
      const int owner_shift = std::countr_zero(unsigned{kRows}) - split_log2_;
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const int owner = row(i) >> owner_shift;
        ptx::store_async(at(from, row(i) - (owner << owner_shift), column(i)), landed_, owner, values[i]);
      }
    }
  }

  // Columns column .. column + 3 of row first_row() + row.
  __device__ void sum(int row, int column, float (&values)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) values[i] = 0.f;
#pragma unroll 4
    for (int source = 0; source < per_cta_ << split_log2_; ++source) {
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
  ptx::Barrier& landed_;  // what others put
  int split_log2_, rank_, per_cta_, threads_;
};

}  // namespace jax_fp8::pipeline
