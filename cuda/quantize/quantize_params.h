// Arguments of the quantise kernel: an array (batch, rows, columns), and where its codes go.
#pragma once

#include <cstdint>

namespace jax_fp8::quantize {

enum class InType { kFloat32, kBfloat16, kFloat16 };

// Codes contiguous along the contracted axis, and their scales; null where not wanted.
struct Orientation {
  uint8_t* codes;
  float* scales;
};

struct QuantizeParams {
  const void* x;  // [batch][rows][columns]
  int64_t batch;
  int rows, columns;
  bool square_blocks;         // 128x128 blocks, else 1x128 along the contracted axis
  bool power_of_two;          // scale rounding
  Orientation along_columns;  // codes [batch][rows][columns]
  Orientation along_rows;     // codes [batch][columns][rows]
};
// Scales of codes [batch][r][k]: [batch][ceil(r / 128)][ceil(k / 128)] for square blocks, else [ceil(k /
// 128)][batch][r].

}  // namespace jax_fp8::quantize
