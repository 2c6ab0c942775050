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
    const int batch_index = batch == 1 ? 0 : tile / per_batch;  // a division is 40 clocks between two tiles
    const int in_batch = tile - batch_index * per_batch;
    const int per_group = raster_group * tiles_n;
    const int group = raster_group >= tiles_m ? 0 : in_batch / per_group;
    const int in_group = in_batch - group * per_group;
    const int rest = tiles_m - group * raster_group;
    const int height = rest < raster_group ? rest : raster_group;  // the last group may be lower
    const int n = height == 1 ? in_group : in_group / height;
    return {group * raster_group + in_group - n * height, n, batch_index};
  }
};

// Some of the steps along k, each so many k blocks as go into a stage. The last one may reach beyond the last k block.
struct KRange {
  int first, steps;
};

// The part of the CTA with `rank` among 1 << split_log2 that share a tile; it may be empty. num_steps < 2^24.
constexpr KRange k_range(int num_steps, int rank, int split_log2) {
  const int begin = num_steps * rank >> split_log2, end = num_steps * (rank + 1) >> split_log2;
  return {begin, end - begin};
}

// What one CTA does that works on a single tile, which it may share with the others of its cluster.
struct TilePart {
  WorkTile tile;
  int rank;
  KRange range;
};

// Of CTA `cta` of batch element `batch`. Tiles run along m, so that b is read from memory once. Divisions here would
// delay the first load.
constexpr TilePart tile_part(const TileGrid& grid, int cta, int batch, int split_log2, int num_steps) {
  const int in_batch = cta >> split_log2, rank = cta - (in_batch << split_log2);
  const int n = grid.tiles_m == 1 ? in_batch : in_batch / grid.tiles_m;
  return {{in_batch - n * grid.tiles_m, n, batch}, rank, k_range(num_steps, rank, split_log2)};
}

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
