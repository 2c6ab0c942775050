// Stand-in for cuda/ptx/wgmma.h.
#pragma once

#include <cstdint>

#include "ptx/shared_address.h"

namespace jax_fp8::ptx {

uint64_t wgmma_descriptor(const void* tile);

inline constexpr int kWgmmaK = 32;
inline constexpr uint64_t kDescriptorStepK = 32 >> 4;

void wgmma_fence();
void wgmma_commit();
template <int kPending = 0, int kCount>
void wgmma_wait(float (&accumulators)[kCount]);
template <bool kAccumulate, int kCount>
void wgmma(float (&d)[kCount], uint64_t a, uint64_t b);

}  // namespace jax_fp8::ptx
