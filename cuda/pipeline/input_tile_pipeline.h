// The input ring: tiles and scales of one k block (or a few) a stage, from the load warp to the math warps.
//
//   load warp            acquire: wait empty -> TMA, cp.async into the stage -> commit: arrive on full with the bytes
//   math warps           acquire: wait full  -> WGMMA, read scales          -> release: each warp arrives on empty
//
// Stages are leases: they can't be copied, and one that dies unreleased traps. nvcc deletes the trap where every path
// releases, so a trap in release PTX is a protocol error found at compile time.
#pragma once

#include <cstdint>

#include "pipeline/ring_cursor.h"
#include "ptx/kernel.h"
#include "ptx/mbarrier.h"
#include "ptx/thread.h"
#include "tile/config.h"

namespace jax_fp8::pipeline {

// What one stage holds. Scales travel with A and B, under the same barrier; those of 128x128 blocks only where the tile
// lies in one block.
template <tile::TileConfig C>
struct alignas(1024) BlockwiseFp8TilePayload {
  uint8_t a[C.k_blocks_per_stage][C.block_m][tile::kBlockK];  // swizzled
  uint8_t b[C.k_blocks_per_stage][C.block_n][tile::kBlockK];  // swizzled
  float a_scales[C.k_blocks_per_stage][C.block_m];
  alignas(128) float b_scales[C.k_blocks_per_stage][C.b_scales_per_k_block() + 1];  // the last is never used
};

// Up to C.stages slots, all or the first few in use.
template <tile::TileConfig C>
struct InputRing {
  ptx::Barrier full[C.stages];
  ptx::Barrier empty[C.stages];
  BlockwiseFp8TilePayload<C> payload[C.stages];
  static_assert(sizeof(BlockwiseFp8TilePayload<C>) == C.stage_bytes());

  // All lanes of one warp, before the block barrier.
  __device__ void init(bool scales_by_copy) {
    if (ptx::elect_one()) {
#pragma unroll  // a loop would make each of them wait for the one before
      for (int i = 0; i < C.stages; ++i) {
        ptx::barrier_init(full[i], C.full_arrivals(scales_by_copy));
        ptx::barrier_init(empty[i], C.empty_arrivals());
      }
      ptx::fence_barrier_init();
    }
    ptx::warp_sync();
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
  __device__ explicit InputProducer(InputRing<C>& ring, int stages = C.stages)
      : ring_(ring), stages_(stages), cursor_(stages, 1) {}

  __device__ InputProducerStage<C> acquire() {
    const int i = cursor_.stage();
    ptx::barrier_wait(ring_.empty[i], cursor_.phase());
    ptx::warp_sync();  // no lane may fall a whole ring behind the one that issues
    cursor_.advance();
    return {ring_.payload[i], ring_.full[i]};
  }

  // Until every stage has been consumed: nothing is in flight into shared memory when the warp ends.
  __device__ void drain() {
    for (int i = 0; i < stages_; ++i) {
      ptx::barrier_wait(ring_.empty[cursor_.stage()], cursor_.phase());
      cursor_.advance();
    }
  }

 private:
  InputRing<C>& ring_;
  int stages_;
  RingCursor cursor_;
};

template <tile::TileConfig C>
class InputConsumer {
 public:
  __device__ explicit InputConsumer(InputRing<C>& ring, int stages = C.stages) : ring_(ring), cursor_(stages, 0) {}

  __device__ InputConsumerStage<C> acquire() {
    await();
    return take();
  }

  // The same in two steps: the wait may come early, in the shadow of other work, and what it returns be read already.
  __device__ const BlockwiseFp8TilePayload<C>& await() {
    ptx::barrier_wait(ring_.full[cursor_.stage()], cursor_.phase());
    return ring_.payload[cursor_.stage()];
  }
  __device__ InputConsumerStage<C> take() {
    const int i = cursor_.stage();
    cursor_.advance();
    return {ring_.payload[i], ring_.empty[i]};
  }

 private:
  InputRing<C>& ring_;
  RingCursor cursor_;
};

}  // namespace jax_fp8::pipeline
