// Plain loads and stores of one thread, stmatrix, and conversions to and from the narrow formats.
// PTX ISA 9.1 sections 9.7.9.7-11 (ld, st), 9.7.14.5.16 (stmatrix), 9.7.9.21 (cvt).
#pragma once

#include <cstdint>

#include "ptx/shared_address.h"

namespace jax_fp8::ptx {

// Not through the read-only path (ld.global.nc): that is for data which nobody writes while the kernel runs, and the
// kernel may have started before the one that writes it has ended (await_previous_kernels).
__device__ __forceinline__ float load_global(const float* pointer) {
  float value;
  asm volatile("ld.global.f32 %0, [%1];" : "=f"(value) : "l"(pointer));
  return value;
}

__device__ __forceinline__ float load_shared(const float* pointer) {
  float value;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(shared_address(pointer)));
  return value;
}
__device__ __forceinline__ void load_shared(const float* pointer, float& first, float& second) {
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(first), "=f"(second) : "r"(shared_address(pointer)));
}
// Plain C++, which the compiler can make conditional without a branch.
__device__ __forceinline__ void load_four(const float* pointer, float (&values)[4]) {
  const float4 four = *reinterpret_cast<const float4*>(pointer);
  values[0] = four.x, values[1] = four.y, values[2] = four.z, values[3] = four.w;
}
__device__ __forceinline__ void store_shared(void* pointer, float first, float second) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(shared_address(pointer)), "f"(first), "f"(second) : "memory");
}

// To an aligned address in global memory.
__device__ __forceinline__ void store_16_bytes(void* pointer, const uint32_t (&words)[4]) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(pointer), "r"(words[0]), "r"(words[1]), "r"(words[2]),
               "r"(words[3])
               : "memory");
}

// The same under a condition, without a branch.
__device__ __forceinline__ void store_16_bytes_if(bool condition, void* pointer, const uint32_t (&words)[4]) {
  asm volatile("{\n .reg .pred p;\n setp.ne.u32 p, %0, 0;\n @p st.global.v4.b32 [%1], {%2, %3, %4, %5};\n}" ::"r"(
                   uint32_t{condition}),
               "l"(pointer), "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
               : "memory");
}
__device__ __forceinline__ void store_8_bytes_if(bool condition, void* pointer, uint32_t low, uint32_t high) {
  asm volatile(
      "{\n .reg .pred p;\n setp.ne.u32 p, %0, 0;\n @p st.global.v2.b32 [%1], {%2, %3};\n}" ::"r"(uint32_t{condition}),
      "l"(pointer), "r"(low), "r"(high)
      : "memory");
}

// Four 8x8 matrices of 16-bit values; lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void store_matrices(void* row, uint32_t m0, uint32_t m1, uint32_t m2, uint32_t m3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)), "r"(m0),
               "r"(m1), "r"(m2), "r"(m3)
               : "memory");
}

// Two values, the first in the low half, rounded to nearest even; too large gives infinity.
__device__ __forceinline__ uint32_t pack_bfloat16(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
__device__ __forceinline__ uint32_t pack_float16(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
// Two e4m3 codes, the first in the low byte, rounded to nearest even. |values| <= 448, or NaN (0x7f).
__device__ __forceinline__ uint16_t pack_e4m3(float low, float high) {
  uint16_t packed;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(packed) : "f"(high), "f"(low));
  return packed;
}

__device__ __forceinline__ float from_bfloat16(uint16_t bits) {
  return __uint_as_float(static_cast<uint32_t>(bits) << 16);
}
__device__ __forceinline__ float from_float16(uint16_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
__device__ __forceinline__ uint32_t float_bits(float value) {
  return __float_as_uint(value);
}
__device__ __forceinline__ float bits_float(uint32_t bits) {
  return __uint_as_float(bits);
}

// 1 / value, correctly rounded. Subnormal results are not flushed.
__device__ __forceinline__ float reciprocal(float value) {
  return __frcp_rn(value);
}
// a * b, rounded once, never contracted with a following addition.
__device__ __forceinline__ float multiply(float a, float b) {
  return __fmul_rn(a, b);
}

}  // namespace jax_fp8::ptx
