// Asynchronous copies: TMA loads and stores (PTX ISA 9.1 sections 9.7.9.27.1, 9.7.9.27.2) and cp.async (9.7.9.25.3).
//
// A TMA load always counts the whole box on its barrier, with zeros for what lies outside of the array; a store skips
// that.
#pragma once

#include <cstdint>

#include "ptx/mbarrier.h"
#include "ptx/shared_address.h"
#include "ptx/tensor_map.h"

namespace jax_fp8::ptx {

__device__ __forceinline__ void prefetch_tensor_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// What L2 evicts first. Section 9.7.9.18. A policy of evict_normal is not what loads without a policy have: slower by 7
// % (docs/engineering_log.md).
struct L2Policy {
  uint64_t bits;
};
__device__ __forceinline__ L2Policy evict_first() {
  L2Policy policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy.bits));
  return policy;
}

// Box at (x, y, z), innermost first, into shared memory; its bytes complete on `full`. One thread.
__device__ __forceinline__ void tma_load(void* destination, const TensorMap& map, Barrier& full, int x, int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::
          "r"(shared_address(destination)),
      "l"(&map), "r"(shared_address(&full)), "r"(x), "r"(y), "r"(z)
      : "memory");
}

// With an L2 policy.
__device__ __forceinline__ void tma_load(void* destination, const TensorMap& map, Barrier& full, int x, int y, int z,
                                         L2Policy policy) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(shared_address(destination)),
      "l"(&map), "r"(shared_address(&full)), "r"(x), "r"(y), "r"(z), "l"(policy.bits)
      : "memory");
}

// The same for four dimensions.
__device__ __forceinline__ void tma_load(void* destination, const TensorMap& map, Barrier& full, int x, int y, int z,
                                         int w) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], "
      "[%2];" ::"r"(shared_address(destination)),
      "l"(&map), "r"(shared_address(&full)), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}
__device__ __forceinline__ void tma_load(void* destination, const TensorMap& map, Barrier& full, int x, int y, int z,
                                         int w, L2Policy policy) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(shared_address(destination)),
      "l"(&map), "r"(shared_address(&full)), "r"(x), "r"(y), "r"(z), "r"(w), "l"(policy.bits)
      : "memory");
}

// Box at (x, y, z) out of shared memory; belongs to this thread's next store group.
__device__ __forceinline__ void tma_store(const TensorMap& map, const void* source, int x, int y, int z) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(&map),
               "r"(shared_address(source)), "r"(x), "r"(y), "r"(z)
               : "memory");
}

__device__ __forceinline__ void commit_stores() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Until the sources of all store groups of this thread have been read: their shared memory may be written again.
__device__ __forceinline__ void wait_stores_read() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

// Between ordinary accesses of shared memory and TMA's. By every thread that wrote, before the barrier after which TMA
// reads; by the thread that issues a load, after the barrier that says the old contents have been read.
__device__ __forceinline__ void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Four bytes, or zeros if not `inside` (then nothing is read). Completion: barrier_arrive_after_copies.
__device__ __forceinline__ void copy_async_float(float* destination, const float* source, bool inside) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(destination)), "l"(source),
               "r"(inside ? 4 : 0)
               : "memory");
}

}  // namespace jax_fp8::ptx
