// Stand-in for cuda/ptx/memory.h.
#pragma once

#include <cstdint>

#include "ptx/shared_address.h"

namespace jax_fp8::ptx {

float load_global(const float* pointer);
float load_shared(const float* pointer);
void load_shared(const float* pointer, float& first, float& second);
void load_four(const float* pointer, float (&values)[4]);
void store_shared(void* pointer, float first, float second);
void store_16_bytes(void* pointer, const uint32_t (&words)[4]);
void store_16_bytes_if(bool condition, void* pointer, const uint32_t (&words)[4]);
void store_8_bytes_if(bool condition, void* pointer, uint32_t low, uint32_t high);
void store_matrices(void* row, uint32_t m0, uint32_t m1, uint32_t m2, uint32_t m3);

uint32_t pack_bfloat16(float low, float high);
uint32_t pack_float16(float low, float high);
uint16_t pack_e4m3(float low, float high);
float from_bfloat16(uint16_t bits);
float from_float16(uint16_t bits);
uint32_t float_bits(float value);
float bits_float(uint32_t bits);

float reciprocal(float value);
float multiply(float a, float b);

}  // namespace jax_fp8::ptx
