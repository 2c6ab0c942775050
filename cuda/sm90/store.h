// Float32 results to the output's type, and to global memory without TMA.
#pragma once

#include <cstdint>

#include "ptx/memory.h"
#include "tile/matmul_params.h"

namespace jax_fp8::sm90 {

// Two values of a 16-bit type, the first in the low half.
template <tile::OutType kOut>
__device__ __forceinline__ uint32_t pack(float low, float high) {
  return kOut == tile::OutType::kBfloat16 ? ptx::pack_bfloat16(low, high) : ptx::pack_float16(low, high);
}

// Column `column` of the output row that starts at element `start`; nothing beyond the last column.
template <tile::OutType kOut>
__device__ __forceinline__ void store_element(const tile::MatmulParams& params, int64_t start, int column,
                                              float value) {
  if (column >= params.n) return;
  if constexpr (kOut == tile::OutType::kFloat32) {
    static_cast<float*>(params.out_data)[start + column] = value;
  } else {
    static_cast<uint16_t*>(params.out_data)[start + column] = static_cast<uint16_t>(pack<kOut>(value, 0.f));
  }
}

// The same for columns column .. column + 3, column a multiple of 4.
template <tile::OutType kOut>
__device__ __forceinline__ void store_four(const tile::MatmulParams& params, int64_t start, int column,
                                           const float (&values)[4]) {
  if (params.n % 4 != 0) {
#pragma unroll
    for (int i = 0; i < 4; ++i) store_element<kOut>(params, start, column + i, values[i]);
  } else if (column < params.n) {
    if constexpr (kOut == tile::OutType::kFloat32) {
      const uint32_t words[4] = {ptx::float_bits(values[0]), ptx::float_bits(values[1]), ptx::float_bits(values[2]),
                                 ptx::float_bits(values[3])};
      ptx::store_16_bytes(static_cast<float*>(params.out_data) + start + column, words);
    } else {
      ptx::store_8_bytes(static_cast<uint16_t*>(params.out_data) + start + column, pack<kOut>(values[0], values[1]),
                         pack<kOut>(values[2], values[3]));
    }
  }
}

}  // namespace jax_fp8::sm90
