// The Python module `jax_fp8._cuda`: hands out the FFI handlers.
#include <nanobind/nanobind.h>

#include "ffi/handlers.h"

namespace nb = nanobind;

namespace {

nb::dict stages(XLA_FFI_Handler* execute) {
  nb::dict stages;
  stages["initialize"] = nb::capsule(reinterpret_cast<void*>(jax_fp8::initialize_handler()));
  stages["execute"] = nb::capsule(reinterpret_cast<void*>(execute));
  return stages;
}

}  // namespace

NB_MODULE(_cuda, m) {
  m.attr("build_id") = JAX_FP8_BUILD_ID;
  m.def("ffi_api_version", [] { return nb::make_tuple(XLA_FFI_API_MAJOR, XLA_FFI_API_MINOR); });
  m.def("blockwise_matmul", [] { return stages(jax_fp8::blockwise_matmul_handler()); });
  m.def("quantize", [] { return stages(jax_fp8::quantize_handler()); });
}
