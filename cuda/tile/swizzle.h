// The 128-byte swizzle of TMA and WGMMA: the 16-byte chunk c of row r lies at chunk c ^ (r & 7). PTX ISA 9.1
// section 5.5.7.
#pragma once

namespace jax_fp8::tile {

// Offset of byte `column_byte` of row `row` in a 1024-byte aligned tile of 128-byte rows.
constexpr int swizzle_128(int row, int column_byte) {
  const int chunk = column_byte / 16;
  return row * 128 + ((chunk ^ (row & 7)) * 16) + column_byte % 16;
}

}  // namespace jax_fp8::tile
