#include "host/tensor_maps.h"

#include <stdexcept>
#include <string>

#include "ptx/tensor_map.h"

namespace jax_fp8::host {
namespace {

using ptx::TensorMap;
using ptx::TensorMapShape;
using ptx::TensorMapSwizzle;
using ptx::TensorMapType;
using tile::TileConfig;

uint64_t u64(int64_t x) {
  return static_cast<uint64_t>(x);
}
uint32_t u32(int64_t x) {
  return static_cast<uint32_t>(x);
}

TensorMap encode(const char* what, TensorMapType type, const void* data, const TensorMapShape& shape,
                 TensorMapSwizzle swizzle) {
  TensorMap map{};
  if (const char* error = ptx::encode_tensor_map(map, type, data, shape, swizzle)) {
    throw std::runtime_error(std::string("jax_fp8: tensor map of ") + what + ": " + error);
  }
  return map;
}

// Codes [batch][rows][k], as MatmulParams describes for the configuration's family.
TensorMap codes_map(const char* what, const void* data, const MatmulProblem& p, int64_t rows, int64_t batch,
                    const TileConfig& config, int box_rows) {
  const uint64_t pitch = u64(p.padded_k()), matrix = u64(p.padded_k() * rows);
  TensorMapShape shape{};
  if (config.family == tile::Family::kTile) {
    shape = {.rank = 3,
             .extent = {u64(p.k), u64(rows), u64(batch)},
             .stride = {pitch, matrix},
             .box = {tile::kBlockK, u32(box_rows), 1}};
  } else if (p.whole_k_blocks()) {
    shape = {.rank = 4,
             .extent = {tile::kBlockK, u64(rows), u64(p.num_k_blocks()), u64(batch)},
             .stride = {pitch, tile::kBlockK, matrix},
             .box = {tile::kBlockK, u32(box_rows), u32(config.k_blocks_per_stage), 1}};
  } else {
    shape = {.rank = 4,
             .extent = {u64(p.k), u64(rows), 1, u64(batch)},
             .stride = {pitch, matrix, matrix},
             .box = {tile::kBlockK, u32(box_rows), 1, 1}};
  }
  return encode(what, TensorMapType::kByte, data, shape, TensorMapSwizzle::k128Bytes);
}

// Scales of 1x128 blocks, [k blocks][batch][rows].
TensorMap scales_map(const char* what, const void* data, int64_t k_blocks, int64_t rows, int64_t batch, int box_rows) {
  const TensorMapShape shape{.rank = 3,
                             .extent = {u64(rows), u64(batch), u64(k_blocks)},
                             .stride = {u64(4 * rows), u64(4 * rows * batch)},
                             .box = {u32(box_rows), 1, 1}};
  return encode(what, TensorMapType::kFloat32, data, shape, TensorMapSwizzle::kNone);
}

TensorMap out_map(const MatmulProblem& p, const TileConfig& config, void* data) {
  constexpr TensorMapType kTypes[] = {TensorMapType::kBfloat16, TensorMapType::kFloat16, TensorMapType::kFloat32};
  const int64_t row_bytes = p.n * size_of(p.out);
  const TensorMapShape shape{.rank = 3,
                             .extent = {u64(p.n), u64(p.m), u64(p.batch)},
                             .stride = {u64(row_bytes), u64(row_bytes * p.m)},
                             .box = {u32(config.chunk_columns()), TileConfig::kWaveM, 1}};
  return encode("the result", kTypes[static_cast<int>(p.out)], data, shape, TensorMapSwizzle::k128Bytes);
}

}  // namespace

tile::MatmulParams matmul_params(const MatmulProblem& p, const Choice& choice, const MatmulBuffers& buffers) {
  const TileConfig& config = choice.candidate.config();
  tile::MatmulParams params{};
  params.a = codes_map("a", buffers.a, p, p.m, p.a_batch, config, config.block_m);
  params.b = codes_map("b", buffers.b, p, p.n, p.b_batch, config, config.block_n);
  if (config.family == tile::Family::kTile) {
    if (!p.scales_by_copy()) {
      params.a_scales = scales_map("a.scales", buffers.a_scales, p.num_k_blocks(), p.m, p.a_batch, config.block_m);
      if (p.rows_per_b_scale == 1) {
        params.b_scales = scales_map("b.scales", buffers.b_scales, p.num_k_blocks(), p.n, p.b_batch, config.block_n);
      }
    }
    if (p.store_by_tma()) params.out = out_map(p, config, buffers.out);
  }
  params.a_scale_data = static_cast<const float*>(buffers.a_scales);
  params.b_scale_data = static_cast<const float*>(buffers.b_scales);
  params.out_data = buffers.out;
  params.m = static_cast<int>(p.m);
  params.n = static_cast<int>(p.n);
  params.num_k_blocks = static_cast<int>(p.num_k_blocks());
  params.a_batch = static_cast<int>(p.a_batch);
  params.b_batch = static_cast<int>(p.b_batch);
  params.grid = choice.grid;
  params.scales_by_copy = p.scales_by_copy();
  params.store_by_tma = p.store_by_tma();
  params.stages = config.family == tile::Family::kSwapped ? choice.stages : 0;
  params.num_steps = static_cast<int>(tile::ceil_div(p.num_k_blocks(), config.k_blocks_per_stage));
  params.split_log2 = choice.candidate.split_log2;
  params.whole_k_blocks = p.whole_k_blocks();
  params.a_scale_step = u32(p.a_batch * p.m);
  params.b_scale_rows = u32(tile::ceil_div(p.n, tile::kScaleBlock));
  return params;
}

}  // namespace jax_fp8::host
