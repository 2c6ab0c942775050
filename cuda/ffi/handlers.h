// The XLA FFI handlers of this extension.
#pragma once

#include "xla/ffi/api/ffi.h"

namespace jax_fp8 {

XLA_FFI_Handler* initialize_handler();  // readies the device: the initialize stage of both targets
XLA_FFI_Handler* blockwise_matmul_handler();
XLA_FFI_Handler* quantize_handler();

}  // namespace jax_fp8
