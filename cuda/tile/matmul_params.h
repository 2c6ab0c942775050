// MatmulParams: the kernels' only argument. Filled by host/tensor_maps, read by the roles.
#pragma once

#include <cstdint>

#include "ptx/tensor_map.h"
#include "tile/config.h"
#include "tile/scheduler.h"

namespace jax_fp8::tile {

// Scales of 1x128 blocks, [k blocks][batch][rows].
struct RowScales {
  const float* data;
  int rows, k_blocks, batch;
};

struct MatmulParams {
  // Dimensions innermost first. An operand without batch has extent 1 there and is read at batch index 0.
  // kTile: (k, rows, batch) bytes, box (128, tile, 1), swizzled. kSwapped: (128, rows, k blocks, batch), or where the
  // last k block is short (k, rows, 1, batch), box (128, tile, k blocks of one copy, 1), swizzled.
  ptx::TensorMap a;         // rows: m
  ptx::TensorMap b;         // rows: n
  ptx::TensorMap a_scales;  // (m, batch, k blocks), box (block_m, 1, 1); unused where scales_by_copy
  ptx::TensorMap b_scales;  // (n, batch, k blocks), box (block_n, 1, 1); for 1x128 blocks of b, else unused
  ptx::TensorMap out;       // (n, m, batch), box (128 bytes, 64, 1), swizzled; unused where not store_by_tma

  const float* a_scale_data;  // [k blocks][batch][m]
  const float* b_scale_data;  // [batch][ceil(n / 128)][k blocks], or [k blocks][batch][n] for 1x128 blocks
  void* out_data;             // [batch][m][n]

  int m, n, num_k_blocks;
  int a_batch, b_batch;  // extents of the operands' batch dimension: the product's, or 1
  TileGrid grid;
  bool scales_by_copy;  // m (or, for 1x128 blocks, n) % 4 != 0: TMA can't stride over the scales, cp.async can
  bool store_by_tma;    // n * sizeof(out) % 16 == 0

  // kSwapped. What the host can compute doesn't delay the first load of a CTA.
  int stages;             // slots of the input ring
  int num_steps;          // stages' worth of k blocks
  int split_log2;         // 1 << split_log2 CTAs, a cluster, share the k blocks of a tile
  bool whole_k_blocks;    // k % 128 == 0, so one copy brings all k blocks of a stage
  uint32_t a_scale_step;  // from a scale to that of the next k block: a_batch * m; a has less than 2^31 scales
  uint32_t b_scale_rows;  // ceil(n / 128)

  constexpr int a_index(int batch) const { return a_batch == 1 ? 0 : batch; }
  constexpr int b_index(int batch) const { return b_batch == 1 ? 0 : batch; }
  constexpr RowScales a_rows() const { return {a_scale_data, m, num_k_blocks, a_batch}; }
  constexpr RowScales b_rows() const { return {b_scale_data, n, num_k_blocks, b_batch}; }

  // The scales of the 128x128 blocks of b that hold row `n` (or the last row), for k block 0, 1, ... Less than 2^32 in
  // all (host/problem).
  constexpr const float* b_block_scales(int batch, int row) const {
    const uint32_t blocks = (static_cast<uint32_t>(n) + kScaleBlock - 1) / kScaleBlock;
    const uint32_t wanted = static_cast<uint32_t>(row) / kScaleBlock, block = wanted < blocks ? wanted : blocks - 1;
    return b_scale_data +
           (static_cast<uint32_t>(b_index(batch)) * blocks + block) * static_cast<uint32_t>(num_k_blocks);
  }
};

}  // namespace jax_fp8::tile
