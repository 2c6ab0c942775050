// XLA FFI handlers: decode, delegate, translate errors. Nothing is allocated, waited for or queried here, so that calls
// can be captured into CUDA graphs. FP8 codes travel as uint8.
#include "ffi/handlers.h"

#include <cuda_runtime_api.h>

#include <exception>
#include <functional>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "host/device_info.h"
#include "host/require.h"
#include "host/run_matmul.h"
#include "host/run_quantize.h"

namespace jax_fp8 {
namespace {

namespace ffi = xla::ffi;
using host::require;

template <typename Body>
ffi::Error guarded(const Body& body) {
  try {
    body();
    return ffi::Error::Success();
  } catch (const std::invalid_argument& error) {
    return ffi::Error::InvalidArgument(error.what());
  } catch (const std::exception& error) {
    return ffi::Error::Internal(error.what());
  }
}

host::Dims dims(const ffi::AnyBuffer& buffer) {
  return {buffer.dimensions().begin(), buffer.dimensions().size()};
}

std::optional<tile::OutType> out_type(ffi::DataType type) {
  switch (type) {
    case ffi::DataType::BF16:
      return tile::OutType::kBfloat16;
    case ffi::DataType::F16:
      return tile::OutType::kFloat16;
    case ffi::DataType::F32:
      return tile::OutType::kFloat32;
    default:
      return std::nullopt;
  }
}

std::optional<quantize::InType> in_type(ffi::DataType type) {
  switch (type) {
    case ffi::DataType::F32:
      return quantize::InType::kFloat32;
    case ffi::DataType::BF16:
      return quantize::InType::kBfloat16;
    case ffi::DataType::F16:
      return quantize::InType::kFloat16;
    default:
      return std::nullopt;
  }
}

ffi::Error initialize(int32_t device) {
  return guarded([&] { host::device_info(device); });
}

ffi::Error blockwise_matmul(cudaStream_t stream, int32_t device, ffi::AnyBuffer a, ffi::AnyBuffer a_scales,
                            ffi::AnyBuffer b, ffi::AnyBuffer b_scales, int64_t rows_per_b_scale,
                            std::string_view config, ffi::Result<ffi::AnyBuffer> out,
                            ffi::Result<ffi::AnyBuffer> scratch) {
  return guarded([&] {
    require(a.element_type() == ffi::U8 && b.element_type() == ffi::U8, "blockwise_matmul: codes must be uint8");
    require(a_scales.element_type() == ffi::F32 && b_scales.element_type() == ffi::F32,
            "blockwise_matmul: scales must be float32");
    const auto type = out_type(out->element_type());
    require(type.has_value(), "blockwise_matmul: the result must be bfloat16, float16 or float32");
    const host::MatmulProblem problem =
        host::matmul_problem(dims(a), dims(a_scales), dims(b), dims(b_scales), dims(*out), rows_per_b_scale, *type);
    require(static_cast<int64_t>(scratch->size_bytes()) >= host::scratch_bytes(problem), [&] {
      return "blockwise_matmul: scratch has " + std::to_string(scratch->size_bytes()) + " bytes, needs " +
             std::to_string(host::scratch_bytes(problem));
    });
    const host::MatmulBuffers buffers{a.untyped_data(), a_scales.untyped_data(), b.untyped_data(),
                                      b_scales.untyped_data(), out->untyped_data()};
    host::run_matmul(problem, buffers, scratch->untyped_data(), config, device, stream);
  });
}

// Results: (codes, scales) for each contracted axis: first_axis, then, if num_axes is 2, the other one.
ffi::Error quantize(cudaStream_t stream, int32_t device, ffi::AnyBuffer x, int64_t rows_per_scale, int64_t first_axis,
                    int64_t num_axes, bool power_of_two, ffi::RemainingRets results) {
  return guarded([&] {
    const auto type = in_type(x.element_type());
    require(type.has_value(), "quantize: x must be float32, bfloat16 or float16");
    const auto shape = dims(x);
    require(shape.size() >= 2, "quantize: x needs at least 2 axes");
    require(first_axis == -1 || first_axis == -2, "quantize: first_axis must be -1 or -2");
    require(rows_per_scale == 1 || rows_per_scale == tile::kScaleBlock, "quantize: rows_per_scale must be 1 or 128");
    require((num_axes == 1 || num_axes == 2) && results.size() == static_cast<size_t>(2 * num_axes),
            "quantize: needs codes and scales for one or two axes");
    const int64_t rows = shape[shape.size() - 2], columns = shape.back();
    require(rows <= INT32_MAX - 256 && columns <= INT32_MAX - 256,
            "quantize: rows and columns must stay below 2^31 - 256");
    quantize::QuantizeParams params{};
    params.x = x.untyped_data();
    const auto lead = shape.first(shape.size() - 2);
    params.batch = std::accumulate(lead.begin(), lead.end(), int64_t{1}, std::multiplies<>());
    params.rows = static_cast<int>(rows);
    params.columns = static_cast<int>(columns);
    params.square_blocks = rows_per_scale == tile::kScaleBlock;
    params.power_of_two = power_of_two;
    for (int64_t i = 0; i < num_axes; ++i) {
      auto codes = results.get<ffi::AnyBuffer>(2 * i), scales = results.get<ffi::AnyBuffer>(2 * i + 1);
      require(codes.has_value() && scales.has_value(), "quantize: results must be codes and scales");
      const bool along_columns = (first_axis == -1) == (i == 0);
      const int64_t lines = along_columns ? rows : columns, ks = along_columns ? columns : rows;
      const int64_t num_scales =
          params.batch * tile::ceil_div(lines, rows_per_scale) * tile::ceil_div(ks, tile::kScaleBlock);
      require((*codes)->element_type() == ffi::U8 && (*codes)->element_count() == x.element_count(),
              "quantize: codes must be uint8 with x's number of elements");
      require((*scales)->element_type() == ffi::F32 && static_cast<int64_t>((*scales)->element_count()) == num_scales,
              [&] { return "quantize: scales must be " + std::to_string(num_scales) + " float32 values"; });
      auto& orientation = along_columns ? params.along_columns : params.along_rows;
      orientation = {static_cast<uint8_t*>((*codes)->untyped_data()), static_cast<float*>((*scales)->untyped_data())};
    }
    host::run_quantize(*type, params, device, stream);
  });
}

XLA_FFI_DEFINE_HANDLER(kInitializeHandler, initialize, ffi::Ffi::BindInitialize().Ctx<ffi::DeviceOrdinal>());

XLA_FFI_DEFINE_HANDLER(kMatmulHandler, blockwise_matmul,
                       ffi::Ffi::Bind()
                           .Ctx<ffi::PlatformStream<cudaStream_t>>()
                           .Ctx<ffi::DeviceOrdinal>()
                           .Arg<ffi::AnyBuffer>()  // a         uint8 (*batch, m, k)
                           .Arg<ffi::AnyBuffer>()  // a_scales  float32 (*batch, m, k blocks), k blocks outermost
                           .Arg<ffi::AnyBuffer>()  // b         uint8 (*batch, n, k)
                           .Arg<ffi::AnyBuffer>()  // b_scales  float32 (*batch, n or n blocks, k blocks)
                           .Attr<int64_t>("rows_per_b_scale")
                           .Attr<std::string_view>("config")
                           .Ret<ffi::AnyBuffer>()   // out      (*batch, m, n)
                           .Ret<ffi::AnyBuffer>(),  // scratch  uint8 (bytes)
                       {ffi::Traits::kCmdBufferCompatible});

XLA_FFI_DEFINE_HANDLER(kQuantizeHandler, quantize,
                       ffi::Ffi::Bind()
                           .Ctx<ffi::PlatformStream<cudaStream_t>>()
                           .Ctx<ffi::DeviceOrdinal>()
                           .Arg<ffi::AnyBuffer>()  // x  (*batch, rows, columns)
                           .Attr<int64_t>("rows_per_scale")
                           .Attr<int64_t>("first_axis")
                           .Attr<int64_t>("num_axes")
                           .Attr<bool>("power_of_two")
                           .RemainingRets(),
                       {ffi::Traits::kCmdBufferCompatible});

}  // namespace

XLA_FFI_Handler* initialize_handler() {
  return kInitializeHandler;
}
XLA_FFI_Handler* blockwise_matmul_handler() {
  return kMatmulHandler;
}
XLA_FFI_Handler* quantize_handler() {
  return kQuantizeHandler;
}

}  // namespace jax_fp8
