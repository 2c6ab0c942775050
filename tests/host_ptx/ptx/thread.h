// Stand-in for cuda/ptx/thread.h.
#pragma once

#include <cstdint>

#include "ptx/kernel.h"

namespace jax_fp8::ptx {

int thread_index();
int lane_index();
int block_index();
int block_index_y();
int num_blocks();

int warp_uniform(int value);
int warp_index();

void warp_sync();
void block_sync();
bool elect_one();
uint32_t warp_max(uint32_t value);
void named_barrier_sync(int id, int num_threads);
void named_barrier_arrive(int id, int num_threads);

template <int kRegisters>
void shrink_registers();
template <int kRegisters>
void grow_registers();

void let_next_kernel_start();
void await_previous_kernels();
void trap();

}  // namespace jax_fp8::ptx
