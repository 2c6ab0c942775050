// The table of Hopper configurations: instantiated, ranked, launched by name and listed from here.
#pragma once

#include <array>
#include <cstddef>

#include "tile/config.h"

namespace jax_fp8::tile {

// A tile of the table, for all output types.
struct TileShape {
  int block_m, block_n, stages, unroll, rows_per_b_scale;
};

inline constexpr TileShape kSm90Shapes[] = {
    {128, 256, 3, 8, 128},  // large products: two n128 waves share one partial; three 48 KiB stages suffice
    {128, 128, 5, 8, 128},  // few tiles, narrow n
    {128, 128, 5, 4, 1},    // weight gradient: 32 column scales a thread leave no room for a second wave
};
inline constexpr OutType kOutTypes[] = {OutType::kBfloat16, OutType::kFloat16, OutType::kFloat32};

inline constexpr auto kSm90Configs = [] {
  std::array<TileConfig, std::size(kSm90Shapes) * std::size(kOutTypes)> configs{};
  size_t i = 0;
  for (const TileShape& s : kSm90Shapes) {
    for (OutType out : kOutTypes) configs[i++] = {s.block_m, s.block_n, s.stages, s.unroll, s.rows_per_b_scale, out};
  }
  return configs;
}();

}  // namespace jax_fp8::tile
