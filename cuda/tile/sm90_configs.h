// The table of Hopper configurations: instantiated, ranked, launched by name and listed from here.
#pragma once

#include <array>
#include <cstddef>

#include "tile/config.h"

namespace jax_fp8::tile {

// A tile of the table, for all output types. `tensor_use`: the share of the tensor cores' rate (at 1.7 GHz) that it
// reaches in a long k loop, measured on an H200 (docs/engineering_log.md); kSwapped is never bound by it.
struct TileShape {
  Family family;
  int block_m, block_n, wave_n, stages, k_blocks_per_stage, unroll;
  bool early_wait;
  int ctas_per_sm, rows_per_b_scale;
  double tensor_use;
};

// clang-format off
inline constexpr TileShape kSm90Shapes[] = {
    //               block        stages  unroll     b scale
    // family        m    n  wave   |  k   | early  | use
    {Family::kTile, 128, 256, 128,  3, 1,  8, false, 1, 128, 0.85},   // two n128 waves share one partial
    {Family::kTile, 128, 192, 192,  4, 1,  8, false, 1, 128, 0.845},  // one wave, two B scales at column 64 or 128
    {Family::kTile, 128, 176, 176,  4, 1,  1, true,  1, 128, 0.79},   // up to three B scales; 2112 = 12 x 176
    {Family::kTile, 128, 144, 144,  5, 1,  1, true,  1, 128, 0.775},  // 576 = 4 x 144
    {Family::kTile, 128, 128, 128,  5, 1,  8, false, 1, 128, 0.81},
    {Family::kTile, 128, 160, 160,  4, 1,  2, false, 1,   1, 0.65},   // weight gradient: 40 column scales a thread
    {Family::kTile, 128, 128, 128,  5, 1,  4, false, 1,   1, 0.645},
    // few rows; slots: as many as fit beside each other, see host/select
    {Family::kSwapped, 64, 128, 64, 4, 2,  1, false, 1, 128, 0},
    {Family::kSwapped, 64,  64, 64, 6, 2,  1, false, 3, 128, 0},
    {Family::kSwapped, 64,  64, 64, 8, 1,  1, false, 4, 128, 0},  // short k: all of many CTAs at once
    {Family::kSwapped, 32,  64, 32, 8, 2,  1, false, 3, 128, 0},
    {Family::kSwapped, 16,  64, 16, 8, 2,  1, false, 4, 128, 0},
};
// clang-format on
inline constexpr OutType kOutTypes[] = {OutType::kBfloat16, OutType::kFloat16, OutType::kFloat32};

inline constexpr auto kSm90Configs = [] {
  std::array<TileConfig, std::size(kSm90Shapes) * std::size(kOutTypes)> configs{};
  size_t i = 0;
  for (const TileShape& s : kSm90Shapes) {
    for (OutType out : kOutTypes) {
      configs[i++] = {s.family, s.block_m,    s.block_n,     s.wave_n,           s.stages, s.k_blocks_per_stage,
                      s.unroll, s.early_wait, s.ctas_per_sm, s.rows_per_b_scale, out};
    }
  }
  return configs;
}();

constexpr const TileShape& shape_of(int config_index) {
  return kSm90Shapes[config_index / static_cast<int>(std::size(kOutTypes))];
}

}  // namespace jax_fp8::tile
