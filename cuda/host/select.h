// Which configuration runs a product: a pure function that ranks the table by a cost model and says why. No CUDA.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "host/problem.h"
#include "ptx/launch_shape.h"
#include "tile/config.h"
#include "tile/scheduler.h"

namespace jax_fp8::host {

// A configuration of the table, and how k is split: 1 << split_log2 CTAs, a cluster, share the k blocks of a tile.
struct Candidate {
  int index;  // in tile::kSm90Configs
  int split_log2;

  bool operator==(const Candidate&) const = default;
  const tile::TileConfig& config() const;
  int split() const { return 1 << split_log2; }
  std::string name()
      const;  // "128x256": block_m x block_n; "64x64k1": one k block a stage; "16x64/4": k split over 4 CTAs
};

struct Choice {
  Candidate candidate;
  int stages;  // slots of the input ring
  tile::TileGrid grid;
  ptx::LaunchShape launch;
  double waves;    // tiles (or, where k is split, parts of them) an SM
  double cost_us;  // predicted

  enum class Why { kCheapest, kMeasured, kAskedFor } why;
  Candidate next;  // the second cheapest, if next_us > 0
  double next_us;

  std::string reason() const;
};

// Names of the configurations that can run the problem, in the table's order.
std::vector<std::string> candidates(const MatmulProblem& problem);

// The cheapest configuration, or the one that was measured to be the fastest, or the one called `forced` unless that is
// empty. Throws std::invalid_argument for a name that isn't among the candidates, naming them, and for more tiles than
// a grid can count.
Choice select_config(const MatmulProblem& problem, int num_sms, std::string_view forced = {});

}  // namespace jax_fp8::host
