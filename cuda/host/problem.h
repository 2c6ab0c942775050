// A product or a quantisation as the host sees it: extents, validated once. Pure C++.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tile/config.h"

namespace jax_fp8::host {

// out (batch, m, n) = a (a_batch, m, k) times b (b_batch, n, k)^T; an operand's batch is the product's, or 1.
struct MatmulProblem {
  int64_t batch, a_batch, b_batch;
  int64_t m, n, k;
  int rows_per_b_scale;
  tile::OutType out;

  bool operator==(const MatmulProblem&) const = default;
  int64_t num_k_blocks() const { return tile::ceil_div(k, tile::kScaleBlock); }
  bool is_empty() const { return batch == 0 || m == 0 || n == 0; }
  // TMA needs 16-byte strides. Rows of codes that aren't are copied into scratch; scales come by cp.async; results are
  // stored element by element.
  int64_t padded_k() const { return tile::ceil_div(k, 16) * 16; }
  bool pads_k() const { return k % 16 != 0; }
  bool whole_k_blocks() const { return k % tile::kBlockK == 0; }
  bool scales_by_copy() const { return m % 4 != 0 || (rows_per_b_scale == 1 && n % 4 != 0); }
  bool store_by_tma() const { return n * size_of(out) % 16 == 0; }
  std::string describe() const;
};

using Dims = std::span<const int64_t>;

// From the shapes of the operands (codes and scales) and the result. A b without leading axes serves all of a's: they
// fold into m. Throws std::invalid_argument, naming the operand, the rule and what came.
MatmulProblem matmul_problem(Dims a, Dims a_scales, Dims b, Dims b_scales, Dims out, int64_t rows_per_b_scale,
                             tile::OutType out_type);

}  // namespace jax_fp8::host
