#include "host/run_matmul.h"

#include <stdexcept>
#include <string>

#include "host/device_info.h"
#include "host/select.h"
#include "quantize/launch.h"
#include "sm90/launch.h"

namespace jax_fp8::host {
namespace {

constexpr int64_t kAlignment = 256;

int64_t padded_bytes(const MatmulProblem& p, int64_t rows) {
  return tile::ceil_div(rows * p.padded_k(), kAlignment) * kAlignment;
}

void require(cudaError_t error, const MatmulProblem& problem, const char* what) {
  if (error == cudaSuccess) return;
  throw std::runtime_error("blockwise_matmul (" + problem.describe() + "): " + what + ": " + cudaGetErrorString(error));
}

void pad_rows(const MatmulProblem& p, const void*& codes, void* padded, int64_t rows, cudaStream_t stream) {
  const auto k = static_cast<int>(p.k), pitch = static_cast<int>(p.padded_k());
  require(quantize::pad_rows(codes, padded, rows, k, pitch, stream), p, "padding rows");
  codes = padded;
}

}  // namespace

int64_t scratch_bytes(const MatmulProblem& p) {
  return p.pads_k() ? padded_bytes(p, p.a_batch * p.m) + padded_bytes(p, p.b_batch * p.n) : 0;
}

void run_matmul(const MatmulProblem& problem, MatmulBuffers buffers, void* scratch, std::string_view config, int device,
                cudaStream_t stream) {
  if (problem.is_empty()) return;
  if (problem.k == 0) {
    const auto bytes = static_cast<size_t>(problem.batch * problem.m * problem.n * size_of(problem.out));
    return require(cudaMemsetAsync(buffers.out, 0, bytes, stream), problem, "zeroing the result");
  }
  const DeviceInfo& info = device_info(device);
  if (!info.is_hopper()) {
    throw std::runtime_error("blockwise_matmul: device " + std::to_string(device) + " has compute capability " +
                             std::to_string(info.major) + "." + std::to_string(info.minor) +
                             "; the kernels of this build run on 9.0 (H100, H200)");
  }
  if (problem.pads_k()) {
    auto* padded = static_cast<uint8_t*>(scratch);
    pad_rows(problem, buffers.a, padded, problem.a_batch * problem.m, stream);
    pad_rows(problem, buffers.b, padded + padded_bytes(problem, problem.a_batch * problem.m),
             problem.b_batch * problem.n, stream);
  }
  const Choice choice = select_config(problem, info.num_sms, config);
  const tile::MatmulParams params = matmul_params(problem, choice, buffers);
  if (const cudaError_t error = sm90::launch(choice.candidate.index, params, choice.launch, stream)) {
    require(error, problem, ("launching " + choice.candidate.name()).c_str());
  }
}

}  // namespace jax_fp8::host
