// The input ring: tiles and scales of one k block a stage, from the load warp to the math warps.
//
//   load warp            acquire: wait empty -> TMA, cp.async into the stage -> commit: arrive on full with the bytes
//   math warps           acquire: wait full  -> WGMMA, read scales          -> release: each warp arrives on empty
//
// Stages are leases: they can't be copied, and one that dies unreleased traps. nvcc deletes the trap where every path
// releases, so a trap in release PTX is a protocol error found at compile time.
#pragma once

#include <cstdint>

#include "pipeline/ring_cursor.h"
#include "ptx/copy.h"
#include "ptx/mbarrier.h"
#include "ptx/thread.h"
#include "tile/config.h"

namespace jax_fp8::pipeline {

// What one stage holds. A-scales travel with A and B, under the same barrier.
template <tile::TileConfig C>
struct alignas(1024) BlockwiseFp8TilePayload {
  uint8_t a[C.block_m][tile::kBlockK];  // swizzled
  uint8_t b[C.block_n][tile::kBlockK];  // swizzled
  float a_scales[C.block_m];
  alignas(128) float b_scales[C.b_scales_per_stage() + 1];  // one unused where b has 128x128 blocks
};

template <tile::TileConfig C>
struct InputRing {
  BlockwiseFp8TilePayload<C> payload[C.stages];
  ptx::Barrier full[C.stages];
  ptx::Barrier empty[C.stages];

  // One thread, before the block barrier.
  __device__ void init(bool scales_by_copy) {
    for (int i = 0; i < C.stages; ++i) {
      ptx::barrier_init(full[i], C.full_arrivals(scales_by_copy));
      ptx::barrier_init(empty[i], C.kEmptyArrivals);
    }
  }
};

// A free stage, held by the load warp. Fill the payload, then commit.
template <tile::TileConfig C>
class [[nodiscard]] InputProducerStage {
 public:
  __device__ InputProducerStage(BlockwiseFp8TilePayload<C>& payload, ptx::Barrier& full)
      : payload(payload), full(full) {}
  InputProducerStage(const InputProducerStage&) = delete;
  InputProducerStage& operator=(const InputProducerStage&) = delete;
  __device__ ~InputProducerStage() {
    if (held_) ptx::trap();
  }

  // All lanes. `bytes`: of the TMA copies issued into this stage; the lanes' cp.async join in if `copies`.
  __device__ void commit(int bytes, bool copies) {
    if (copies) ptx::barrier_arrive_after_copies(full);
    if (ptx::elect_one()) ptx::barrier_arrive_expect(full, bytes);
    held_ = false;
  }

  BlockwiseFp8TilePayload<C>& payload;
  ptx::Barrier& full;

 private:
  bool held_ = true;
};

// A filled stage, held by one math warpgroup.
template <tile::TileConfig C>
class [[nodiscard]] InputConsumerStage {
 public:
  __device__ InputConsumerStage(const BlockwiseFp8TilePayload<C>& payload, ptx::Barrier& empty)
      : payload(payload), empty_(empty) {}
  InputConsumerStage(const InputConsumerStage&) = delete;
  InputConsumerStage& operator=(const InputConsumerStage&) = delete;
  __device__ ~InputConsumerStage() {
    if (held_) ptx::trap();
  }

  // All lanes, after the last read of the payload: scales are in registers, WGMMAs have been waited for.
  __device__ void release() {
    ptx::warp_sync();  // the arrival speaks for all lanes
    if (ptx::lane_index() == 0) ptx::barrier_arrive(empty_);
    held_ = false;
  }

  const BlockwiseFp8TilePayload<C>& payload;

 private:
  ptx::Barrier& empty_;
  bool held_ = true;
};

template <tile::TileConfig C>
class InputProducer {
 public:
  __device__ explicit InputProducer(InputRing<C>& ring) : ring_(ring) {}

  __device__ InputProducerStage<C> acquire() {
    const int i = cursor_.stage();
    ptx::barrier_wait(ring_.empty[i], cursor_.phase());
    ptx::warp_sync();          // no lane may fall a whole ring behind the one that issues
    ptx::fence_async_proxy();  // the math warps' reads of scales come before TMA's writes
    cursor_.advance();
    return {ring_.payload[i], ring_.full[i]};
  }

  // Until every stage has been consumed: nothing is in flight into shared memory when the warp ends.
  __device__ void drain() {
    for (int i = 0; i < C.stages; ++i) {
      ptx::barrier_wait(ring_.empty[cursor_.stage()], cursor_.phase());
      cursor_.advance();
    }
  }

 private:
  InputRing<C>& ring_;
  RingCursor<C.stages> cursor_{1};
};

template <tile::TileConfig C>
class InputConsumer {
 public:
  __device__ explicit InputConsumer(InputRing<C>& ring) : ring_(ring) {}

  __device__ InputConsumerStage<C> acquire() {
    const int i = cursor_.stage();
    ptx::barrier_wait(ring_.full[i], cursor_.phase());
    cursor_.advance();
    return {ring_.payload[i], ring_.empty[i]};
  }

 private:
  InputRing<C>& ring_;
  RingCursor<C.stages> cursor_{0};
};

}  // namespace jax_fp8::pipeline
