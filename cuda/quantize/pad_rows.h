// Copies codes whose rows TMA can't read (k not a multiple of 16 bytes) into scratch with padded rows; zeros behind
// each row. A kernel and not a 2-D memcpy: CUDA graphs can't update the addresses of such a node, and XLA moves buffers
// between calls.
#pragma once

#include <cstdint>

#include "ptx/kernel.h"
#include "ptx/memory.h"
#include "ptx/thread.h"

namespace jax_fp8::quantize {

struct PadRowsParams {
  const uint8_t* source;  // [rows][k]
  uint8_t* padded;        // [rows][pitch]
  int64_t rows;
  int k, pitch;  // pitch: the next multiple of 16
};

inline constexpr int kPadThreads = 256;
inline constexpr int kPadBytes = 16;  // of a thread

constexpr int64_t pad_threads(const PadRowsParams& params) {
  return params.rows * (params.pitch / kPadBytes);
}

__global__ void __launch_bounds__(kPadThreads) fp8_pad_rows(const __grid_constant__ PadRowsParams params) {
  ptx::let_next_kernel_start();
  ptx::await_previous_kernels();
  const int64_t index = static_cast<int64_t>(ptx::block_index()) * kPadThreads + ptx::thread_index();
  if (index >= pad_threads(params)) return;
  const int chunks = params.pitch / kPadBytes;
  const int64_t row = index / chunks;
  const int first = static_cast<int>(index - row * chunks) * kPadBytes;
  const uint8_t* source = params.source + row * params.k;
  uint32_t words[kPadBytes / 4] = {};
#pragma unroll
  for (int i = 0; i < kPadBytes; ++i) {
    const uint32_t byte = first + i < params.k ? source[first + i] : 0;
    words[i / 4] |= byte << 8 * (i % 4);
  }
  ptx::store_16_bytes(params.padded + row * params.pitch + first, words);
}

}  // namespace jax_fp8::quantize
