// Shared memory of the Hopper kernel.
#pragma once

#include "pipeline/input_tile_pipeline.h"
#include "pipeline/output_tile_pipeline.h"
#include "pipeline/split_sum.h"
#include "ptx/mbarrier.h"

namespace jax_fp8::sm90 {

template <tile::TileConfig C>
struct SharedStorage {
  static_assert(C.is_valid(), "TileConfig breaks a rule of TileConfig::is_valid");

  pipeline::InputRing<C> input;
  ptx::Barrier sums_landed;
  pipeline::OutputBuffer<C> output[C.math_warpgroups()];

  // Where the k blocks are shared, sums take the place of the output buffers, and go on behind this struct.
  static_assert(pipeline::TileSum<C>::kBytes == C.sum_bytes());
};

}  // namespace jax_fp8::sm90
