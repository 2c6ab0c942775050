#include "host/device_info.h"

#include <cuda_runtime_api.h>

#include <map>
#include <mutex>
#include <stdexcept>
#include <string>

#include "ptx/tensor_map.h"
#include "quantize/launch.h"
#include "sm90/launch.h"

namespace jax_fp8::host {
namespace {

void require(cudaError_t error, const char* what) {
  if (error != cudaSuccess)
    throw std::runtime_error(std::string("jax_fp8: ") + what + ": " + cudaGetErrorString(error));
}

// Makes `device` the thread's current one, and the former one again at the end.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device) : device_(device) {
    require(cudaGetDevice(&before_), "cudaGetDevice");
    if (before_ != device_) require(cudaSetDevice(device_), "cudaSetDevice");
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  ~CurrentDevice() {
    if (before_ != device_) cudaSetDevice(before_);
  }

 private:
  int before_ = 0;
  int device_;
};

DeviceInfo find_out(int device) {
  const CurrentDevice current(device);
  DeviceInfo info{};
  require(cudaDeviceGetAttribute(&info.num_sms, cudaDevAttrMultiProcessorCount, device), "multiprocessor count");
  require(cudaDeviceGetAttribute(&info.major, cudaDevAttrComputeCapabilityMajor, device), "compute capability");
  require(cudaDeviceGetAttribute(&info.minor, cudaDevAttrComputeCapabilityMinor, device), "compute capability");
  if (info.is_hopper()) {
    require(sm90::prepare(), "loading the matmul kernels");
    require(quantize::prepare(), "loading the quantise kernels");
    ptx::tensor_map_encoder();
  }
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
