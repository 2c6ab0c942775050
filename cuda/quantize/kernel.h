// Quantises a 128x128 tile of the input per CTA, in one or both orientations from one read.
//
//   load the tile into registers -> largest magnitudes of rows, columns or the tile -> scales -> codes
//
// A warp has 16 rows. Half a warp reads one row at a time, 8 neighbouring columns a lane: so a lane has 8 rows, every
// other one of the warp's 16, and writes its codes along columns from registers. For codes along rows the halves of the
// warp exchange: then a lane has all 16 rows of 4 columns, 16 neighbouring codes of each, and shared memory collects
// those of the 8 warps.
#pragma once

#include <cstdint>

#include "ptx/kernel.h"
#include "ptx/memory.h"
#include "ptx/shared_address.h"
#include "ptx/thread.h"
#include "quantize/block_scale.h"
#include "quantize/elements.h"
#include "quantize/quantize_params.h"
#include "tile/config.h"

namespace jax_fp8::quantize {

inline constexpr int kTile = tile::kScaleBlock;
inline constexpr int kWarps = 8;
inline constexpr int kThreads = kWarps * ptx::kWarpSize;
inline constexpr int kLanesOfRow = 16;                // half a warp
inline constexpr int kColumns = kTile / kLanesOfRow;  // of a lane, before the exchange
inline constexpr int kRows = kTile / kWarps / 2;      // the same
inline constexpr int kRowsOfWarp = 2 * kRows;         // of a lane behind it
inline constexpr int kColumnsBehind = kColumns / 2;   // the same
inline constexpr int kChunk = 16;                     // bytes: codes of one column that a warp makes

struct SharedStorage {
  uint32_t magnitudes[kWarps][ptx::kWarpSize][kColumnsBehind];  // of a lane's columns; or of a warp
  alignas(kChunk) uint8_t codes[kTile][kTile];  // along rows; chunk w of column c is at chunk w ^ (c / 8 % 8)
};

// Where a tile lies, and how much of it is inside of the array.
struct Tile {
  int64_t batch;
  int first_row, first_column, rows, columns;

  __device__ Tile(const QuantizeParams& params, int64_t index) {
    const auto across = static_cast<int>(tile::ceil_div(params.columns, kTile));
    const int of_batch = static_cast<int>(tile::ceil_div(params.rows, kTile)) * across;
    batch = index / of_batch;
    const auto rest = static_cast<int>(index - batch * of_batch);
    first_row = rest / across * kTile;
    first_column = (rest - rest / across * across) * kTile;
    rows = clip(params.rows - first_row);
    columns = clip(params.columns - first_column);
  }

 private:
  static __device__ int clip(int left) { return left < kTile ? left : kTile; }
};

// An orientation of the tile: lines, whose codes are contiguous along k.
struct Lines {
  uint8_t* codes;  // of the first line, from the tile's first k position on
  float* scales;   // of the first line in the tile's k block; of the tile, if blocks are square
  int64_t pitch;   // from line to line, codes
  int lines, ks;   // inside of the array

  static __device__ Lines of(const Orientation& out, const QuantizeParams& params, const Tile& tile, int first_line,
                             int first_k, int lines, int ks, int tile_lines, int tile_ks) {
    const int64_t k_block = first_k / kTile;
    const int64_t scale =
        params.square_blocks
            ? (tile.batch * tile::ceil_div(lines, kTile) + first_line / kTile) * tile::ceil_div(ks, kTile) + k_block
            : (k_block * params.batch + tile.batch) * lines + first_line;
    return {out.codes + (tile.batch * lines + first_line) * ks + first_k, out.scales + scale, ks, tile_lines, tile_ks};
  }
};

// kCount neighbouring codes of a line from position k on; `aligned`: lines start at multiples of kCount bytes.
template <int kCount>
__device__ __forceinline__ void write_codes(const Lines& out, int line, int k, bool aligned,
                                            const uint32_t (&codes)[kCount / 4]) {
  if (line >= out.lines || k >= out.ks) return;
  uint8_t* place = out.codes + line * out.pitch + k;
  if (aligned) {
    ptx::store_words(place, codes);
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (k + i < out.ks) place[i] = static_cast<uint8_t>(codes[i / 4] >> 8 * (i % 4));
    }
  }
}

// This lane's part of the tile.
template <InType kIn>
class LaneTile {
  using Of = Elements<kIn>;
  static constexpr int kWords = kColumns / Of::kPerWord, kWordsBehind = kWords / 2;

