// The one place where block scales meet products: accum += a_scale * b_scale * partial, in float32.
#pragma once

#include "tile/fragment.h"

namespace jax_fp8::tile {

// Scales of one k block for the accumulators of one wave, 128x128 blocks of b: a factor for each of the thread's two
// rows.
struct RowScales {
  float row[2];

  constexpr float at(int i) const { return row[Fragment::half(i)]; }
};

// The same for 1x128 blocks of b: every column has its own.
template <int kCount>
struct RowColumnScales {
  float row[2];
  float column[kCount / 2];  // of register i: column[2 * (i / 4) + (i & 1)]

  constexpr float at(int i) const { return row[Fragment::half(i)] * column[2 * (i / 4) + (i & 1)]; }
};

// The first k block of a tile overwrites, so that accumulators need no zeroing.
template <bool kFirst, int kCount, typename Scales>
constexpr void promote(float (&accum)[kCount], const float (&partial)[kCount], const Scales& scales) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) accum[i] = kFirst ? scales.at(i) * partial[i] : accum[i] + scales.at(i) * partial[i];
}

}  // namespace jax_fp8::tile
