// The one place where block scales meet products: accum += a_scale * b_scale * partial, in float32.
#pragma once

#include "tile/config.h"
#include "tile/fragment.h"

namespace jax_fp8::tile {

// Scales of one k block for the accumulators of one wave, 128x128 blocks of b: a factor for each of the thread's two
// rows and each block of b that the tile touches. `first_column`: of the wave, counted from the start of the tile's
// first block.
template <int kBlocks>
struct RowBlockScales {
  float factor[kBlocks][2];
  int first_column;

  constexpr float at(int i) const {
    return factor[(first_column + Fragment::column_group(i)) / kScaleBlock][Fragment::half(i)];
  }
};

// The same for 1x128 blocks of b: every column has its own.
template <int kCount>
struct RowColumnScales {
  float row[2];
  float column[kCount / 2];  // of register i: column[2 * (i / 4) + (i & 1)]

  constexpr float at(int i) const { return row[Fragment::half(i)] * column[2 * (i / 4) + (i & 1)]; }
};

// Operands swapped: a's rows are the columns of the wave, whose rows share one scale of b, already multiplied in.
template <int kCount>
struct ColumnScales {
  float column[kCount / 2];  // of register i: column[2 * (i / 4) + (i & 1)]

  constexpr float at(int i) const { return column[2 * (i / 4) + (i & 1)]; }
};

// The first k block of a tile overwrites, so that accumulators need no zeroing.
template <bool kFirst, int kCount, typename Scales>
constexpr void promote(float (&accum)[kCount], const float (&partial)[kCount], const Scales& scales) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) accum[i] = kFirst ? scales.at(i) * partial[i] : accum[i] + scales.at(i) * partial[i];
}

}  // namespace jax_fp8::tile
