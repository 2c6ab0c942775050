// mbarrier objects in shared memory. PTX ISA 9.1 section 9.7.13.15.
//
// A phase completes when all expected arrivals came and all expected bytes landed. `wait(barrier, parity)` returns once
// the phase of that parity has completed; on a fresh barrier parity 1 returns at once.
#pragma once

#include <cstdint>

#include "ptx/shared_address.h"
#include "ptx/thread.h"

namespace jax_fp8::ptx {

struct alignas(8) Barrier {
  uint64_t state;
};

__device__ __forceinline__ void barrier_init(Barrier& barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&barrier)), "r"(arrivals) : "memory");
}

// After the inits, by the thread that made them, before the block barrier that publishes them.
__device__ __forceinline__ void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(Barrier& barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&barrier)) : "memory");
}

// One arrival that also announces `bytes` of asynchronous copies to this phase.
__device__ __forceinline__ void barrier_arrive_expect(Barrier& barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&barrier)), "r"(bytes)
               : "memory");
}

// One arrival, made by the hardware when all cp.async of this thread so far have landed. Section 9.7.13.15.12.
__device__ __forceinline__ void barrier_arrive_after_copies(Barrier& barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(&barrier)) : "memory");
}

__device__ __forceinline__ bool barrier_try_wait(Barrier& barrier, uint32_t parity) {
  uint32_t done;
  asm volatile("{\n .reg .pred p;\n mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n selp.u32 %0, 1, 0, p;\n}"
               : "=r"(done)
               : "r"(shared_address(&barrier)), "r"(parity)
               : "memory");
  return done != 0;
}

__device__ __forceinline__ void barrier_wait(Barrier& barrier, uint32_t parity) {
#ifdef JAX_FP8_DEBUG  // a protocol error becomes an error instead of a hang
  for (long long i = 0; !barrier_try_wait(barrier, parity); ++i) {
    if (i > 20'000'000) trap();
  }
#else
  // one asm block: without control flow that the compiler sees, arithmetic moves past the wait
  asm volatile(
      "{\n .reg .pred done;\n retry:\n mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      " @done bra end;\n bra retry;\n end:\n}" ::"r"(shared_address(&barrier)),
      "r"(parity)
      : "memory");
#endif
}

}  // namespace jax_fp8::ptx
