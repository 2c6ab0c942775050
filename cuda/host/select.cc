#include "host/select.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <optional>
#include <stdexcept>

#include "host/measured.h"
#include "tile/sm90_configs.h"

namespace jax_fp8::host {
namespace {

using tile::Family;
using tile::TileConfig;

// ---- cost model ---------------------------------------------------------------------------------
// Microseconds of kernel time. Constants: fitted to every configuration's times on an H200 at 1 to 128 rows, and, for
// the tensor rate, at 4096 and more (docs/engineering_log.md).

constexpr double kMemoryBytesPerUs = 3.66e6;    // DRAM, beside the write-back of what was in L2
constexpr double kAgain = 0.23;                 // of that: b once more, out of L2, for every further tile along m
constexpr double kSmBytesPerUs = 180e3;         // into one SM
constexpr double kLatencyUs = 1.4;              // a ring's bytes arrive once in this time
constexpr double kMultiplyAddsPerClock = 4096;  // e4m3, one SM
constexpr double kClocksPerUs = 1700;           // under load
constexpr double kTileClocks = 2500;            // kTile: drain, store, first data of the next
constexpr double kTileStartUs = 4.5;            // launch, first data, last store
constexpr double kSwappedStartUs = 2.4;
constexpr double kCtaUs = 0.61, kRowsOfCta = 23;     // kSwapped: start and end of a CTA, longer with more rows
constexpr double kStepUs = 0.18, kRowsOfStep = 120;  // kSwapped: a stage when data waits
constexpr double kHalvingUs = 0.66;                  // sum over a cluster, for each time that k is halved

// Of things that go on at the same time: a little longer than the longest.
double together(double a, double b, double c = 0, double d = 0) {
  const auto fourth = [](double x) { return x * x * x * x; };
  return std::sqrt(std::sqrt(fourth(a) + fourth(b) + fourth(c) + fourth(d)));
}

double ceil_div(double a, double b) {
  return std::ceil(a / b);
}

// kSwapped: as many CTAs an SM as there are, then as many slots of the ring as fit.
struct Residency {
  int ctas_per_sm, stages;
};
Residency residency(const Candidate& candidate, const MatmulProblem& p, double ctas, int num_sms) {
  const TileConfig& config = candidate.config();
  const int64_t k_blocks = tile::ceil_div(p.num_k_blocks(), candidate.split());
  const auto steps =
      static_cast<int>(std::min<int64_t>(tile::ceil_div(k_blocks, config.k_blocks_per_stage), config.stages));
  const auto wanted = static_cast<int>(std::min<double>(ceil_div(ctas, num_sms), config.ctas_per_sm));
  for (int ctas_per_sm = std::max(wanted, 1);; --ctas_per_sm) {
    const int sums = candidate.split_log2 > 0 ? config.sum_bytes() : 0;
    const int room = tile::max_shared_bytes(ctas_per_sm) - tile::kSwappedHeadBytes - sums;
    const int stages = std::min(std::max(steps, 1), room / config.stage_bytes());
    if (stages >= std::min(2, std::max(steps, 1)) || ctas_per_sm == 1) return {ctas_per_sm, stages};
  }
}

// CTAs that an SM's share of the device holds; clusters leave some SMs unused.
double slots(const Candidate& candidate, int ctas_per_sm, int num_sms) {
  return ctas_per_sm * (candidate.split() <= 2 ? num_sms : std::floor(num_sms * 10.0 / 11.0));
}

// What all kernels share: the tiles of a candidate, what a CTA loads, what the product must move at least.
struct Work {
  double tiles_m, tiles_n, ctas;
  double k_blocks;   // of a CTA and tile
  double cta_bytes;  // that it loads
  double moved;      // every operand and result once, b a little more often

