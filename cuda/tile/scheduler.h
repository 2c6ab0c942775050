// Which output tiles a CTA works on, in which order. Static and persistent: tile t, then t + num_ctas, ...
//
// Tiles run along m inside groups of `raster_group` m tiles, so that CTAs that run together share rows of b and a few
// of a in L2.
#pragma once

#include "tile/config.h"

namespace jax_fp8::tile {

struct WorkTile {
  int m, n, batch;  // in tiles, tiles, elements
};

struct TileGrid {
  int tiles_m, tiles_n, batch;
  int raster_group;

  constexpr int num_tiles() const { return tiles_m * tiles_n * batch; }

  constexpr WorkTile decode(int tile) const {
    const int per_batch = tiles_m * tiles_n;
    const int batch_index = tile / per_batch;
    const int in_batch = tile - batch_index * per_batch;
    const int per_group = raster_group * tiles_n;
    const int group = in_batch / per_group;
    const int in_group = in_batch - group * per_group;
    const int rest = tiles_m - group * raster_group;
    const int height = rest < raster_group ? rest : raster_group;  // the last group may be lower
    const int n = in_group / height;
    return {group * raster_group + in_group - n * height, n, batch_index};
  }
};

class TileScheduler {
 public:
  constexpr TileScheduler(const TileGrid& grid, int cta, int num_ctas) : grid_(grid), next_(cta), step_(num_ctas) {}

  // False when there is no tile left.
  constexpr bool next(WorkTile& tile) {
    if (next_ >= grid_.num_tiles()) return false;
    tile = grid_.decode(next_);
    next_ += step_;
    return true;
  }

 private:
  const TileGrid& grid_;
  int next_;
  int step_;
};

}  // namespace jax_fp8::tile
