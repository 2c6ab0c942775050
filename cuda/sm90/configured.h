// A configuration as a type: nvcc 13.0 writes host stubs that don't compile for kernels with a namespaced class value
// as argument.
#pragma once

#include "tile/config.h"

namespace jax_fp8::sm90 {

template <tile::TileConfig C>
struct Configured {
  static constexpr tile::TileConfig kConfig = C;
};

}  // namespace jax_fp8::sm90
