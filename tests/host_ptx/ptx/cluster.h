// Stand-in for cuda/ptx/cluster.h.
#pragma once

#include <cstdint>

#include "ptx/mbarrier.h"

namespace jax_fp8::ptx {

void cluster_arrive_relaxed();
void cluster_wait();
void store_async(float* place, Barrier& landed, int rank, const float (&values)[4]);
void barrier_wait_cluster(Barrier& barrier, uint32_t parity);

}  // namespace jax_fp8::ptx