 public:
  // Zeros beyond the edge: no effect on a magnitude.
  __device__ LaneTile(const QuantizeParams& params, const Tile& tile)
      : half_(ptx::lane_index() / kLanesOfRow),
        row_(ptx::warp_index() * kRowsOfWarp + half_),
        column_(ptx::lane_index() % kLanesOfRow * kColumns) {
    const bool aligned = params.columns % kColumns == 0;
    const int64_t first = (tile.batch * params.rows + tile.first_row) * params.columns + tile.first_column + column_;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int64_t at = first + static_cast<int64_t>(row(i)) * params.columns;
      const bool inside = row(i) < tile.rows && column_ < tile.columns;
      if (aligned) {
        ptx::load_words_if(inside, static_cast<const uint8_t*>(params.x) + at * (4 / Of::kPerWord), words_[i]);
      } else {
        load_elements(params.x, at, inside ? tile.columns - column_ : 0, words_[i]);
      }
    }
  }

  __device__ int row(int i) const { return row_ + 2 * i; }
  __device__ int column() const { return column_; }

  // The largest magnitude of row(i), in all lanes of the half.
  __device__ uint32_t row_magnitude(int i) const {
    uint32_t largest = Of::magnitudes(words_[i][0]);
#pragma unroll
    for (int j = 1; j < kWords; ++j) largest = Of::larger(largest, Of::magnitudes(words_[i][j]));
    return ptx::half_warp_max(float_magnitude(largest));
  }

  // Of this lane's whole part.
  __device__ uint32_t magnitude() const {
    uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int j = 0; j < kWords; ++j) largest = Of::larger(largest, Of::magnitudes(words_[i][j]));
    }
    return float_magnitude(largest);
  }

  // The codes of row(i).
  __device__ void encode_row(int i, const Encoder& encoder, uint32_t (&codes)[kColumns / 4]) const {
#pragma unroll
    for (int j = 0; j < kColumns; j += 4) {
      codes[j / 4] = encoder.encode(value(i, j), value(i, j + 1)) | encoder.encode(value(i, j + 2), value(i, j + 3))
                                                                        << 16;
    }
  }

  // The other half's rows of four columns for this half's rows of the other four. Afterwards this lane has
  // kColumnsBehind columns from column_behind() on of all rows of the warp.
  __device__ void exchange() {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int j = 0; j < kWordsBehind; ++j) {
        const uint32_t first = words_[i][j], second = words_[i][kWordsBehind + j];
        const uint32_t other = ptx::exchange_halves(half_ == 0 ? second : first);
        words_[i][j] = half_ == 0 ? first : other;  // of the even row
        words_[i][kWordsBehind + j] = half_ == 0 ? other : second;
      }
    }
  }
  __device__ int column_behind() const { return column_ + half_ * kColumnsBehind; }

  // The largest magnitudes of this lane's columns among the warp's rows.
  __device__ void column_magnitudes(uint32_t (&largest)[kColumnsBehind]) const {
    uint32_t words[kWordsBehind] = {};
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int j = 0; j < kWords; ++j) {
        words[j % kWordsBehind] = Of::larger(words[j % kWordsBehind], Of::magnitudes(words_[i][j]));
      }
    }
#pragma unroll
    for (int c = 0; c < kColumnsBehind; ++c)
      largest[c] = Of::float_magnitude(words[c / Of::kPerWord], c % Of::kPerWord);
  }

  // The codes of column c of this lane, rows of the warp in order.
  __device__ void encode_column(int c, const Encoder& encoder, uint32_t (&codes)[kRowsOfWarp / 4]) const {
#pragma unroll
    for (int i = 0; i < kRows; i += 2) {
      codes[i / 2] = encoder.encode(even(i, c), odd(i, c)) | encoder.encode(even(i + 1, c), odd(i + 1, c)) << 16;
    }
  }

 private:
  static __device__ uint32_t float_magnitude(uint32_t magnitudes) {
    uint32_t largest = Of::float_magnitude(magnitudes, 0);
    if constexpr (Of::kPerWord == 2) {
      const uint32_t second = Of::float_magnitude(magnitudes, 1);
      largest = largest > second ? largest : second;
    }
    return largest;
  }

  static __device__ void load_elements(const void* x, int64_t at, int valid, uint32_t (&words)[kWords]) {
#pragma unroll
    for (int j = 0; j < kWords; ++j) {
      words[j] = 0;
#pragma unroll
      for (int e = 0; e < Of::kPerWord; ++e) {
        const int k = j * Of::kPerWord + e;
        if (k >= valid) continue;
        if constexpr (Of::kPerWord == 1) {
          words[j] = static_cast<const uint32_t*>(x)[at + k];
        } else {
          words[j] |= static_cast<uint32_t>(static_cast<const uint16_t*>(x)[at + k]) << 16 * e;
        }
      }
    }
  }

  __device__ float value(int i, int column) const {
    return Of::value(words_[i][column / Of::kPerWord], column % Of::kPerWord);
  }
  __device__ float even(int i, int c) const { return Of::value(words_[i][c / Of::kPerWord], c % Of::kPerWord); }
  __device__ float odd(int i, int c) const {
    return Of::value(words_[i][kWordsBehind + c / Of::kPerWord], c % Of::kPerWord);
  }

  int half_, row_, column_;
  uint32_t words_[kRows][kWords];  // behind the exchange: even rows, then odd ones
};

