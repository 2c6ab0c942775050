// Stand-in for cuda/ptx/mbarrier.h.
#pragma once

#include <cstdint>

#include "ptx/shared_address.h"
#include "ptx/thread.h"

namespace jax_fp8::ptx {

struct alignas(8) Barrier {
  uint64_t state;
};

void barrier_init(Barrier& barrier, int arrivals);
void fence_barrier_init();
void barrier_arrive(Barrier& barrier);
void barrier_arrive_expect(Barrier& barrier, int bytes);
void barrier_arrive_after_copies(Barrier& barrier);
bool barrier_try_wait(Barrier& barrier, uint32_t parity);
void barrier_wait(Barrier& barrier, uint32_t parity);

}  // namespace jax_fp8::ptx
