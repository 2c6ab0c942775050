// Who am I: thread, warp and block indices, warp-wide agreement, named barriers, register budget, trap.
// PTX ISA 9.1 sections 9.7.13.1 (barrier), 9.7.13.14 (elect.sync), 9.7.19.5 (setmaxnreg), 9.7.9.6 (shfl).
#pragma once

#include <cstdint>

#include "ptx/kernel.h"

namespace jax_fp8::ptx {

__device__ __forceinline__ int thread_index() {
  return static_cast<int>(threadIdx.x);
}
__device__ __forceinline__ int lane_index() {
  return static_cast<int>(threadIdx.x) % kWarpSize;
}
__device__ __forceinline__ int block_index() {
  return static_cast<int>(blockIdx.x);
}
__device__ __forceinline__ int block_index_y() {
  return static_cast<int>(blockIdx.y);
}
__device__ __forceinline__ int num_blocks() {
  return static_cast<int>(gridDim.x);
}

// The same value in all lanes, and known to the compiler to be so.
__device__ __forceinline__ int warp_uniform(int value) {
  return __shfl_sync(~0u, value, 0);
}
__device__ __forceinline__ int warp_index() {
  return warp_uniform(thread_index() / kWarpSize);
}

__device__ __forceinline__ void warp_sync() {
  __syncwarp();
}
__device__ __forceinline__ void block_sync() {
  __syncthreads();
}

// True in exactly one lane of a converged warp, always the same one.
__device__ __forceinline__ bool elect_one() {
  uint32_t elected;
  asm volatile("{\n .reg .pred p;\n elect.sync _|p, 0xffffffff;\n selp.u32 %0, 1, 0, p;\n}" : "=r"(elected));
  return elected != 0;
}

__device__ __forceinline__ uint32_t warp_max(uint32_t value) {
  return __reduce_max_sync(~0u, value);
}

// Waits until `num_threads` threads (whole warps) have come to barrier `id`; orders their generic-proxy accesses.
__device__ __forceinline__ void named_barrier_sync(int id, int num_threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(num_threads) : "memory");
}
// The same without waiting, for threads that need nothing from the others.
__device__ __forceinline__ void named_barrier_arrive(int id, int num_threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(num_threads) : "memory");
}

// All warps of the warpgroup call the same one, once, first thing in their role.
template <int kRegisters>
__device__ __forceinline__ void shrink_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void grow_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Programmatic dependent launch: a kernel's start overlaps the end of the one in front of it in the stream. Every
// kernel lets the next one start, and waits, in every role that touches global memory, before it does. Since all of
// them wait, what a kernel waits for is everything in front of it, not only the last kernel. PTX ISA 9.1
// section 9.7.13.13.
__device__ __forceinline__ void let_next_kernel_start() {
  asm volatile("griddepcontrol.launch_dependents;");
}
__device__ __forceinline__ void await_previous_kernels() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

__device__ __forceinline__ void trap() {
  asm volatile("trap;");
}

}  // namespace jax_fp8::ptx
