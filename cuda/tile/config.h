// TileConfig: what one kernel instantiation is, and every number that follows from it.
//
// Plain constexpr C++: the kernels take a TileConfig as their only template parameter, the host ranks the same values,
// and `explain` prints them. Barrier arrival counts and shared-memory bytes are computed here and nowhere else.
#pragma once

#include <cstdint>
#include <numeric>

namespace jax_fp8::tile {

inline constexpr int kScaleBlock = 128;  // k positions (and weight rows) of one block scale
inline constexpr int kBlockK = 128;      // k block: one scale step, one 128-byte swizzle row

enum class OutType { kBfloat16, kFloat16, kFloat32 };

constexpr int size_of(OutType out) {
  return out == OutType::kFloat32 ? 4 : 2;
}

// Two kernels, by the number of rows of a.
enum class Family {
  kTile,     // any m: a on the 64 rows of WGMMA, persistent
  kSwapped,  // few: b on the 64 rows of WGMMA, a's rows are its columns
};

// Shared memory of each of several CTAs of an SM: it has 228 KiB and keeps one for each (CUDA C++ Programming Guide,
// compute capability 9.0).
constexpr int max_shared_bytes(int ctas_per_sm) {
  return 228 * 1024 / ctas_per_sm - 1024;
}
inline constexpr int kSwappedHeadBytes = 2048;  // barriers in front of the ring, each part 1024-byte aligned

constexpr int round_up(int x, int multiple) {
  return (x + multiple - 1) / multiple * multiple;
}

struct TileConfig {
  Family family;
  int block_m;             // rows of a CTA's output tile
  int block_n;             // columns
  int wave_n;              // columns of one wave: one WGMMA's accumulators, one partial
  int stages;              // slots of the input ring, at most
  int k_blocks_per_stage;  // kTile: 1
  int unroll;              // kTile: k blocks in the unrolled loop body
  bool early_wait;         // kTile: wait for a stage while the k block before is multiplied
  int ctas_per_sm;         // that registers allow
  int rows_per_b_scale;    // granularity of b: 128 (128x128 blocks) or 1 (1x128 blocks)
  OutType out;

  constexpr bool operator==(const TileConfig&) const = default;

  // Roles: math warpgroups first, then the load warp. kTile gives it a whole warpgroup, so that registers can move
  // over.
  constexpr int math_warpgroups() const { return family == Family::kSwapped ? block_m / wave_n * slabs() : 2; }
  constexpr int load_warp() const { return 4 * math_warpgroups(); }
  constexpr int threads() const { return 128 * math_warpgroups() + (family == Family::kTile ? 128 : 32); }
  constexpr int role_threads() const { return 128 * math_warpgroups() + 32; }  // without idle warps
  static constexpr int kMathRegisters = 232;  // with 40 of the load warpgroup: 504 * 128 <= 65536; no spills, nvcc 13.0
  static constexpr int kLoadRegisters = 40;

  // kTile: a math warpgroup owns block_m / 2 rows and works through its columns in waves.
  static constexpr int kWaveM = 64;
  constexpr int waves() const { return block_n / wave_n; }
  constexpr int wave_registers() const { return kWaveM * wave_n / 128; }
  constexpr int slabs() const { return block_n / kWaveM; }  // kSwapped: of 64 rows of b, one a warpgroup

  // kSwapped: up to kMaxSplit CTAs, a cluster, may share the k blocks of a tile; then their sums meet in shared memory.
  static constexpr int kMaxSplitLog2 = 3, kMaxSplit = 1 << kMaxSplitLog2;

  // B scales of 128x128 blocks. A tile starts `offset` columns into its first block, a multiple of b_offset_step().
  constexpr int b_offset_step() const { return std::gcd(block_n, kScaleBlock); }
  constexpr int b_offsets() const { return rows_per_b_scale == kScaleBlock ? kScaleBlock / b_offset_step() : 1; }
  constexpr int b_blocks(int offset) const { return (offset + block_n - 1) / kScaleBlock + 1; }

  // Input ring. `full`: one arrival of the load warp (with the bytes), and one of each of its lanes if scales come by
  // cp.async. `empty`: one of each math warp.
  constexpr int empty_arrivals() const { return 4 * math_warpgroups(); }
  static constexpr int full_arrivals(bool scales_by_copy) { return scales_by_copy ? 1 + 32 : 1; }
  constexpr int b_scales_per_k_block() const {
    return family == Family::kSwapped ? 1 : rows_per_b_scale == 1 ? block_n : 0;
  }
  constexpr int tile_bytes() const { return k_blocks_per_stage * (block_m + block_n) * kBlockK; }
  constexpr int scale_bytes() const { return k_blocks_per_stage * (block_m + b_scales_per_k_block()) * 4; }
  constexpr int stage_bytes() const {  // of shared memory
    const int b_scale_bytes = k_blocks_per_stage * (b_scales_per_k_block() + 1) * 4;
    const int a_end = tile_bytes() + k_blocks_per_stage * block_m * 4;
    return round_up(round_up(a_end, 128) + b_scale_bytes, 1024);
  }

  // Sums over the CTAs that share a tile; rows are padded by 16 bytes, so that neighbours start on other banks.
  constexpr int sum_bytes() const { return block_m * (block_n + 4) * 4; }

  // Output buffer of one math warpgroup: chunks of 64 rows by 128 bytes, the box of a TMA store.
  static constexpr int kChunkBytes = 128;
  constexpr int chunk_columns() const { return kChunkBytes / size_of(out); }
  constexpr int chunks() const { return (block_n + chunk_columns() - 1) / chunk_columns(); }
  constexpr int buffered_chunks() const {
    return (2 * block_n + kChunkBytes - 1) / kChunkBytes;
  }  // float32: two passes
  // First column of a chunk in the tile. The last chunk of an odd width overlaps its neighbour: the same values twice.
  constexpr int chunk_start(int i) const {
    const int last = block_n - chunk_columns();
    return i * chunk_columns() < last ? i * chunk_columns() : last;
  }

  constexpr bool is_valid() const {
    switch (family) {
      case Family::kTile:
        return block_m == 2 * kWaveM && block_n % wave_n == 0 && block_n % 16 == 0 && block_n <= 256 &&
               (waves() == 1 || wave_n % chunk_columns() == 0) && stages >= 2 && k_blocks_per_stage == 1 &&
               unroll >= 1 && !(early_wait && (waves() > 1 || rows_per_b_scale == 1)) &&
               (rows_per_b_scale == kScaleBlock || (rows_per_b_scale == 1 && waves() == 1));
      case Family::kSwapped:
        return (block_n == kWaveM || block_n == 2 * kWaveM) && block_m % wave_n == 0 && block_m % kMaxSplit == 0 &&
               stages >= 2 && k_blocks_per_stage >= 1 && rows_per_b_scale == kScaleBlock;
    }
    return false;
  }
};

constexpr int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace jax_fp8::tile
