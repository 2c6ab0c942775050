#include "host/select.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <stdexcept>

#include "tile/sm90_configs.h"

namespace jax_fp8::host {
namespace {

using tile::TileConfig;

// Cost model, one CTA an SM. A k block of a tile takes its multiply-adds at the tensor rate times the share of it that
// this tile was measured to reach; a tile boundary (drain, store, first data) costs a fixed number of clocks.
constexpr double kMultiplyAddsPerClock = 4096;  // e4m3, one SM
constexpr double kClockMhz = 1600;              // under load, H200
constexpr double kBoundaryClocks = 2500;

double tensor_use(const TileConfig& config) {
  if (config.rows_per_b_scale == 1) return 0.55;  // one multiplication more an element: promotion sets the pace
  return config.block_n == 256 ? 0.88 : 0.64;
}

// Tiles along m that run together: 8, or all of up to 4096 rows where k is short and output traffic counts (measured).
int raster_group(const MatmulProblem& problem, int64_t tiles_m) {
  const int64_t wanted = problem.k <= 1536 && problem.m <= 4096 ? 32 : 8;
  return static_cast<int>(std::max<int64_t>(1, std::min(tiles_m, wanted)));
}

bool runs(const TileConfig& config, const MatmulProblem& problem) {
  return config.out == problem.out && config.rows_per_b_scale == problem.rows_per_b_scale;
}

constexpr double kMaxTiles = std::numeric_limits<int32_t>::max() / 2;  // the persistent loop adds num_ctas to an index

double num_tiles(const TileConfig& config, const MatmulProblem& problem) {
  const auto along = [](int64_t extent, int block) { return static_cast<double>(tile::ceil_div(extent, block)); };
  return along(problem.m, config.block_m) * along(problem.n, config.block_n) * static_cast<double>(problem.batch);
}

Choice evaluate(int index, const MatmulProblem& problem, int num_sms) {
  const TileConfig& config = tile::kSm90Configs[index];
  const int64_t tiles_m = tile::ceil_div(problem.m, config.block_m),
                tiles_n = tile::ceil_div(problem.n, config.block_n);
  const double tiles = num_tiles(config, problem);
  Choice choice{.index = index,
                .config = config,
                .grid = {static_cast<int>(tiles_m), static_cast<int>(tiles_n), static_cast<int>(problem.batch),
                         raster_group(problem, tiles_m)},
                .num_ctas = static_cast<int>(std::min<double>(tiles, num_sms)),
                .waves = tiles / num_sms,
                .cost_us = 0,
                .reason = {}};
  const double rounds = static_cast<double>(tile::ceil_div(static_cast<int64_t>(tiles), num_sms));
  const double k_block_clocks =
      config.block_m * config.block_n * tile::kBlockK / kMultiplyAddsPerClock / tensor_use(config);
  const double clocks = rounds * (static_cast<double>(problem.num_k_blocks()) * k_block_clocks + kBoundaryClocks);
  choice.cost_us = clocks / kClockMhz;
  return choice;
}

}  // namespace

std::string name(const TileConfig& config) {
  return std::to_string(config.block_m) + "x" + std::to_string(config.block_n);
}

std::vector<std::string> candidates(const MatmulProblem& problem) {
  std::vector<std::string> names;
  for (const TileConfig& config : tile::kSm90Configs) {
    if (runs(config, problem)) names.push_back(name(config));
  }
  return names;
}

Choice select_config(const MatmulProblem& problem, int num_sms, std::string_view forced) {
  const std::vector<std::string> names = candidates(problem);
  if (!forced.empty() && std::ranges::find(names, forced) == names.end()) {
    std::string known;
    for (const auto& candidate : names) known += (known.empty() ? "" : ", ") + candidate;
    throw std::invalid_argument("blockwise_matmul: no configuration is called " + std::string(forced) +
                                "; those that can run " + problem.describe() + " are: " + known);
  }
  std::vector<Choice> ranked;
  for (int i = 0; i < static_cast<int>(tile::kSm90Configs.size()); ++i) {
    const TileConfig& config = tile::kSm90Configs[i];
    if (!runs(config, problem) || (!forced.empty() && name(config) != forced)) continue;
    if (num_tiles(config, problem) <= kMaxTiles) ranked.push_back(evaluate(i, problem, num_sms));
  }
  if (ranked.empty()) {
    throw std::invalid_argument("blockwise_matmul: more than 2^30 output tiles: " + problem.describe());
  }
  std::ranges::stable_sort(ranked, {}, &Choice::cost_us);
  Choice best = ranked.front();
  char line[128];
  if (!forced.empty()) {
    std::snprintf(line, sizeof line, "asked for by name; %.1f us predicted", best.cost_us);
  } else if (ranked.size() == 1) {
    std::snprintf(line, sizeof line, "the only one for 1x128 blocks of b; %.1f us predicted", best.cost_us);
  } else {
    std::snprintf(line, sizeof line, "%.1f us predicted, next is %s with %.1f us", best.cost_us,
                  name(ranked[1].config).c_str(), ranked[1].cost_us);
  }
  best.reason = line;
  return best;
}

}  // namespace jax_fp8::host
