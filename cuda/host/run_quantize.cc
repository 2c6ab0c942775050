#include "host/run_quantize.h"

#include <stdexcept>
#include <string>

#include "host/device_info.h"
#include "quantize/launch.h"

namespace jax_fp8::host {

void run_quantize(quantize::InType in, const quantize::QuantizeParams& params, int device, cudaStream_t stream) {
  if (params.batch == 0 || params.rows == 0 || params.columns == 0) return;
  const DeviceInfo& info = device_info(device);
  if (!info.is_hopper()) {
    throw std::runtime_error("quantize: device " + std::to_string(device) + " has compute capability " +
                             std::to_string(info.major) + "." + std::to_string(info.minor) +
                             "; the kernels of this build run on 9.0 (H100, H200)");
  }
  if (const cudaError_t error = quantize::launch(in, params, stream)) {
    throw std::runtime_error("quantize (batch " + std::to_string(params.batch) + ", " + std::to_string(params.rows) +
                             " x " + std::to_string(params.columns) + "): " + cudaGetErrorString(error));
  }
}

}  // namespace jax_fp8::host