// Codes and scales along columns: from registers, row by row.
template <InType kIn>
__device__ void write_along_columns(const QuantizeParams& params, const Lines& out, const LaneTile<kIn>& mine,
                                    uint32_t tile_magnitude) {
  const bool aligned = params.columns % kColumns == 0;
  float row_scale = 0.f;  // of row(lane % kLanesOfRow)
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const float scale = block_scale(params.square_blocks ? tile_magnitude : mine.row_magnitude(i), params.power_of_two);
    uint32_t codes[kColumns / 4];
    mine.encode_row(i, Encoder(scale), codes);
    write_codes<kColumns>(out, mine.row(i), mine.column(), aligned, codes);
    if (ptx::lane_index() % kLanesOfRow == i) row_scale = scale;
  }
  const int i = ptx::lane_index() % kLanesOfRow;
  if (params.square_blocks) {
    if (ptx::thread_index() == 0) *out.scales = row_scale;
  } else if (i < kRows && mine.row(i) < out.lines) {
    out.scales[mine.row(i)] = row_scale;
  }
}

// Codes and scales along rows, behind the exchange: column by column, collected in shared memory.
template <InType kIn>
__device__ void write_along_rows(const QuantizeParams& params, const Lines& out, const LaneTile<kIn>& mine,
                                 const uint32_t (&magnitudes)[kColumnsBehind], SharedStorage& shared) {
  const int warp = ptx::warp_index(), lane = ptx::lane_index();
#pragma unroll
  for (int c = 0; c < kColumnsBehind; ++c) {
    const float scale = block_scale(magnitudes[c], params.power_of_two);
    const int column = mine.column_behind() + c;
    uint32_t codes[kRowsOfWarp / 4];
    mine.encode_column(c, Encoder(scale), codes);
    ptx::store_words(&shared.codes[column][(warp ^ column / kColumns % kWarps) * kChunk], codes);
    if (params.square_blocks) {
      if (ptx::thread_index() == 0 && c == 0) *out.scales = scale;
    } else if (warp == 0 && column < out.lines) {
      out.scales[column] = scale;
    }
  }
  ptx::block_sync();
  const bool aligned = params.rows % kChunk == 0;
  constexpr int kChunks = kTile / kChunk, kLinesAtOnce = kThreads / kChunks;
#pragma unroll
  for (int first = 0; first < kTile; first += kLinesAtOnce) {
    const int column = first + ptx::thread_index() / kChunks, chunk = lane % kChunks;
    uint32_t codes[kChunk / 4];
    ptx::load_words(&shared.codes[column][(chunk ^ column / kColumns % kWarps) * kChunk], codes);
    write_codes<kChunk>(out, column, chunk * kChunk, aligned, codes);
  }
}

template <InType kIn>
__global__ void __launch_bounds__(kThreads, 2) fp8_quantize(const __grid_constant__ QuantizeParams params) {
  ptx::let_next_kernel_start();
  ptx::await_previous_kernels();
  auto& shared = *static_cast<SharedStorage*>(ptx::dynamic_shared_memory());
  const Tile tile(params, ptx::block_index());
  const int warp = ptx::warp_index(), lane = ptx::lane_index();
  LaneTile<kIn> mine(params, tile);

  uint32_t tile_magnitude = 0;
  if (params.square_blocks) {
    shared.magnitudes[warp][0][0] = ptx::warp_max(mine.magnitude());
    ptx::block_sync();
    for (int w = 0; w < kWarps; ++w) {
      const uint32_t other = shared.magnitudes[w][0][0];
      tile_magnitude = tile_magnitude > other ? tile_magnitude : other;
    }
  }
  if (params.along_columns.codes != nullptr) {
    const Lines out = Lines::of(params.along_columns, params, tile, tile.first_row, tile.first_column, params.rows,
                                params.columns, tile.rows, tile.columns);
    write_along_columns(params, out, mine, tile_magnitude);
  }
  if (params.along_rows.codes != nullptr) {
    const Lines out = Lines::of(params.along_rows, params, tile, tile.first_column, tile.first_row, params.columns,
                                params.rows, tile.columns, tile.rows);
    mine.exchange();
    uint32_t magnitudes[kColumnsBehind];
    if (params.square_blocks) {
      for (uint32_t& magnitude : magnitudes) magnitude = tile_magnitude;
    } else {
      mine.column_magnitudes(shared.magnitudes[warp][lane]);
      ptx::block_sync();
#pragma unroll
      for (int c = 0; c < kColumnsBehind; ++c) {
        magnitudes[c] = 0;
        for (int w = 0; w < kWarps; ++w) {
          const uint32_t other = shared.magnitudes[w][lane][c];
          magnitudes[c] = magnitudes[c] > other ? magnitudes[c] : other;
        }
      }
    }
    write_along_rows(params, out, mine, magnitudes, shared);
  }
}

}  // namespace jax_fp8::quantize
