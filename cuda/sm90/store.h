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

// Element `index` of the output.
template <tile::OutType kOut>
__device__ __forceinline__ void store_element(const tile::MatmulParams& params, int64_t index, float value) {
  if constexpr (kOut == tile::OutType::kFloat32) {
    static_cast<float*>(params.out_data)[index] = value;
  } else {
    static_cast<uint16_t*>(params.out_data)[index] = static_cast<uint16_t>(pack<kOut>(value, 0.f));
  }
}

// Elements index .. index + 3, index a multiple of 4, if `inside`.
template <tile::OutType kOut>
__device__ __forceinline__ void store_four(const tile::MatmulParams& params, int64_t index, bool inside,
                                           const float (&values)[4]) {
  if constexpr (kOut == tile::OutType::kFloat32) {
    const uint32_t words[4] = {ptx::float_bits(values[0]), ptx::float_bits(values[1]), ptx::float_bits(values[2]),
                               ptx::float_bits(values[3])};
    ptx::store_16_bytes_if(inside, static_cast<float*>(params.out_data) + index, words);
  } else {
    ptx::store_8_bytes_if(inside, static_cast<uint16_t*>(params.out_data) + index, pack<kOut>(values[0], values[1]),
                          pack<kOut>(values[2], values[3]));
  }
}

}  // namespace jax_fp8::sm90
