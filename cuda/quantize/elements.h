// What a 32-bit word of the input holds: one float32 value or two 16-bit ones, the first in the low half.
#pragma once

#include <cstdint>

#include "ptx/memory.h"
#include "quantize/quantize_params.h"

namespace jax_fp8::quantize {

template <InType kIn>
struct Elements {
  static constexpr int kPerWord = kIn == InType::kFloat32 ? 1 : 2;

  // Magnitudes compare as integers: NaN > infinity > every finite value.
  static __device__ __forceinline__ uint32_t magnitudes(uint32_t word) {
    return word & (kPerWord == 1 ? 0x7fffffffu : 0x7fff7fffu);
  }
  static __device__ __forceinline__ uint32_t larger(uint32_t a, uint32_t b) {
    return kPerWord == 1 ? (a > b ? a : b) : ptx::max_16_bit(a, b);
  }

  // Value i of a word, and its magnitude as the bits of a float32.
  static __device__ __forceinline__ float value(uint32_t word, int i) {
    if constexpr (kIn == InType::kFloat32) return ptx::bits_float(word);
    const auto bits = static_cast<uint16_t>(i == 0 ? word : word >> 16);
    return kIn == InType::kBfloat16 ? ptx::from_bfloat16(bits) : ptx::from_float16(bits);
  }
  static __device__ __forceinline__ uint32_t float_magnitude(uint32_t magnitudes, int i) {
    return ptx::float_bits(value(magnitudes, i));
  }
};

}  // namespace jax_fp8::quantize
