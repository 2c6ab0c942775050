// What the host needs to know of a device. Immutable; found out once per device, which also readies the kernels there.
#pragma once

namespace jax_fp8::host {

struct DeviceInfo {
  int num_sms;
  int major, minor;  // compute capability

  bool is_hopper() const { return major == 9 && minor == 0; }
};

// Safe to call from any thread; after the first call per device no CUDA function runs, so it may be called during a
// capture. Throws std::runtime_error with CUDA's reason.
const DeviceInfo& device_info(int device);

}  // namespace jax_fp8::host
