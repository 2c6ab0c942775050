// WGMMA on e4m3 operands in shared memory. PTX ISA 9.1 section 9.7.15.
//
// Operands are K-major tiles of 128-byte rows, swizzled as TMA writes them with a 128-byte swizzle. Order of use:
//   wgmma_fence, wgmma (any number), wgmma_commit, wgmma_wait: only then may anybody read the accumulators.
#pragma once

#include <cstdint>

#include "ptx/shared_address.h"

namespace jax_fp8::ptx {

// Descriptor of a tile whose first row starts at `tile` (1024-byte aligned). Section 9.7.15.5.1.2: address in units of
// 16 bytes; leading offset 1 (ignored for swizzled K-major); 1024 bytes between groups of 8 rows; 128-byte swizzle.
__device__ __forceinline__ uint64_t wgmma_descriptor(const void* tile) {
  return (uint64_t{1} << 62) | (uint64_t{1024 >> 4} << 32) | (uint64_t{1} << 16) |
         ((shared_address(tile) & 0x3ffff) >> 4);
}

inline constexpr int kWgmmaK = 32;                     // k of one instruction
inline constexpr uint64_t kDescriptorStepK = 32 >> 4;  // to the next kWgmmaK bytes inside the 128-byte swizzle

__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Until all committed groups of this warpgroup but the last kPending are done; `accumulators` are pinned so that no use
// moves above the wait.
template <int kPending = 0, int kCount>
__device__ __forceinline__ void wgmma_wait(float (&accumulators)[kCount]) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(accumulators[i])::"memory");
}

// d (64 x n) = a (64 x 32) * b (n x 32)^T, plus d if kAccumulate; n is twice the number of accumulators of a thread.
//
// One overload a width. asm takes accumulators one by one, so the preprocessor spells them out: NAMES<count> for the
// text, EACH<count> for the operands, every count an extension of the one before.
// clang-format off
#define JAX_FP8_NAMES8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define JAX_FP8_NAMES16 JAX_FP8_NAMES8 ", " \
  "%8, %9, %10, %11, %12, %13, %14, %15"
#define JAX_FP8_NAMES32 JAX_FP8_NAMES16 ", " \
  "%16, %17, %18, %19, %20, %21, %22, %23" ", " \
  "%24, %25, %26, %27, %28, %29, %30, %31"
#define JAX_FP8_NAMES64 JAX_FP8_NAMES32 ", " \
  "%32, %33, %34, %35, %36, %37, %38, %39" ", " \
  "%40, %41, %42, %43, %44, %45, %46, %47" ", " \
  "%48, %49, %50, %51, %52, %53, %54, %55" ", " \
  "%56, %57, %58, %59, %60, %61, %62, %63"
#define JAX_FP8_NAMES72 JAX_FP8_NAMES64 ", " \
  "%64, %65, %66, %67, %68, %69, %70, %71"
#define JAX_FP8_NAMES80 JAX_FP8_NAMES72 ", " \
  "%72, %73, %74, %75, %76, %77, %78, %79"
#define JAX_FP8_NAMES88 JAX_FP8_NAMES80 ", " \
  "%80, %81, %82, %83, %84, %85, %86, %87"
#define JAX_FP8_NAMES96 JAX_FP8_NAMES88 ", " \
  "%88, %89, %90, %91, %92, %93, %94, %95"
#define JAX_FP8_EIGHT(i) \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), \
  "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define JAX_FP8_EACH8 JAX_FP8_EIGHT(0)
#define JAX_FP8_EACH16 JAX_FP8_EACH8, JAX_FP8_EIGHT(8)
#define JAX_FP8_EACH32 JAX_FP8_EACH16, JAX_FP8_EIGHT(16), JAX_FP8_EIGHT(24)
#define JAX_FP8_EACH64 JAX_FP8_EACH32, JAX_FP8_EIGHT(32), JAX_FP8_EIGHT(40), JAX_FP8_EIGHT(48), JAX_FP8_EIGHT(56)
#define JAX_FP8_EACH72 JAX_FP8_EACH64, JAX_FP8_EIGHT(64)
#define JAX_FP8_EACH80 JAX_FP8_EACH72, JAX_FP8_EIGHT(72)
#define JAX_FP8_EACH88 JAX_FP8_EACH80, JAX_FP8_EIGHT(80)
#define JAX_FP8_EACH96 JAX_FP8_EACH88, JAX_FP8_EIGHT(88)
#define JAX_FP8_WGMMA(n, count, a_operand, b_operand, flag) \
  template <bool kAccumulate> \
  __device__ __forceinline__ void wgmma(float (&d)[count], uint64_t a, uint64_t b) { \
    asm volatile( \
        "{\n .reg .pred accumulate;\n setp.ne.b32 accumulate, %" #flag ", 0;\n" \
        " wgmma.mma_async.sync.aligned.m64n" #n "k32.f32.e4m3.e4m3 {" JAX_FP8_NAMES##count "}, %" #a_operand \
        ", %" #b_operand ", accumulate, 1, 1;\n}" \
        : JAX_FP8_EACH##count \
        : "l"(a), "l"(b), "n"(kAccumulate ? 1 : 0)); \
  }
JAX_FP8_WGMMA(16, 8, 8, 9, 10)
JAX_FP8_WGMMA(32, 16, 16, 17, 18)
JAX_FP8_WGMMA(64, 32, 32, 33, 34)
JAX_FP8_WGMMA(128, 64, 64, 65, 66)
JAX_FP8_WGMMA(144, 72, 72, 73, 74)
JAX_FP8_WGMMA(160, 80, 80, 81, 82)
JAX_FP8_WGMMA(176, 88, 88, 89, 90)
JAX_FP8_WGMMA(192, 96, 96, 97, 98)
#undef JAX_FP8_NAMES8
#undef JAX_FP8_EACH8
#undef JAX_FP8_NAMES16
#undef JAX_FP8_EACH16
#undef JAX_FP8_NAMES32
#undef JAX_FP8_EACH32
#undef JAX_FP8_NAMES64
#undef JAX_FP8_EACH64
#undef JAX_FP8_NAMES72
#undef JAX_FP8_EACH72
#undef JAX_FP8_NAMES80
#undef JAX_FP8_EACH80
#undef JAX_FP8_NAMES88
#undef JAX_FP8_EACH88
#undef JAX_FP8_NAMES96
#undef JAX_FP8_EACH96
#undef JAX_FP8_EIGHT
#undef JAX_FP8_WGMMA
// clang-format on

}  // namespace jax_fp8::ptx
