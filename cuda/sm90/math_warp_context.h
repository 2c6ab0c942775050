// A math warpgroup: multiplies on the tensor cores, promotes on the CUDA cores, writes its half of the output tile.
//
// For each k block: acquire the stage; scales to registers; for each wave a fresh partial, waited for; release the
// stage as soon as the last wave has read it; promote while the load warp refills.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "pipeline/input_tile_pipeline.h"
#include "pipeline/output_tile_pipeline.h"
#include "ptx/memory.h"
#include "ptx/thread.h"
#include "ptx/wgmma.h"
#include "sm90/multiply.h"
#include "sm90/store.h"
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
      Accumulators accum;
      accumulate_at_offset(accum, tile, std::make_index_sequence<C.b_offsets()>());
      params_.store_by_tma ? store_by_tma(accum, tile) : store_elements(accum, tile);
    }
    outputs_.drain();
  }

 private:
  using Accumulators = float[C.waves()][C.wave_registers()];
  using Stage = pipeline::InputConsumerStage<C>;
  static constexpr bool kSquareBlocks = C.rows_per_b_scale == tile::kScaleBlock;  // of b

  // Where the blocks of b begin in the tile must be known to the compiler: promote indexes registers with it.
  template <std::size_t... kCase>
  __device__ void accumulate_at_offset(Accumulators& accum, const tile::WorkTile& tile, std::index_sequence<kCase...>) {
    const int offset = tile.n * C.block_n % tile::kScaleBlock;
    ((sizeof...(kCase) == 1 || offset == static_cast<int>(kCase) * C.b_offset_step()
          ? accumulate<static_cast<int>(kCase) * C.b_offset_step()>(accum, tile)
          : void()),
     ...);
  }

  template <int kOffset>
  __device__ void accumulate(Accumulators& accum, const tile::WorkTile& tile) {
    BScales<C.b_blocks(kOffset)> b_scales(params_, tile);
    AScales a_scales;
    if constexpr (C.early_wait) a_scales.read(inputs_.await(), *this);
    k_block<true, kOffset>(accum, a_scales, b_scales);
    int left = params_.num_k_blocks - 1;
    for (; left >= C.unroll; left -= C.unroll) {  // straight lines: a test between k blocks would hold up the next wait
#pragma unroll
      for (int i = 0; i < C.unroll; ++i) k_block<false, kOffset>(accum, a_scales, b_scales);
    }
    if constexpr (C.unroll > 1) {
#pragma unroll 1
      for (; left > 0; --left) k_block<false, kOffset>(accum, a_scales, b_scales);
    }
  }

  // B scales of the 128x128 blocks that the tile touches, read one k block ahead of their use. 1x128 blocks have theirs
  // in the stage.
  template <int kBlocks>
  class BScales {
   public:
    __device__ BScales(const tile::MatmulParams& params, const tile::WorkTile& tile) {
      if constexpr (kSquareBlocks) {
#pragma unroll
        for (int i = 0; i < kBlocks; ++i) {
          next_[i] = params.b_block_scales(tile.batch, tile.n * C.block_n + i * tile::kScaleBlock);
          value_[i] = ptx::load_global(next_[i]);
        }
        left_ = params.num_k_blocks - 1;
      }
    }

    // The scales of this k block; loads those of the next one.
    __device__ void take(float (&scales)[kBlocks]) {
      if constexpr (kSquareBlocks) {
        const int step = left_ > 0 ? 1 : 0;
        --left_;
#pragma unroll
        for (int i = 0; i < kBlocks; ++i) {
          scales[i] = value_[i];
          next_[i] += step;
          value_[i] = ptx::load_global(next_[i]);
        }
      }
    }

    // Whether there is another k block behind the one that was taken last.
    __device__ bool more() const { return left_ >= 0; }

   private:
    const float* next_[kBlocks];
    float value_[kBlocks];
    int left_;
  };

  // Of this thread's two rows, for one k block.
  struct AScales {
    float value[2];

    __device__ void read(const pipeline::BlockwiseFp8TilePayload<C>& payload, const MathWarpContext& context) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        value[half] = ptx::load_shared(&payload.a_scales[0][context.first_row_ + context.fragment_.row(half)]);
      }
    }
  };

  // With early_wait the stage has been waited for, and its A scales read, while the k block before was multiplied.
  template <bool kFirst, int kOffset, int kBlocks>
  __device__ __forceinline__ void k_block(Accumulators& accum, AScales& a_scales, BScales<kBlocks>& b_scales) {
    auto stage = C.early_wait ? inputs_.take() : inputs_.acquire();
    if constexpr (!C.early_wait) a_scales.read(stage.payload, *this);
    float b_scale[kBlocks];
#pragma unroll
    for (int wave = 0; wave < C.waves(); ++wave) {
      float partial[C.wave_registers()];
      multiply_k_block(partial, stage.payload.a[0][first_row_], stage.payload.b[0][wave * C.wave_n]);
      if (wave == 0) b_scales.take(b_scale);
      const auto scales = wave_scales(stage, a_scales.value, b_scale, kOffset + wave * C.wave_n);
      if constexpr (C.early_wait) {
        if (b_scales.more()) a_scales.read(inputs_.await(), *this);
      }
      ptx::wgmma_wait(partial);
      if (wave == C.waves() - 1) stage.release();  // before promote: the load warp refills the stage meanwhile
      tile::promote<kFirst>(accum[wave], partial, scales);
    }
  }

  template <int kBlocks>
  __device__ auto wave_scales(const Stage& stage, const float (&a_scales)[2], const float (&b_scale)[kBlocks],
                              int first_column) {
    if constexpr (kSquareBlocks) {
      tile::RowBlockScales<kBlocks> scales{{}, first_column};
#pragma unroll
      for (int i = 0; i < kBlocks; ++i) {
        scales.factor[i][0] = a_scales[0] * b_scale[i];
        scales.factor[i][1] = a_scales[1] * b_scale[i];
      }
      return scales;
    } else {
      tile::RowColumnScales<C.wave_registers()> scales{{a_scales[0], a_scales[1]}, {}};
#pragma unroll
      for (int i = 0; i < C.wave_registers(); i += 4) {
        ptx::load_shared(&stage.payload.b_scales[0][fragment_.column(i)], scales.column[i / 2],
                         scales.column[i / 2 + 1]);
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
        if (first + i >= C.chunks()) break;
        const int in_tile = C.chunk_start(first + i);
        fill_chunk(&stage.buffer.chunk[i][0][0], &accum[in_tile / C.wave_n][in_tile % C.wave_n / 2]);
      }
      stage.commit(params_.out, params_.n, column, first, row, tile.batch);
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
        ptx::store_matrices(chunk + offset, pack<C.out>(values[i], values[i + 1]),
                            pack<C.out>(values[i + 2], values[i + 3]), pack<C.out>(values[i + 4], values[i + 5]),
                            pack<C.out>(values[i + 6], values[i + 7]));
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
        for (int i = 2 * half; i < C.wave_registers(); i += 4) {
          const int column = first_column + wave * C.wave_n + fragment_.column(i);
          if (column < params_.n) store_element<C.out>(params_, start + column, accum[wave][i]);
          if (column + 1 < params_.n) store_element<C.out>(params_, start + column + 1, accum[wave][i + 1]);
        }
      }
    }
  }

  const tile::MatmulParams& params_;
  pipeline::InputConsumer<C> inputs_;
  pipeline::OutputTilePipeline<C> outputs_;
  int first_row_;  // of this warpgroup in the tile
  tile::Fragment fragment_;
};

}  // namespace jax_fp8::sm90
