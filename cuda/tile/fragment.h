// Where the WGMMA accumulators of a 64-row wave lie. PTX ISA 9.1 section 9.7.15.5 (m64nNk32, D fragment).
//
// Thread t of the warpgroup holds, in register i: row 16 * (t / 32) + (t % 32) / 4, eight further if i & 2, and column
// 8 * (i / 4) + 2 * (t % 4) + (i & 1). So two rows a thread, and pairs of neighbouring columns.
#pragma once

namespace jax_fp8::tile {

struct Fragment {
  int warp, lane;  // of the warpgroup, of the warp

  constexpr int row(int half) const { return 16 * warp + lane / 4 + 8 * half; }
  constexpr int column(int i) const { return 8 * (i / 4) + 2 * (lane % 4) + (i & 1); }
  static constexpr int column_group(int i) { return 8 * (i / 4); }  // the first of the eight columns around column(i)
  static constexpr int half(int i) { return (i >> 1) & 1; }
};

}  // namespace jax_fp8::tile
