// Tensor maps: the type, and their encoding by the driver, looked up at run time so that libcuda isn't linked.
// CUDA driver API, cuTensorMapEncodeTiled.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace jax_fp8::ptx {

using TensorMap = CUtensorMap;

enum class TensorMapType { kByte, kFloat32, kBfloat16, kFloat16 };
enum class TensorMapSwizzle { kNone, k128Bytes };

// An array of up to four dimensions, innermost first, and the box that one copy moves. Strides in bytes, of dimensions
// 1, 2, ...
struct TensorMapShape {
  uint32_t rank;
  uint64_t extent[4];
  uint64_t stride[3];
  uint32_t box[4];
};

// The driver's encoder, or null. Looked up on the first call, which must not come during a capture.
inline auto tensor_map_encoder() {
  static const auto encoder = [] {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found{};
    const auto error =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found);
    if (error != cudaSuccess || found != cudaDriverEntryPointSuccess) entry = nullptr;
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry);
  }();
  return encoder;
}

// Returns null, or why there is no such map.
inline const char* encode_tensor_map(TensorMap& map, TensorMapType type, const void* data, const TensorMapShape& shape,
                                     TensorMapSwizzle swizzle) {
  const auto encode = tensor_map_encoder();
  if (encode == nullptr) return "the driver has no cuTensorMapEncodeTiled (CUDA 12.0 or later is needed)";
  constexpr CUtensorMapDataType kTypes[] = {CU_TENSOR_MAP_DATA_TYPE_UINT8, CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
                                            CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, CU_TENSOR_MAP_DATA_TYPE_FLOAT16};
  const cuuint32_t element_strides[4] = {1, 1, 1, 1};
  const CUresult result =
      encode(&map, kTypes[static_cast<int>(type)], shape.rank, const_cast<void*>(data), shape.extent, shape.stride,
             shape.box, element_strides, CU_TENSOR_MAP_INTERLEAVE_NONE,
             swizzle == TensorMapSwizzle::k128Bytes ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? nullptr : "cuTensorMapEncodeTiled refused the array";
}

}  // namespace jax_fp8::ptx
