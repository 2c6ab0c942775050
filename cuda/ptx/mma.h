// mma.sync on e4m3 operands in registers. PTX ISA 9.1 section 9.7.14.5. sm_90 has no such instruction in hardware:
// ptxas turns the operands into float16, exactly, and adds the products up in float32.
#pragma once

#include <cstdint>

#include "ptx/kernel.h"

namespace jax_fp8::ptx {

// d (16 x 8) += a (16 x 32) * b (8 x 32)^T. Lane l holds of a four bytes of row l / 4, of row l / 4 + 8, then further
// on in k of both; of b eight bytes of row l / 4. Where in k these bytes lie may be permuted, the same way for both.
__device__ __forceinline__ void mma(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                    uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

}  // namespace jax_fp8::ptx
