// Where the cost model errs: the fastest configuration of these shapes, within noise (3 %), as measured on an H200 with
// a cold L2 and bfloat16 results, where the model's choice was slower by 2 % or more (docs/engineering_log.md).
// Measured at 1, 16, 32, 64, 96 and 128 rows; each line stands for the rows up to the next point as well.
#pragma once

#include <cstdint>

namespace jax_fp8::host {

struct Measured {
  int64_t m_from, m_to, n, k;
  int block_m, block_n, k_blocks_per_stage, split_log2;
};

inline constexpr int kMeasuredSms = 132;  // also an H100 SXM's, which was not measured
inline constexpr Measured kMeasured[] = {
    {17, 32, 32768, 512, 32, 64, 2, 0}, {17, 64, 4096, 7168, 32, 64, 2, 0},    {33, 64, 2112, 7168, 64, 128, 2, 2},
    {65, 96, 2112, 7168, 32, 64, 2, 0}, {65, 128, 32768, 512, 128, 128, 1, 0},
};

}  // namespace jax_fp8::host
