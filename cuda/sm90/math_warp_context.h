// A math warpgroup: multiplies on the tensor cores, promotes on the CUDA cores, writes its half of the output tile.
//
// For each k block: acquire the stage; scales to registers; for each wave a fresh partial, waited for; release the
// stage as soon as the last wave has read it; promote while the load warp refills.
#pragma once

#include "pipeline/input_tile_pipeline.h"
#include "pipeline/output_tile_pipeline.h"
#include "ptx/memory.h"
#include "ptx/thread.h"
#include "ptx/wgmma.h"
#include "tile/fragment.h"
#include "tile/matmul_params.h"
#include "tile/promote.h"
#include "tile/scheduler.h"
#include "tile/swizzle.h"

namespace jax_fp8::sm90 {

template <tile::TileConfig C>
class MathWarpContext {
 public:
  __device__ MathWarpContext(const tile::MatmulParams& params, pipeline::InputRing<C>& ring,
                             pipeline::OutputBuffer<C>& buffer, int warpgroup)
      : params_(params),
        inputs_(ring),
        outputs_(buffer, warpgroup),
        first_row_(warpgroup * C.kWaveM),
        fragment_{ptx::warp_index() % 4, ptx::lane_index()} {}

  // All threads of one warpgroup.
  __device__ void run(tile::TileScheduler schedule) {
    for (tile::WorkTile tile; schedule.next(tile);) {
      float accum[C.waves()][C.kWaveRegisters];
      BScales b_scales(params_, tile);
      k_block<true>(accum, b_scales);
#pragma unroll C.unroll
      for (int kb = 1; kb < params_.num_k_blocks; ++kb) k_block<false>(accum, b_scales);
      params_.store_by_tma ? store_by_tma(accum, tile) : store_elements(accum, tile);
    }
    outputs_.drain();
  }

 private:
  using Accumulators = float[C.waves()][C.kWaveRegisters];
  using Stage = pipeline::InputConsumerStage<C>;

  // B scales of 128x128 blocks, one a wave, read one k block ahead of their use. 1x128 blocks have theirs in the stage.
  class BScales {
   public:
    __device__ BScales(const tile::MatmulParams& params, const tile::WorkTile& tile) {
      if constexpr (C.rows_per_b_scale == tile::kScaleBlock) {
        const int blocks = static_cast<int>(tile::ceil_div(params.n, tile::kScaleBlock));
#pragma unroll
        for (int wave = 0; wave < C.waves(); ++wave) {
          const int wanted = tile.n * C.waves() + wave;
          const int block = wanted < blocks ? wanted : blocks - 1;  // a wave wholly outside of the array is not stored
          const int64_t row = static_cast<int64_t>(params.b_index(tile.batch)) * blocks + block;
          next_[wave] = params.b_scale_data + row * params.num_k_blocks;
          value_[wave] = ptx::load_readonly(next_[wave]);
        }
        left_ = params.num_k_blocks - 1;
      }
    }

    // The scales of this k block; loads those of the next one.
    __device__ void take(float (&scales)[C.waves()]) {
      if constexpr (C.rows_per_b_scale == tile::kScaleBlock) {
        const int step = left_ > 0 ? 1 : 0;
        --left_;
#pragma unroll
        for (int wave = 0; wave < C.waves(); ++wave) {
          scales[wave] = value_[wave];
          next_[wave] += step;
          value_[wave] = ptx::load_readonly(next_[wave]);
        }
      }
    }

   private:
    const float* next_[C.waves()];
    float value_[C.waves()];
    int left_;
  };

  template <bool kFirst>
  __device__ void k_block(Accumulators& accum, BScales& b_scales) {
    auto stage = inputs_.acquire();
    const float a_scales[2] = {ptx::load_shared(&stage.payload.a_scales[first_row_ + fragment_.row(0)]),
                               ptx::load_shared(&stage.payload.a_scales[first_row_ + fragment_.row(1)])};
    float b_scale[C.waves()];
#pragma unroll
    for (int wave = 0; wave < C.waves(); ++wave) {
      float partial[C.kWaveRegisters];
      multiply(partial, stage, wave);
      if (wave == 0) b_scales.take(b_scale);
      const auto scales = wave_scales(stage, a_scales, b_scale[wave]);
      ptx::wgmma_wait(partial);
      if (wave == C.waves() - 1) stage.release();  // before promote: the load warp refills the stage meanwhile
      tile::promote<kFirst>(accum[wave], partial, scales);
    }
  }

