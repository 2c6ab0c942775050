// TileConfig: what one kernel instantiation is, and every number that follows from it.
//
// Plain constexpr C++: the kernels take a TileConfig as their only template parameter, the host ranks the same values,
// and `explain` prints them. Barrier arrival counts and shared-memory bytes are computed here and nowhere else.
#pragma once

#include <cstdint>

namespace jax_fp8::tile {

inline constexpr int kScaleBlock = 128;  // k positions (and weight rows) of one block scale
inline constexpr int kBlockK = 128;      // k block: one scale step, one 128-byte swizzle row

enum class OutType { kBfloat16, kFloat16, kFloat32 };

constexpr int size_of(OutType out) {
  return out == OutType::kFloat32 ? 4 : 2;
}

struct TileConfig {
  int block_m;           // rows of a CTA's output tile
  int block_n;           // columns
  int stages;            // slots of the input ring
  int unroll;            // k blocks in the unrolled loop body
  int rows_per_b_scale;  // granularity of b: 128 (128x128 blocks) or 1 (1x128 blocks)
  OutType out;

  constexpr bool operator==(const TileConfig&) const = default;

  // Roles: math warpgroups first, then one warpgroup whose first warp loads.
  static constexpr int kMathWarpgroups = 2;
  static constexpr int kThreads = 128 * (kMathWarpgroups + 1);
  static constexpr int kLoadWarp = 4 * kMathWarpgroups;
  static constexpr int kMathRegisters = 232;  // with 40 of the load warpgroup: 504 * 128 <= 65536; no spills, nvcc 13.0
  static constexpr int kLoadRegisters = 40;

  // A math warpgroup owns block_m / 2 rows and works through its columns in waves: one WGMMA's accumulators, one
  // partial.
  static constexpr int kWaveM = 64;
  static constexpr int kWaveN = 128;
  static constexpr int kWaveRegisters = kWaveM * kWaveN / 128;
  constexpr int waves() const { return block_n / kWaveN; }

  // Input ring. `full`: one arrival of the load warp (with the bytes), and one of each of its lanes if scales come by
  // cp.async. `empty`: one of each math warp.
  static constexpr int kEmptyArrivals = 4 * kMathWarpgroups;
  static constexpr int full_arrivals(bool scales_by_copy) { return scales_by_copy ? 1 + 32 : 1; }
  constexpr int b_scales_per_stage() const { return rows_per_b_scale == 1 ? block_n : 0; }
  constexpr int tile_bytes() const { return (block_m + block_n) * kBlockK; }
  constexpr int scale_bytes() const { return (block_m + b_scales_per_stage()) * 4; }

  // Output buffer of one math warpgroup: chunks of 64 rows by 128 bytes, the box of a TMA store.
  static constexpr int kChunkBytes = 128;
  constexpr int chunk_columns() const { return kChunkBytes / size_of(out); }
  constexpr int chunks() const { return block_n / chunk_columns(); }
  constexpr int buffered_chunks() const { return block_n * 2 / kChunkBytes; }  // a float32 tile leaves in two passes

  constexpr bool is_valid() const {
    return block_m == kMathWarpgroups * kWaveM && block_n % kWaveN == 0 && block_n <= 256 && stages >= 2 &&
           unroll >= 1 && (rows_per_b_scale == kScaleBlock || (rows_per_b_scale == 1 && block_n == kWaveN));
  }
};

static_assert(TileConfig::kWaveN == kScaleBlock, "one B scale per wave");

constexpr int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace jax_fp8::tile
