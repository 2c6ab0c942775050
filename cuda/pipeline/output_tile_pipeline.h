// The way out: one buffer a math warpgroup, from registers through shared memory to TMA stores.
//
//   acquire: the storing thread waits until its last stores have read the buffer; named barrier
//   fill     every thread writes its fragment, swizzled
//   commit:  proxy fence; named barrier; the storing thread issues one TMA store a chunk
//
// Nobody waits for a store to finish before the next tile's acquire. drain: before the warpgroup ends, since stores
// read its shared memory.
#pragma once

#include <cstdint>

#include "pipeline/named_barrier.h"
#include "ptx/copy.h"
#include "ptx/kernel.h"
#include "ptx/thread.h"
#include "tile/config.h"

namespace jax_fp8::pipeline {

template <tile::TileConfig C>
struct alignas(1024) OutputBuffer {
  uint8_t chunk[C.buffered_chunks()][C.kWaveM][C.kChunkBytes];  // swizzled
};

// The buffer, free to be written by its warpgroup. Fill, then commit.
template <tile::TileConfig C>
class [[nodiscard]] OutputStage {
 public:
  __device__ OutputStage(OutputBuffer<C>& buffer, int barrier) : buffer(buffer), barrier_(barrier) {}
  OutputStage(const OutputStage&) = delete;
  OutputStage& operator=(const OutputStage&) = delete;
  __device__ ~OutputStage() {
    if (held_) ptx::trap();
  }

  // Stores the chunks from `first_chunk` on of the tile at (column, row, batch); columns outside of the array are
  // skipped.
  __device__ void commit(const ptx::TensorMap& out, int columns, int column, int first_chunk, int row, int batch) {
    ptx::fence_async_proxy();
    ptx::named_barrier_sync(barrier_, ptx::kWarpgroupSize);
    if (ptx::thread_index() % ptx::kWarpgroupSize == 0) {
      for (int i = 0; i < C.buffered_chunks() && first_chunk + i < C.chunks(); ++i) {
        const int x = column + C.chunk_start(first_chunk + i);
        if (x < columns) ptx::tma_store(out, buffer.chunk[i], x, row, batch);
      }
      ptx::commit_stores();
    }
    held_ = false;
  }

  OutputBuffer<C>& buffer;

 private:
  int barrier_;
  bool held_ = true;
};

template <tile::TileConfig C>
class OutputTilePipeline {
 public:
  __device__ OutputTilePipeline(OutputBuffer<C>& buffer, int warpgroup)
      : buffer_(buffer), barrier_(static_cast<int>(NamedBarrier::kOutputOfWarpgroup0) + warpgroup) {}

  __device__ OutputStage<C> acquire() {
    drain();
    ptx::named_barrier_sync(barrier_, ptx::kWarpgroupSize);
    return {buffer_, barrier_};
  }

  __device__ void drain() {
    if (ptx::thread_index() % ptx::kWarpgroupSize == 0) ptx::wait_stores_read();
  }

 private:
  OutputBuffer<C>& buffer_;
  int barrier_;
};

}  // namespace jax_fp8::pipeline