  // Starts partial = a * b^T over this k block.
  __device__ void multiply(float (&partial)[C.kWaveRegisters], const Stage& stage, int wave) {
    const uint64_t a = ptx::wgmma_descriptor(stage.payload.a[first_row_]);
    const uint64_t b = ptx::wgmma_descriptor(stage.payload.b[wave * C.kWaveN]);
    ptx::wgmma_fence();
    ptx::wgmma_m64n128k32<false>(partial, a, b);
#pragma unroll
    for (int k = 1; k < tile::kBlockK / ptx::kWgmmaK; ++k) {
      ptx::wgmma_m64n128k32<true>(partial, a + k * ptx::kDescriptorStepK, b + k * ptx::kDescriptorStepK);
    }
    ptx::wgmma_commit();
  }

  __device__ auto wave_scales(const Stage& stage, const float (&a_scales)[2], float b_scale) {
    if constexpr (C.rows_per_b_scale == tile::kScaleBlock) {
      return tile::RowScales{{a_scales[0] * b_scale, a_scales[1] * b_scale}};
    } else {
      tile::RowColumnScales<C.kWaveRegisters> scales{{a_scales[0], a_scales[1]}, {}};
#pragma unroll
      for (int i = 0; i < C.kWaveRegisters; i += 4) {
        ptx::load_shared(&stage.payload.b_scales[fragment_.column(i)], scales.column[i / 2], scales.column[i / 2 + 1]);
      }
      return scales;
    }
  }

  __device__ void store_by_tma(const Accumulators& accum, const tile::WorkTile& tile) {
    const int row = tile.m * C.block_m + first_row_, column = tile.n * C.block_n;
#pragma unroll
    for (int first = 0; first < C.chunks(); first += C.buffered_chunks()) {
      auto stage = outputs_.acquire();
#pragma unroll
      for (int i = 0; i < C.buffered_chunks(); ++i) {
        const int in_tile = (first + i) * C.chunk_columns();
        const float* values = &accum[in_tile / C.kWaveN][in_tile % C.kWaveN / 2];
        fill_chunk(&stage.buffer.chunk[i][0][0], values);
      }
      stage.commit(params_.out, params_.n, column + first * C.chunk_columns(), row, tile.batch);
    }
  }

  // The fragment of one chunk (64 rows, 128 bytes): four registers for every eight columns.
  __device__ void fill_chunk(uint8_t* chunk, const float* values) {
    if constexpr (C.out == tile::OutType::kFloat32) {
#pragma unroll
      for (int i = 0; i < C.chunk_columns() / 2; i += 2) {
        const int offset = tile::swizzle_128(fragment_.row(tile::Fragment::half(i)), 4 * fragment_.column(i));
        ptx::store_shared(chunk + offset, values[i], values[i + 1]);
      }
    } else {
      const int row =
          16 * fragment_.warp + fragment_.lane % 16;  // stmatrix: rows 0-7, 8-15 of columns 0-7, then of 8-15
#pragma unroll
      for (int i = 0; i < C.chunk_columns() / 2; i += 8) {
        const int offset = tile::swizzle_128(row, 4 * i + 16 * (fragment_.lane / 16));
        ptx::store_matrices(chunk + offset, pack(values[i], values[i + 1]), pack(values[i + 2], values[i + 3]),
                            pack(values[i + 4], values[i + 5]), pack(values[i + 6], values[i + 7]));
      }
    }
  }

  // Rows of the output aren't multiples of 16 bytes: every thread writes its own elements.
  __device__ void store_elements(const Accumulators& accum, const tile::WorkTile& tile) {
    const int first_column = tile.n * C.block_n;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = tile.m * C.block_m + first_row_ + fragment_.row(half);
      if (row >= params_.m) continue;
      const int64_t start = (static_cast<int64_t>(tile.batch) * params_.m + row) * params_.n;
#pragma unroll
      for (int wave = 0; wave < C.waves(); ++wave) {
#pragma unroll
        for (int i = 2 * half; i < C.kWaveRegisters; i += 4) {
          store_element(start, first_column + wave * C.kWaveN + fragment_.column(i), accum[wave][i]);
          store_element(start, first_column + wave * C.kWaveN + fragment_.column(i + 1), accum[wave][i + 1]);
        }
      }
    }
  }

  __device__ void store_element(int64_t start, int column, float value) {
    if (column >= params_.n) return;
    if constexpr (C.out == tile::OutType::kFloat32) {
      static_cast<float*>(params_.out_data)[start + column] = value;
    } else {
      static_cast<uint16_t*>(params_.out_data)[start + column] = static_cast<uint16_t>(pack(value, 0.f));
    }
  }

  static __device__ uint32_t pack(float low, float high) {
    return C.out == tile::OutType::kBfloat16 ? ptx::pack_bfloat16(low, high) : ptx::pack_float16(low, high);
  }

  const tile::MatmulParams& params_;
  pipeline::InputConsumer<C> inputs_;
  pipeline::OutputTilePipeline<C> outputs_;
  int first_row_;  // of this warpgroup in the tile
  tile::Fragment fragment_;
};

}  // namespace jax_fp8::sm90
