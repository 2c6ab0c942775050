// Stand-in for cuda/ptx/tensor_map.h: a tensor map has the driver's size and alignment.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace jax_fp8::ptx {

struct alignas(64) TensorMap {
  uint64_t opaque[16];
};

enum class TensorMapType { kByte, kFloat32, kBfloat16, kFloat16 };
enum class TensorMapSwizzle { kNone, k128Bytes };

struct TensorMapShape {
  uint32_t rank;
  uint64_t extent[4];
  uint64_t stride[3];
  uint32_t box[4];
};

const void* tensor_map_encoder();
const char* encode_tensor_map(TensorMap& map, TensorMapType type, const void* data, const TensorMapShape& shape,
                              TensorMapSwizzle swizzle);

}  // namespace jax_fp8::ptx
