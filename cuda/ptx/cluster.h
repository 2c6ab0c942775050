// Clusters: barrier, stores into the shared memory of another CTA.
// PTX ISA 9.1 sections 9.7.13.4 (barrier.cluster), 9.7.9.22 (mapa), 9.7.9.12 (st.async).
#pragma once

#include <cstdint>

#include "ptx/mbarrier.h"
#include "ptx/shared_address.h"

namespace jax_fp8::ptx {

// Barrier of all threads of the cluster, except those that have ended: arrive, then wait, in turns. Relaxed: says that
// this thread has come so far, and publishes only what a fence before it published.
__device__ __forceinline__ void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

// place[0 .. 3] = values, aligned to 16 bytes, and 16 bytes complete on `landed`, where both addresses are this CTA's,
// in the CTA `rank` of the cluster. It may return, and this CTA may end, before that happens.
__device__ __forceinline__ void store_async(float* place, Barrier& landed, int rank, const float (&values)[4]) {
  asm volatile(
      "{\n .reg .b32 place, landed;\n mapa.shared::cluster.u32 place, %0, %2;\n mapa.shared::cluster.u32 landed, %1, "
      "%2;\n"
      " st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [place], {%3, %4, %5, %6}, [landed];\n}" ::
          "r"(shared_address(place)),
      "r"(shared_address(&landed)), "r"(rank), "f"(values[0]), "f"(values[1]), "f"(values[2]), "f"(values[3])
      : "memory");
}

// Until the phase of that parity has completed, and what other CTAs stored is visible.
__device__ __forceinline__ void barrier_wait_cluster(Barrier& barrier, uint32_t parity) {
  asm volatile(
      "{\n .reg .pred done;\n retry:\n mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      " @done bra end;\n bra retry;\n end:\n}" ::"r"(shared_address(&barrier)),
      "r"(parity)
      : "memory");
}

}  // namespace jax_fp8::ptx
