// The numeric contract of quantisation, for one block: amax -> scale -> e4m3 codes. Bit for bit what the jax.numpy
// definition (jax_fp8/_quantize.py) computes. Magnitudes are compared as integers, so that NaN > infinity > every
// finite value.
#pragma once

#include <cstdint>

#include "ptx/memory.h"

namespace jax_fp8::quantize {

inline constexpr uint32_t kMagnitude = 0x7fffffff;
inline constexpr uint32_t kInfinity = 0x7f800000;
inline constexpr uint32_t kSmallestNormal = 0x00800000;  // FLT_MIN
inline constexpr uint32_t kInverseMax = 0x3b124925;      // float32(1 / 448)
inline constexpr uint32_t kNan = 0x7fc00000;
inline constexpr float kMax = 448.f;
inline constexpr uint8_t kNanCode = 0x7f;

// float32 subnormals count as zero.
__device__ __forceinline__ float flush_subnormal(float x) {
  return (ptx::float_bits(x) & kMagnitude) < kSmallestNormal ? 0.f : x;
}

__device__ __forceinline__ uint32_t magnitude(float x) {
  return ptx::float_bits(x) & kMagnitude;
}

// The scale of a block with this largest magnitude.
__device__ __forceinline__ float block_scale(uint32_t amax, bool power_of_two) {
  if (amax >= kInfinity) return ptx::bits_float(kNan);
  uint32_t scale;
  if (power_of_two) {  // 448 = 1.75 * 2^8: 2^(e - 8), one more if the significand is above 1.75
    const int exponent = static_cast<int>(amax >> 23) - 8 + ((amax & 0x7fffff) > 0x600000 ? 1 : 0);
    scale = static_cast<uint32_t>(exponent > 1 ? exponent : 1) << 23;
  } else {
    scale = ptx::float_bits(ptx::multiply(ptx::bits_float(amax), ptx::bits_float(kInverseMax)));
    if (scale < kSmallestNormal) scale = kSmallestNormal;
  }
  return ptx::bits_float(scale);
}

// Makes the codes of one block.
class Encoder {
 public:
  __device__ explicit Encoder(float scale) : is_nan_(magnitude(scale) >= kInfinity), inverse_(ptx::reciprocal(scale)) {}

  // Two codes, the first in the low byte.
  __device__ uint16_t encode(float low, float high) const {
    if (is_nan_) return kNanCode | kNanCode << 8;
    return ptx::pack_e4m3(clamp(ptx::multiply(low, inverse_)), clamp(ptx::multiply(high, inverse_)));
  }

 private:
  static __device__ float clamp(float x) { return x > kMax ? kMax : (x < -kMax ? -kMax : x); }

  bool is_nan_;
  float inverse_;
};

}  // namespace jax_fp8::quantize
