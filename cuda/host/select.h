// Which configuration runs a product: a pure function that ranks the table by a cost model and says why. No CUDA.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "host/problem.h"
#include "tile/config.h"
#include "tile/scheduler.h"

namespace jax_fp8::host {

struct Choice {
  int index;  // in tile::kSm90Configs
  tile::TileConfig config;
  tile::TileGrid grid;
  int num_ctas;
  double waves;    // tiles a CTA, on average
  double cost_us;  // predicted
  std::string reason;
};

std::string name(const tile::TileConfig& config);  // "128x256": block_m x block_n

// Names of the configurations that can run the problem, in the table's order.
std::vector<std::string> candidates(const MatmulProblem& problem);

// The cheapest configuration, or the one called `forced` unless that is empty. Throws std::invalid_argument for a name
// that isn't among the candidates, naming them, and for more tiles than a grid can count.
Choice select_config(const MatmulProblem& problem, int num_sms, std::string_view forced = {});

}  // namespace jax_fp8::host
