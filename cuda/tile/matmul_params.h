// MatmulParams: the kernels' only argument. Filled by host/tensor_maps, read by the roles.
#pragma once

#include "ptx/tensor_map.h"
#include "tile/scheduler.h"

namespace jax_fp8::tile {

struct MatmulParams {
  // Dimensions innermost first. An operand without batch has extent 1 there and is read at batch index 0.
  ptx::TensorMap a;         // (k, m, batch) bytes, box (128, block_m, 1), swizzled
  ptx::TensorMap b;         // (k, n, batch) bytes, box (128, block_n, 1), swizzled
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

  constexpr int a_index(int batch) const { return a_batch == 1 ? 0 : batch; }
  constexpr int b_index(int batch) const { return b_batch == 1 ? 0 : batch; }
};

}  // namespace jax_fp8::tile
