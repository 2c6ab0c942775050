// How many threads a launch starts. Plain C++: the host plans with it.
#pragma once

namespace jax_fp8::ptx {

// A grid of blocks by rows; `cluster` neighbours in a row can reach each other's shared memory.
struct LaunchShape {
  int blocks, rows, threads, cluster;

  constexpr int num_blocks() const { return blocks * rows; }
};

}  // namespace jax_fp8::ptx
