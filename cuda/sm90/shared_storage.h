// Shared memory of the Hopper kernel.
#pragma once

#include "pipeline/input_tile_pipeline.h"
#include "pipeline/output_tile_pipeline.h"

namespace jax_fp8::sm90 {

template <tile::TileConfig C>
struct SharedStorage {
  static_assert(C.is_valid(), "TileConfig breaks a rule of TileConfig::is_valid");

  pipeline::OutputBuffer<C> output[C.math_warpgroups()];
  pipeline::InputRing<C> input;
};

}  // namespace jax_fp8::sm90
