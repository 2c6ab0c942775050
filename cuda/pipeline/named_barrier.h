// Ids of named barriers; 0 is the block barrier.
#pragma once

namespace jax_fp8::pipeline {

enum class NamedBarrier : int { kOutputOfWarpgroup0 = 1, kOutputOfWarpgroup1 = 2, kSplitSum = 3, kRingReady = 4 };

}  // namespace jax_fp8::pipeline
