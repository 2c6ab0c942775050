// Where the cost model errs: shapes whose fastest configuration was measured on an H200 to be another one
// (`python -m jax_fp8.bench --all-configs`, docs/engineering_log.md).
#pragma once

#include <cstdint>

namespace jax_fp8::host {

struct Measured {
  int64_t m_from, m_to, n, k;
  int block_m, block_n, split_log2;
};

inline constexpr int kMeasuredSms = 132;
inline constexpr Measured kMeasured[] = {
    {1, 0, 0, 0, 0, 0, 0},
};

}  // namespace jax_fp8::host
