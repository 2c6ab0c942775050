// Quantises a 128x128 tile of the input per CTA, in one or both orientations from one read.
//
//   load the tile as float32 into shared memory -> largest magnitudes -> scales -> codes, written along their
//   contracted axis
#pragma once

#include <algorithm>
#include <cstdint>

#include "ptx/kernel.h"
#include "ptx/memory.h"
#include "ptx/shared_address.h"
#include "ptx/thread.h"
#include "quantize/block_scale.h"
#include "quantize/quantize_params.h"
#include "tile/config.h"

namespace jax_fp8::quantize {

inline constexpr int kTile = tile::kScaleBlock;
inline constexpr int kThreads = 256;
inline constexpr int kWarps = kThreads / ptx::kWarpSize;
inline constexpr int kCodesPerLane = kTile / ptx::kWarpSize;

struct SharedStorage {
  float x[kTile][kTile + 1];  // the odd pitch spreads columns over the banks
  uint32_t warp_amax[kWarps];
};

// One tile seen along the axis that is contracted: line l holds its k positions contiguously in the codes.
struct TileView {
  int first_line, first_k;  // of the tile in the array
  int lines, ks;            // extents of the array
  int64_t batch, batches;

  __device__ int num_lines() const { return in_tile(lines - first_line); }
  __device__ int num_ks() const { return in_tile(ks - first_k); }
  __device__ int64_t code_offset(int line) const { return (batch * lines + first_line + line) * ks + first_k; }
  __device__ int64_t scale_offset(int line) const {  // 1x128 blocks
    return (first_k / kTile * batches + batch) * lines + first_line + line;
  }
  __device__ int64_t block_scale_offset() const {  // 128x128 blocks
    const int64_t line_blocks = tile::ceil_div(lines, kTile), k_blocks = tile::ceil_div(ks, kTile);
    return (batch * line_blocks + first_line / kTile) * k_blocks + first_k / kTile;
  }

  static __device__ int in_tile(int left) { return left < kTile ? left : kTile; }
};

template <InType kIn>
__device__ float load(const void* x, int64_t i) {
  if constexpr (kIn == InType::kFloat32) return static_cast<const float*>(x)[i];
  const uint16_t bits = static_cast<const uint16_t*>(x)[i];
  return kIn == InType::kBfloat16 ? ptx::from_bfloat16(bits) : ptx::from_float16(bits);
}

// Writes the codes of one line; each lane has kCodesPerLane neighbouring ones. `aligned`: lines start at multiples of
// four bytes.
template <typename At>
__device__ void write_codes(uint8_t* line, int valid, bool aligned, const Encoder& encoder, At&& at) {
  const int k = kCodesPerLane * ptx::lane_index();
  const uint32_t codes = encoder.encode(at(k), at(k + 1)) | encoder.encode(at(k + 2), at(k + 3)) << 16;
  if (aligned && k + kCodesPerLane <= valid) {
    *reinterpret_cast<uint32_t*>(line + k) = codes;
    return;
  }
  for (int i = 0; i < kCodesPerLane; ++i) {
    if (k + i < valid) line[k + i] = static_cast<uint8_t>(codes >> 8 * i);
  }
}

// All lines of the tile in one orientation. at(line, k) reads the tile; `block_amax` is that of the whole tile.
template <typename At>
__device__ void write_orientation(const QuantizeParams& params, const Orientation& out, const TileView& view,
                                  uint32_t block_amax, At&& at) {
  for (int line = ptx::warp_index(); line < view.num_lines(); line += kWarps) {
    uint32_t amax = block_amax;
    if (!params.square_blocks) {
      amax = 0;
      for (int k = ptx::lane_index(); k < kTile; k += ptx::kWarpSize) amax = std::max(amax, magnitude(at(line, k)));
      amax = ptx::warp_max(amax);
    }
    const float scale = block_scale(amax, params.power_of_two);
    if (ptx::lane_index() == 0) {
      if (!params.square_blocks) out.scales[view.scale_offset(line)] = scale;
      if (params.square_blocks && line == 0) out.scales[view.block_scale_offset()] = scale;
    }
    write_codes(out.codes + view.code_offset(line), view.num_ks(), view.ks % kCodesPerLane == 0, Encoder(scale),
                [&](int k) { return at(line, k); });
  }
}

template <InType kIn>
__global__ void __launch_bounds__(kThreads) fp8_quantize(const __grid_constant__ QuantizeParams params) {
  ptx::let_next_kernel_start();
  ptx::await_previous_kernels();
  auto& shared = *static_cast<SharedStorage*>(ptx::dynamic_shared_memory());
  const int tiles_c = static_cast<int>(tile::ceil_div(params.columns, kTile));
  const int tiles_r = static_cast<int>(tile::ceil_div(params.rows, kTile));
  const int tile_index = ptx::block_index() % (tiles_r * tiles_c);
  const int64_t batch = ptx::block_index() / (tiles_r * tiles_c);
  const int first_row = tile_index / tiles_c * kTile, first_column = tile_index % tiles_c * kTile;

  uint32_t amax = 0;
  for (int row = ptx::warp_index(); row < kTile; row += kWarps) {
    for (int column = ptx::lane_index(); column < kTile; column += ptx::kWarpSize) {
      float x = 0.f;  // beyond the edge: no effect on a magnitude
      if (first_row + row < params.rows && first_column + column < params.columns) {
        const int64_t i = (batch * params.rows + first_row + row) * params.columns + first_column + column;
        x = flush_subnormal(load<kIn>(params.x, i));
      }
      shared.x[row][column] = x;
      amax = std::max(amax, magnitude(x));
    }
  }
  shared.warp_amax[ptx::warp_index()] = ptx::warp_max(amax);
  ptx::block_sync();
  for (const uint32_t other : shared.warp_amax) amax = std::max(amax, other);

  if (params.along_columns.codes != nullptr) {
    const TileView view{first_row, first_column, params.rows, params.columns, batch, params.batch};
    write_orientation(params, params.along_columns, view, amax, [&](int line, int k) { return shared.x[line][k]; });
  }
  if (params.along_rows.codes != nullptr) {
    const TileView view{first_column, first_row, params.columns, params.rows, batch, params.batch};
    write_orientation(params, params.along_rows, view, amax, [&](int line, int k) { return shared.x[k][line]; });
  }
}

}  // namespace jax_fp8::quantize
