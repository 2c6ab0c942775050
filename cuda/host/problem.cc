#include "host/problem.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "host/require.h"

namespace jax_fp8::host {
namespace {

std::string text(Dims dims) {
  std::string s = "(";
  for (size_t i = 0; i < dims.size(); ++i) s += (i ? ", " : "") + std::to_string(dims[i]);
  return s + ")";
}

int64_t product(Dims dims) {
  int64_t n = 1;
  for (const int64_t extent : dims) n *= extent;
  return n;
}

std::vector<int64_t> scales_shape(Dims codes, int64_t rows_per_scale) {
  std::vector<int64_t> shape(codes.begin(), codes.end());
  shape.back() = tile::ceil_div(shape.back(), tile::kScaleBlock);
  auto& rows = shape[shape.size() - 2];
  rows = tile::ceil_div(rows, rows_per_scale);
  return shape;
}

void check_scales(const char* name, Dims codes, Dims scales, int64_t rows_per_scale) {
  const auto expected = scales_shape(codes, rows_per_scale);
  require(std::ranges::equal(scales, expected), [&] {
    return std::string("blockwise_matmul: ") + name + ".scales has shape " + text(scales) + "; " + name + " " +
           text(codes) + " in " + std::to_string(rows_per_scale) + "x128 blocks needs " + text(expected);
  });
}

}  // namespace

std::string MatmulProblem::describe() const {
  return "batch " + std::to_string(batch) + ", m " + std::to_string(m) + ", n " + std::to_string(n) + ", k " +
         std::to_string(k) + ", b in " + std::to_string(rows_per_b_scale) + "x128 blocks";
}

MatmulProblem matmul_problem(Dims a, Dims a_scales, Dims b, Dims b_scales, Dims out, int64_t rows_per_b_scale,
                             tile::OutType out_type) {
  require(a.size() >= 2 && b.size() >= 2,
          [&] { return "blockwise_matmul: operands need at least 2 axes, got a " + text(a) + ", b " + text(b); });
  require(rows_per_b_scale == 1 || rows_per_b_scale == tile::kScaleBlock, [&] {
    return "blockwise_matmul: rows_per_b_scale must be 1 or 128, got " + std::to_string(rows_per_b_scale);
  });
  const Dims a_lead = a.first(a.size() - 2), b_lead = b.first(b.size() - 2);
  require(a_lead.empty() || b_lead.empty() || std::ranges::equal(a_lead, b_lead),
          [&] { return "blockwise_matmul: leading axes of a " + text(a) + " and b " + text(b) + " must be equal"; });
  require(a.back() == b.back(),
          [&] { return "blockwise_matmul: a " + text(a) + " and b " + text(b) + " must have the same k"; });
  check_scales("a", a, a_scales, 1);
  check_scales("b", b, b_scales, rows_per_b_scale);

  const int64_t rows = a[a.size() - 2], n = b[b.size() - 2];
  const Dims lead = a_lead.empty() ? b_lead : a_lead;
  std::vector<int64_t> result(lead.begin(), lead.end());
  result.insert(result.end(), {rows, n});
  require(std::ranges::equal(out, result),
          [&] { return "blockwise_matmul: the result has shape " + text(out) + ", not " + text(result); });

  const int64_t a_batch = product(a_lead), b_batch = product(b_lead);
  const bool folds = b_lead.empty();
  const MatmulProblem problem{.batch = folds ? 1 : b_batch,
                              .a_batch = folds ? 1 : a_batch,
                              .b_batch = b_batch,
                              .m = folds ? a_batch * rows : rows,
                              .n = n,
                              .k = a.back(),
                              .rows_per_b_scale = static_cast<int>(rows_per_b_scale),
                              .out = out_type};
  const int64_t b_blocks = b_batch * tile::ceil_div(n, tile::kScaleBlock) * problem.num_k_blocks();
  require(rows_per_b_scale == 1 || b_blocks <= std::numeric_limits<uint32_t>::max(),
          [&] { return "blockwise_matmul: b must have less than 2^32 blocks, got " + problem.describe(); });
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max() - 256;  // a tile may reach beyond the edge
  require(std::max({problem.m, problem.n, problem.k, problem.batch}) <= kMax,
          [&] { return "blockwise_matmul: every extent must stay below 2^31 - 256, got " + problem.describe(); });
  return problem;
}

}  // namespace jax_fp8::host