  Work(const Candidate& candidate, const MatmulProblem& p) {
    const TileConfig& config = candidate.config();
    tiles_m = static_cast<double>(tile::ceil_div(p.m, config.block_m));
    tiles_n = static_cast<double>(tile::ceil_div(p.n, config.block_n));
    ctas = tiles_m * tiles_n * static_cast<double>(p.batch) * candidate.split();
    k_blocks = static_cast<double>(tile::ceil_div(p.num_k_blocks(), candidate.split()));
    const int64_t rows = std::min<int64_t>(p.m, config.block_m);  // what lies outside of the array costs nothing
    cta_bytes = k_blocks * static_cast<double>(rows + config.block_n) * tile::kBlockK;
    const double a_rows = static_cast<double>(p.a_batch * p.m), b_rows = static_cast<double>(p.b_batch * p.n);
    const double again = config.family == Family::kSwapped ? kAgain * (tiles_m - 1) : 0;
    moved = (a_rows + b_rows * (1 + again)) * static_cast<double>(p.k) +
            static_cast<double>(p.batch * p.m * p.n * size_of(p.out));
  }
  double memory_us() const { return moved / kMemoryBytesPerUs; }
  double flow_us(int num_sms) const { return ceil_div(ctas, num_sms) * cta_bytes / kSmBytesPerUs; }
};

// Persistent CTAs, one an SM. A k block takes its multiply-adds at the tensor rate times the
// share of it that this tile was measured to reach.
double tile_us(const Candidate& candidate, const Work& work, int num_sms) {
  const TileConfig& config = candidate.config();
  const double k_block_clocks = config.block_m * config.block_n * tile::kBlockK / kMultiplyAddsPerClock /
                                tile::shape_of(candidate.index).tensor_use;
  const double rounds = ceil_div(work.ctas, num_sms);
  const double compute_us = rounds * (work.k_blocks * k_block_clocks + kTileClocks) / kClocksPerUs;
  return kTileStartUs + together(work.memory_us(), work.flow_us(num_sms), compute_us);
}

// CTAs come in rounds of as many as fit. Bound by memory, by what flows into the busiest SM or is on its way there, or
// by the steps of a CTA.
double swapped_us(const Candidate& candidate, const Work& work, const Residency& resident, int num_sms) {
  const TileConfig& config = candidate.config();
  const double rounds = ceil_div(work.ctas, slots(candidate, resident.ctas_per_sm, num_sms));
  const double on_sm = ceil_div(work.ctas, num_sms);
  const double in_flight = std::min<double>(resident.ctas_per_sm, on_sm) * resident.stages * config.stage_bytes();
  const double step_us = kStepUs * (1 + config.block_m / kRowsOfStep);
  return kSwappedStartUs +
         together(work.memory_us(), work.flow_us(num_sms), on_sm * work.cta_bytes / in_flight * kLatencyUs,
                  rounds * ceil_div(work.k_blocks, config.k_blocks_per_stage) * step_us) +
         rounds * kCtaUs * (1 + config.block_m / kRowsOfCta) + candidate.split_log2 * kHalvingUs;
}

// ---- plan ---------------------------------------------------------------------------------------

// kTile: tiles along m that run together: 8, or all of up to 4096 rows where k is short and output traffic counts
// (measured).
int raster_group(const MatmulProblem& p, double tiles_m) {
  const double wanted = p.k <= 1536 && p.m <= 4096 ? 32 : 8;
  return static_cast<int>(std::max(1.0, std::min(tiles_m, wanted)));
}

constexpr double kMaxCtas = std::numeric_limits<int32_t>::max() / 2;  // the persistent loop adds num_ctas to an index
constexpr int64_t kMaxRows = 65535;                                   // of a grid
constexpr int64_t kMaxScales = std::numeric_limits<int32_t>::max();   // of a: kSwapped has their offsets in 32 bits

std::optional<Choice> plan(const Candidate& candidate, const MatmulProblem& p, int num_sms) {
  const TileConfig& config = candidate.config();
  const Work work(candidate, p);
  const double ctas = work.ctas;
  if (ctas > kMaxCtas) return std::nullopt;
  if (config.family == Family::kSwapped && (p.batch > kMaxRows || p.a_batch * p.m * p.num_k_blocks() > kMaxScales)) {
    return std::nullopt;
  }
  Choice choice{.candidate = candidate,
                .stages = config.stages,
                .grid = {static_cast<int>(work.tiles_m), static_cast<int>(work.tiles_n), static_cast<int>(p.batch),
                         raster_group(p, work.tiles_m)},
                .launch = {static_cast<int>(ctas / static_cast<double>(p.batch)), static_cast<int>(p.batch),
                           config.threads(), candidate.split()},
                .waves = ctas / num_sms,
                .cost_us = 0,
                .why = Choice::Why::kCheapest,
                .next = candidate,
                .next_us = 0};
  switch (config.family) {
    case Family::kTile:
      choice.launch.blocks = static_cast<int>(std::min<double>(ctas, num_sms));
      choice.launch.rows = 1;
      choice.cost_us = tile_us(candidate, work, num_sms);
      break;
    case Family::kSwapped: {
      const Residency resident = residency(candidate, p, ctas, num_sms);
      choice.stages = resident.stages;
      choice.cost_us = swapped_us(candidate, work, resident, num_sms);
      break;
    }
  }
  return choice;
}

// Calls visit(candidate) for the configurations that can run the problem, with every split of k, in the table's order.
template <typename Visit>
void for_each_candidate(const MatmulProblem& p, Visit&& visit) {
  for (int i = 0; i < static_cast<int>(tile::kSm90Configs.size()); ++i) {
    const TileConfig& config = tile::kSm90Configs[static_cast<size_t>(i)];
    if (config.out != p.out || config.rows_per_b_scale != p.rows_per_b_scale) continue;
    const int last = config.family == Family::kSwapped ? TileConfig::kMaxSplitLog2 : 0;
    for (int split_log2 = 0; split_log2 <= last; ++split_log2) visit(Candidate{i, split_log2});
  }
}

bool was_measured(const Candidate& candidate, const MatmulProblem& p, int num_sms) {
  if (num_sms != kMeasuredSms || p.batch != 1 || p.out != tile::OutType::kBfloat16) return false;
  if (p.rows_per_b_scale != tile::kScaleBlock) return false;
  return std::ranges::any_of(kMeasured, [&](const Measured& row) {
    return row.n == p.n && row.k == p.k && row.m_from <= p.m && p.m <= row.m_to &&
           row.block_m == candidate.config().block_m && row.block_n == candidate.config().block_n &&
           row.k_blocks_per_stage == candidate.config().k_blocks_per_stage && row.split_log2 == candidate.split_log2;
  });
}

Choice choose(const MatmulProblem& p, int num_sms) {
  std::optional<Choice> best, next, measured;
  for_each_candidate(p, [&](const Candidate& candidate) {
    std::optional<Choice> choice = plan(candidate, p, num_sms);
    if (!choice) return;
    if (was_measured(candidate, p, num_sms)) measured = choice;
    if (!best || choice->cost_us < best->cost_us) {
      next = best;
      best = choice;
    } else if (!next || choice->cost_us < next->cost_us) {
      next = choice;
    }
  });
  if (!best) throw std::invalid_argument("blockwise_matmul: more than 2^30 output tiles: " + p.describe());
  if (measured && measured->candidate != best->candidate) {
    measured->why = Choice::Why::kMeasured;
    next = best;
    best = measured;
  }
  if (next) {
    best->next = next->candidate;
    best->next_us = next->cost_us;
  }
  return *best;
}

Choice forced_choice(const MatmulProblem& p, int num_sms, std::string_view forced) {
  std::optional<Candidate> found;
  std::string known;
  for_each_candidate(p, [&](const Candidate& candidate) {
    if (candidate.name() == forced) found = candidate;
    known += (known.empty() ? "" : ", ") + candidate.name();
  });
  if (!found) {
    throw std::invalid_argument("blockwise_matmul: no configuration is called " + std::string(forced) +
                                "; those that can run " + p.describe() + " are: " + known);
  }
  std::optional<Choice> choice = plan(*found, p, num_sms);
  if (!choice) {
    throw std::invalid_argument(
        "blockwise_matmul: configuration " + std::string(forced) +
        " can't have more than 2^30 CTAs, 65535 batch elements or 2^31 scales of a: " + p.describe());
  }
  choice->why = Choice::Why::kAskedFor;
  return *choice;
}

}  // namespace

const TileConfig& Candidate::config() const {
  return tile::kSm90Configs[static_cast<size_t>(index)];
}

std::string Candidate::name() const {
  std::string name = std::to_string(config().block_m) + "x" + std::to_string(config().block_n);
  if (config().family == Family::kSwapped && config().k_blocks_per_stage == 1) name += "k1";
  if (split_log2 > 0) name.append("/").append(std::to_string(split()));
  return name;
}

std::string Choice::reason() const {
  char line[176];
  if (why == Why::kAskedFor) {
    std::snprintf(line, sizeof line, "asked for by name; %.1f us predicted", cost_us);
  } else if (why == Why::kMeasured) {
    std::snprintf(line, sizeof line,
                  "measured on an H200 to be the fastest; the model prefers %s with %.1f us, to %.1f us",
                  next.name().c_str(), next_us, cost_us);
  } else if (next_us > 0) {
    std::snprintf(line, sizeof line, "%.1f us predicted, next is %s with %.1f us", cost_us, next.name().c_str(),
                  next_us);
  } else {
    std::snprintf(line, sizeof line, "the only one; %.1f us predicted", cost_us);
  }
  return line;
}

std::vector<std::string> candidates(const MatmulProblem& problem) {
  std::vector<std::string> names;
  for_each_candidate(problem, [&](const Candidate& candidate) { names.push_back(candidate.name()); });
  return names;
}

Choice select_config(const MatmulProblem& problem, int num_sms, std::string_view forced) {
  if (!forced.empty()) return forced_choice(problem, num_sms, forced);
  // Ranking takes longer than all else on the way to a launch: each thread remembers its last few.
  struct Remembered {
    MatmulProblem problem{};
    int num_sms = 0;
    Choice choice{};
  };
  thread_local std::array<Remembered, 64> known;
  const auto hash =
      static_cast<uint64_t>(problem.m * 31 + problem.n * 7 + problem.k + problem.batch) * 0x9e3779b97f4a7c15;
  Remembered& place = known[hash >> 58];
  if (place.num_sms != num_sms || place.problem != problem) place = {problem, num_sms, choose(problem, num_sms)};
  return place.choice;
}

}  // namespace jax_fp8::host
