// 32-bit shared-memory addresses, the form PTX instructions take. PTX ISA 9.1 section 9.7.9.20 (cvta).
#pragma once

#include <cstdint>

#include "ptx/kernel.h"

namespace jax_fp8::ptx {

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// The block's dynamic shared memory, 1024-byte aligned: the period of the 128-byte swizzle.
__device__ __forceinline__ void* dynamic_shared_memory() {
  extern __shared__ __align__(1024) unsigned char memory[];
#ifdef JAX_FP8_DEBUG
  if (shared_address(memory) % 1024 != 0) asm volatile("trap;");
#endif
  return memory;
}

}  // namespace jax_fp8::ptx
