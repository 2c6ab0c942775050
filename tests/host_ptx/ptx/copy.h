// Stand-in for cuda/ptx/copy.h.
#pragma once

#include <cstdint>

#include "ptx/mbarrier.h"
#include "ptx/shared_address.h"
#include "ptx/tensor_map.h"

namespace jax_fp8::ptx {

void prefetch_tensor_map(const TensorMap& map);
struct L2Policy {
  uint64_t bits;
};
L2Policy evict_first();
void tma_load(void* destination, const TensorMap& map, Barrier& full, int x, int y, int z);
void tma_load(void* destination, const TensorMap& map, Barrier& full, int x, int y, int z, L2Policy policy);
void tma_load(void* destination, const TensorMap& map, Barrier& full, int x, int y, int z, int w);
void tma_load(void* destination, const TensorMap& map, Barrier& full, int x, int y, int z, int w, L2Policy policy);
void tma_store(const TensorMap& map, const void* source, int x, int y, int z);
void commit_stores();
void wait_stores_read();
void fence_async_proxy();
void copy_async_float(float* destination, const float* source, bool inside);

}  // namespace jax_fp8::ptx
