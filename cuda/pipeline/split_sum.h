// The sum over those who share the k blocks of one output tile, in a fixed order.
//
// Rows of the tile are dealt out to the CTAs of the cluster, their owners. Everybody lays out his own partial results,
// sends each owner its rows, and adds up those he owns, source by source, out of his own shared memory. So nobody reads
// from a CTA that may have ended, and the order is always the same.
//
//   init           one thread, before a barrier of the CTA
//   arrive         this CTA runs: it may be sent to
//   await_buffer   this CTA's tile may be laid out
//   put
//   exchange       everything that this CTA owns has come
//   sum            what this CTA owns
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

// Of tiles of kRows rows by kColumns columns. kThreads threads, the first of the CTA, take part; all threads of the CTA
// arrive, the others leave.
template <int kRows, int kColumns, int kThreads>
class SplitSum {
 public:
  static_assert(std::has_single_bit(unsigned{kRows}) && kThreads % (kColumns / 4) == 0);
  static constexpr int kPitch = kColumns + 4;  // neighbouring rows start on different banks
  static constexpr int kBytes = 4 * kRows * kPitch;
  static constexpr int kNumThreads = kThreads;

  // 1 << split_log2 CTAs share the tile; this one has `rank`. kBytes each: `own` for this CTA's tile, `received`, only
  // if k is split, for what others send.
  __device__ SplitSum(void* own, void* received, ptx::Barrier& landed, int split_log2, int rank)
      : own_(static_cast<float*>(own)),
        received_(static_cast<float*>(received)),
        landed_(landed),
        split_log2_(split_log2),
        rank_(rank) {}

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

  // All threads have read what lay in `own`.
  __device__ void await_buffer() { ptx::named_barrier_sync(kBarrier, kThreads); }

  // values[i] to (row(i), column(i)) of this CTA's tile.
  template <int kCount, typename Row, typename Column>
  __device__ void put(const float (&values)[kCount], Row row, Column column) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) own_[row(i) * kPitch + column(i)] = values[i];
  }

  __device__ void exchange() {
    ptx::named_barrier_sync(kBarrier, kThreads);
    if (split_log2_ == 0) return;
    // bytes may land before they are announced, the phase ends after both
    if (ptx::thread_index() == 0) {
      ptx::barrier_arrive_expect(landed_, ((1 << split_log2_) - 1) * rows_per_owner() * kColumns * 4);
    }
    ptx::cluster_wait();
    send();
    ptx::barrier_wait_cluster(landed_, 0);
  }

  __device__ int rows_per_owner() const { return kRows >> split_log2_; }
  __device__ int first_row() const { return rank_ * rows_per_owner(); }

  // One of the owned rows.
  __device__ float sum(int row, int column) {
    const int source_size = rows_per_owner() * kPitch;
    float value = 0;
#pragma unroll 1
    for (int source = 0; source < 1 << split_log2_; ++source) {
      const float* place = source == rank_ ? own_ + first_row() * kPitch : received_ + source * source_size;
      value += place[row * kPitch + column];
    }
    return value;
  }

  // The same for all of them: this thread sums columns column() .. column() + 3 of the rows row(), row() + kRowStep,
  // ... Calls store(inside, values) for one after the other, those at `rows` and beyond not `inside`. A CTA is short:
  // its loads go together, and its instructions are few.
  static constexpr int kRowStep = kThreads / (kColumns / 4);
  static __device__ int column() { return ptx::thread_index() % (kColumns / 4) * 4; }
  static __device__ int row() { return ptx::thread_index() / (kColumns / 4); }
  template <typename Store>
  __device__ void for_each_sum(int rows, Store store) {
    const float* own = own_ + (first_row() + row()) * kPitch + column();
    if (split_log2_ == 0) {
#pragma unroll
      for (int first = 0; first < kRows; first += kRowStep) {
        float values[4];
        ptx::load_four(own + first * kPitch, values);
        store(first + row() < rows, values);
      }
      return;
    }
    const float* received = received_ + row() * kPitch + column();
    const int source_size = rows_per_owner() * kPitch;
#pragma unroll 1
    for (int first = row(); first < rows; first += kAtOnce * kRowStep) {
      float values[kAtOnce][4] = {};
#pragma unroll 1
      for (int source = 0; source < 1 << split_log2_; ++source) {
        const float* place = source == rank_ ? own : received + source * source_size;
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          float more[4] = {};
          if (first + i * kRowStep < rows) ptx::load_four(place + i * kRowStep * kPitch, more);
#pragma unroll
          for (int j = 0; j < 4; ++j) values[i][j] += more[j];
        }
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) store(first + i * kRowStep < rows, values[i]);
      own += kAtOnce * kRowStep * kPitch;
      received += kAtOnce * kRowStep * kPitch;
    }
  }

 private:
  // Each owner gets its rows, into the place of this CTA in its `received`.
  __device__ void send() {
    const int owner_shift = std::countr_zero(unsigned{kRows}) - split_log2_;
    const float* own = own_ + row() * kPitch + column();
#pragma unroll 1
    for (int first = row(); first < kRows; first += kAtOnce * kRowStep) {
      float values[kAtOnce][4];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) ptx::load_four(own + i * kRowStep * kPitch, values[i]);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int row = first + i * kRowStep, owner = row >> owner_shift;
        const int place = rank_ * rows_per_owner() + row - (owner << owner_shift);
        if (owner != rank_) ptx::store_async(received_ + place * kPitch + column(), landed_, owner, values[i]);
      }
      own += kAtOnce * kRowStep * kPitch;
    }
  }

  static constexpr int kAtOnce =
      kRows / kRowStep < 4 ? kRows / kRowStep : 4;  // rows of a thread whose loads go together
  static constexpr int kBarrier = static_cast<int>(NamedBarrier::kSplitSum);

  float *own_, *received_;
  ptx::Barrier& landed_;  // what was sent to this CTA
  int split_log2_, rank_;
};

// For the math warpgroups of a configuration.
template <tile::TileConfig C>
using TileSum = SplitSum<C.block_m, C.block_n, ptx::kWarpgroupSize * C.math_warpgroups()>;

}  // namespace jax_fp8::pipeline
