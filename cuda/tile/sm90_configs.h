// The table of Hopper configurations: instantiated, ranked, launched by name and listed from here.
#pragma once

#include <array>
#include <cstddef>

#include "tile/config.h"

namespace jax_fp8::tile {

// A tile of the table, for all output types. `tensor_use`: the share of the tensor cores' rate that it reaches in a
// long k loop, measured on an H200 (docs/engineering_log.md).
struct TileShape {
  int block_m, block_n, wave_n, stages, unroll, rows_per_b_scale;
  double tensor_use;
};

inline constexpr TileShape kSm90Shapes[] = {
    {128, 256, 128, 3, 8, 128, 0.88},  // two n128 waves share one partial; three 48 KiB stages suffice
    {128, 192, 192, 4, 8, 128, 0.90},  // one wave, two B scales at column 64 or 128
    {128, 176, 176, 4, 1, 128, 0.84},  // up to three B scales, eight places for them: 2112 = 12 x 176
    {128, 144, 144, 5, 1, 128, 0.81},  // 576 = 4 x 144
    {128, 128, 128, 5, 8, 128, 0.64}, {128, 160, 160, 4, 2, 1, 0.60},  // weight gradient: 40 column scales a thread
    {128, 128, 128, 5, 4, 1, 0.55},
};
inline constexpr OutType kOutTypes[] = {OutType::kBfloat16, OutType::kFloat16, OutType::kFloat32};

inline constexpr auto kSm90Configs = [] {
  std::array<TileConfig, std::size(kSm90Shapes) * std::size(kOutTypes)> configs{};
  size_t i = 0;
  for (const TileShape& s : kSm90Shapes) {
    for (OutType out : kOutTypes) {
      configs[i++] = {s.block_m, s.block_n, s.wave_n, s.stages, s.unroll, s.rows_per_b_scale, out};
    }
  }
  return configs;
}();

constexpr const TileShape& shape_of(int config_index) {
  return kSm90Shapes[config_index / static_cast<int>(std::size(kOutTypes))];
}

}  // namespace jax_fp8::tile
