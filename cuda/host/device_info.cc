#include "host/device_info.h"

#include <cuda_runtime_api.h>

#include <map>
#include <mutex>
#include <stdexcept>
#include <string>

#include "quantize/launch.h"
#include "sm90/launch.h"

namespace jax_fp8::host {
namespace {

void require(cudaError_t error, const char* what) {
  if (error != cudaSuccess)
    throw std::runtime_error(std::string("jax_fp8: ") + what + ": " + cudaGetErrorString(error));
}

DeviceInfo find_out(int device) {
  int current = 0;
  require(cudaGetDevice(&current), "cudaGetDevice");
  require(cudaSetDevice(device), "cudaSetDevice");
  DeviceInfo info{};
  require(cudaDeviceGetAttribute(&info.num_sms, cudaDevAttrMultiProcessorCount, device), "multiprocessor count");
  require(cudaDeviceGetAttribute(&info.major, cudaDevAttrComputeCapabilityMajor, device), "compute capability");
  require(cudaDeviceGetAttribute(&info.minor, cudaDevAttrComputeCapabilityMinor, device), "compute capability");
  if (info.is_hopper()) {
    require(sm90::prepare(), "loading the matmul kernels");
    require(quantize::prepare(), "loading the quantise kernels");
  }
  require(cudaSetDevice(current), "cudaSetDevice");
  return info;
}

}  // namespace

const DeviceInfo& device_info(int device) {
  static std::mutex mutex;
  static std::map<int, DeviceInfo> known;
  const std::scoped_lock lock(mutex);
  auto found = known.find(device);
  if (found == known.end()) found = known.emplace(device, find_out(device)).first;
  return found->second;
}

}  // namespace jax_fp8::host
