// Stand-in for cuda/ptx/shared_address.h.
#pragma once

#include <cstdint>

#include "ptx/kernel.h"

namespace jax_fp8::ptx {

uint32_t shared_address(const void* pointer);
void* dynamic_shared_memory();

}  // namespace jax_fp8::ptx
