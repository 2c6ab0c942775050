// jax_fp8_driver: runs the kernels through cuda/host without Python, on a Hopper GPU.
//
//   jax_fp8_driver [--exact] [--filter TEXT] [--skip TEXT] [--repeats N]    tests; exit code 1 on failure
//   jax_fp8_driver --bench M N K [--bench M N K ...]                         times every configuration
//
// Products are compared with an exact host reference: operands are small integers and scales powers of two, so that
// float32 sums have no rounding in any order. Quantisation is compared byte by byte. Outputs start as NaN bytes and all
// buffers lie between NaN guards; with --exact each is a cudaMalloc of just its size instead, for `compute-sanitizer
// --tool memcheck` (also racecheck, initcheck, synccheck). Would catch: swapped scales or tiles, a store or load beyond
// an edge, a tile that nobody writes, a phase error in a ring that wraps, results that depend on timing. Built with
// JAX_FP8_TEST_DRIVER=ON.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "host/device_info.h"
#include "host/run_matmul.h"
#include "host/run_quantize.h"
#include "host/select.h"
#include "tile/sm90_configs.h"

namespace {

using jax_fp8::host::MatmulProblem;
using jax_fp8::quantize::InType;
using jax_fp8::tile::ceil_div;
using jax_fp8::tile::kScaleBlock;
using jax_fp8::tile::OutType;

constexpr int kDevice = 0;
constexpr uint8_t kPoison = 0xff;  // NaN as e4m3, and repeated as float16, bfloat16 and float32
constexpr uint8_t kNanCode = 0x7f;

struct Options {
  bool exact = false;
  std::string filter;
  std::string skip;
  int repeats = 20;
};
Options options;

// ---- device memory ------------------------------------------------------------------------------

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

// Device memory that starts as NaN bytes, between guards of NaN bytes unless options.exact.
class Buffer {
 public:
  explicit Buffer(int64_t bytes) : bytes_(static_cast<size_t>(bytes)) {
    const size_t total = guard_ + bytes_ + guard_;
    check(cudaMalloc(&memory_, total), "cudaMalloc");
    if (total != 0) check(cudaMemset(memory_, kPoison, total), "cudaMemset");
  }
  template <typename T>
  explicit Buffer(const std::vector<T>& content) : Buffer(static_cast<int64_t>(content.size() * sizeof(T))) {
    if (bytes_ != 0) check(cudaMemcpy(data(), content.data(), bytes_, cudaMemcpyHostToDevice), "copy to the device");
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { cudaFree(memory_); }

  void* data() const { return static_cast<uint8_t*>(memory_) + guard_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data());
  }

  template <typename T>
  std::vector<T> read() const {
    std::vector<T> content(bytes_ / sizeof(T));
    if (bytes_ != 0) check(cudaMemcpy(content.data(), data(), bytes_, cudaMemcpyDeviceToHost), "copy to the host");
    return content;
  }

  void poison() {
    if (bytes_ != 0) check(cudaMemset(data(), kPoison, bytes_), "cudaMemset");
  }

  bool guards_are_intact() const {
    std::vector<uint8_t> all(guard_ + bytes_ + guard_);
    if (guard_ == 0) return true;
    check(cudaMemcpy(all.data(), memory_, all.size(), cudaMemcpyDeviceToHost), "copy of the guards");
    const auto intact = [](uint8_t byte) { return byte == kPoison; };
    return std::all_of(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(guard_), intact) &&
           std::all_of(all.end() - static_cast<std::ptrdiff_t>(guard_), all.end(), intact);
  }

 private:
  static constexpr size_t kGuardBytes = 4096 + 16;  // data 16-byte aligned and no more: all that TMA asks for

  void* memory_ = nullptr;
  size_t bytes_;
  size_t guard_ = options.exact ? 0 : kGuardBytes;
};

class Stream {
 public:
  Stream() { check(cudaStreamCreate(&stream_), "cudaStreamCreate"); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() { cudaStreamDestroy(stream_); }

  cudaStream_t get() const { return stream_; }
  void finish() const { check(cudaStreamSynchronize(stream_), "the kernel"); }

 private:
  cudaStream_t stream_ = nullptr;
};

// ---- results ------------------------------------------------------------------------------------

class Report {
 public:
  static bool wants(const std::string& label) {
    const bool skipped = !options.skip.empty() && label.find(options.skip) != std::string::npos;
    return !skipped && label.find(options.filter) != std::string::npos;
  }

  // Runs a case unless it is filtered out. `body` returns what is wrong, or nothing.
  void run(const std::string& label, const std::function<std::string()>& body) {
    if (!wants(label)) return;
    std::string problem;
    try {
      problem = body();
    } catch (const std::exception& error) {
      problem = error.what();
    }
    (problem.empty() ? passed_ : failed_) += 1;
    std::printf("%s %s%s%s\n", problem.empty() ? "ok  " : "FAIL", label.c_str(), problem.empty() ? "" : ": ",
                problem.c_str());
    std::fflush(stdout);
  }

  int finish() const {
    std::printf("%d passed, %d failed\n", passed_, failed_);
    return failed_ == 0 && passed_ > 0 ? 0 : 1;
  }

 private:
  int passed_ = 0, failed_ = 0;
};

std::string guard_problem(std::initializer_list<std::pair<const char*, const Buffer*>> buffers) {
  for (const auto& [name, buffer] : buffers) {
    if (!buffer->guards_are_intact()) return std::string("bytes outside of ") + name + " were overwritten";
  }
  return {};
}

// ---- number formats -----------------------------------------------------------------------------

float e4m3_value(int code) {  // of a finite code
  const int exponent = (code >> 3) & 15, mantissa = code & 7;
  const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                        : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

// The nearest code, ties to the even one, by search through all of them. |value| <= 448.
uint8_t nearest_e4m3(float value) {
  static const auto values = [] {
    std::array<double, kNanCode> table{};
    for (int code = 0; code < kNanCode; ++code) table[static_cast<size_t>(code)] = e4m3_value(code);
    return table;
  }();
  const double magnitude = std::fabs(value);
  auto code = static_cast<size_t>(std::lower_bound(values.begin(), values.end(), magnitude) - values.begin());
  if (code == values.size()) throw std::logic_error("nearest_e4m3: beyond 448");
  if (code > 0) {
    const double up = values[code] - magnitude, down = magnitude - values[code - 1];
    if (down < up || (down == up && code % 2 != 0)) --code;
  }
  return static_cast<uint8_t>(code | (std::signbit(value) ? 0x80 : 0));
}

// Bits of `value` in the output type, rounded to nearest even. Zero, or normal in that type.
uint32_t out_bits(double value, OutType type) {
  const auto exact = static_cast<float>(value);
  if (static_cast<double>(exact) != value) throw std::logic_error("the reference isn't exact in float32");
  const auto bits = std::bit_cast<uint32_t>(exact);
  const uint32_t sign = bits >> 31, magnitude = bits & 0x7fffffff;
  if (type == OutType::kFloat32) return bits;
  if (type == OutType::kBfloat16) return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  if (magnitude == 0) return sign << 15;
  if (std::fabs(exact) < 0x1p-14f || std::fabs(exact) >= 65504.f) throw std::logic_error("not a normal float16");
  const uint32_t rebased = magnitude - ((127 - 15) << 23);
  return sign << 15 | (rebased + 0xfff + ((rebased >> 13) & 1)) >> 13;
}

struct InFormat {
  const char* name;
  int exponent_bits, mantissa_bits;

  int bytes() const { return (1 + exponent_bits + mantissa_bits) / 8; }
  uint32_t max_exponent() const { return (1u << exponent_bits) - 1; }  // of infinity and NaN
  uint32_t bits(bool negative, uint32_t exponent, uint32_t mantissa) const {
    return (negative ? 1u : 0u) << (exponent_bits + mantissa_bits) | exponent << mantissa_bits | mantissa;
  }
  float value(uint32_t bits) const {
    const uint32_t mantissa = bits & ((1u << mantissa_bits) - 1);
    const uint32_t exponent = (bits >> mantissa_bits) & max_exponent();
    const int bias = static_cast<int>(max_exponent() / 2);
    double magnitude = std::ldexp(static_cast<double>(mantissa), 1 - bias - mantissa_bits);
    if (exponent == max_exponent()) {
      magnitude = mantissa == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
    } else if (exponent != 0) {
      magnitude = std::ldexp(static_cast<double>(mantissa | 1u << mantissa_bits),
                             static_cast<int>(exponent) - bias - mantissa_bits);
    }
    return static_cast<float>((bits >> (exponent_bits + mantissa_bits)) != 0 ? -magnitude : magnitude);
  }
};
constexpr InFormat kInFormats[] = {
    {"float32", 8, 23}, {"bfloat16", 8, 7}, {"float16", 5, 10}};  // in the order of InType

const char* name_of(OutType type) {
  return type == OutType::kFloat32 ? "float32" : type == OutType::kFloat16 ? "float16" : "bfloat16";
}

// ---- products -----------------------------------------------------------------------------------

struct Shape {
  const char* what;
  int64_t a_batch, b_batch;  // 0: no batch axis
  int64_t m, n, k;

  int64_t batch() const { return std::max<int64_t>({1, a_batch, b_batch}); }
  std::string label() const {
    const auto rows = [](int64_t batch, int64_t extent) {
      return (batch != 0 ? std::to_string(batch) + " x " : std::string()) + std::to_string(extent);
    };
    return std::string(what) + ", m " + rows(a_batch, m) + ", n " + rows(b_batch, n) + ", k " + std::to_string(k);
  }
};

// On both sides of every edge (128, 256), through every named route: k % 16, m % 4 and n % 4 (scales), n * size % 16
// (store).
constexpr Shape kShapes[] = {
    {"one tile", 0, 0, 128, 256, 128},
    {"below every edge", 0, 0, 127, 255, 127},
    {"above every edge", 0, 0, 129, 257, 129},
    {"all by TMA, ragged", 0, 0, 204, 392, 400},
    {"scales of a by cp.async", 0, 0, 130, 264, 384},
    {"scales of b by cp.async", 0, 0, 132, 130, 256},
    {"float32 by TMA, others by elements", 0, 0, 132, 260, 256},
    {"padded rows", 0, 0, 132, 264, 200},
    {"the ring wraps", 0, 0, 68, 136, 2512},
    {"the ring wraps, whole k blocks", 0, 0, 17, 200, 2560},
    {"several raster groups", 0, 0, 1156, 264, 1616},
    {"one row", 0, 0, 1, 384, 512},
    {"one column", 0, 0, 260, 1, 272},
    {"one of k", 0, 0, 5, 7, 1},
    {"batch of a", 3, 0, 70, 136, 144},
    {"batch of b", 0, 3, 72, 264, 144},
    {"batch of b, nothing by TMA but codes", 0, 3, 70, 133, 144},
    {"both batched", 3, 3, 72, 136, 272},
    {"both batched, whole k blocks", 3, 3, 72, 136, 384},
    {"batch of b, whole k blocks", 0, 3, 5, 133, 2432},
    {"both batched, every route", 2, 2, 129, 257, 130},
    {"more tiles than SMs", 0, 0, 1540, 2824, 144},
    {"more tiles than SMs, batched", 24, 24, 132, 520, 144},
    {"more tiles than SMs, every route", 0, 0, 1541, 2825, 137},
    {"no k", 2, 2, 5, 9, 0},
    {"no rows", 0, 0, 0, 256, 128},
    {"no columns", 0, 0, 128, 0, 128},
};

// One operand: codes [batch][rows][k], scales [batch][scale rows][k blocks].
struct Operand {
  int64_t batch, rows, k;
  int rows_per_scale;
  std::vector<uint8_t> codes;
  std::vector<float> scales;

  Operand(int64_t batch, int64_t rows, int64_t k, int rows_per_scale)
      : batch(batch),
        rows(rows),
        k(k),
        rows_per_scale(rows_per_scale),
        codes(static_cast<size_t>(batch * rows * k)),
        scales(static_cast<size_t>(batch * scale_rows() * k_blocks())) {}

  int64_t scale_rows() const { return ceil_div(rows, rows_per_scale); }
  int64_t k_blocks() const { return ceil_div(k, kScaleBlock); }
  float scale(int64_t b, int64_t row, int64_t kb) const {
    return scales[static_cast<size_t>((b * scale_rows() + row / rows_per_scale) * k_blocks() + kb)];
  }

  // As the kernels read them: 1x128 blocks [k blocks][batch][rows], 128x128 blocks as they are.
  std::vector<float> device_scales() const {
    if (rows_per_scale != 1) return scales;
    std::vector<float> result;
    result.reserve(scales.size());
    for (int64_t kb = 0; kb < k_blocks(); ++kb) {
      for (int64_t b = 0; b < batch; ++b) {
        for (int64_t row = 0; row < rows; ++row) result.push_back(scale(b, row, kb));
      }
    }
    return result;
  }
};

struct Operands {
  Operand a, b;

  Operands(const Shape& s, int rows_per_b_scale)
      : a(std::max<int64_t>(s.a_batch, 1), s.m, s.k, 1),
        b(std::max<int64_t>(s.b_batch, 1), s.n, s.k, rows_per_b_scale) {}
};

// Integers -4 ... 4 times powers of two 1/4 ... 2: sums are multiples of 1/16 and, for k <= 2512, below 2^18.
Operands integer_operands(const Shape& s, int rows_per_b_scale) {
  std::mt19937 random(1);
  Operands operands(s, rows_per_b_scale);
  for (Operand* operand : {&operands.a, &operands.b}) {
    for (uint8_t& code : operand->codes) code = nearest_e4m3(static_cast<float>(static_cast<int>(random() % 9) - 4));
    for (float& scale : operand->scales) scale = std::ldexp(1.f, static_cast<int>(random() % 4) - 2);
  }
  return operands;
}

// Every finite code and any scale: sums that depend on their order.
Operands rounding_operands(const Shape& s, int rows_per_b_scale) {
  std::mt19937 random(2);
  Operands operands(s, rows_per_b_scale);
  for (Operand* operand : {&operands.a, &operands.b}) {
    for (uint8_t& code : operand->codes) {
      do code = static_cast<uint8_t>(random());
      while ((code & 0x7f) == kNanCode);
    }
    for (float& scale : operand->scales) scale = std::uniform_real_distribution<float>(0.5f, 2.f)(random);
  }
  return operands;
}

// [batch][m][n], for integer_operands.
std::vector<double> reference(const Shape& s, const Operands& operands) {
  const auto integers = [](const Operand& operand) {
    std::vector<int8_t> values;
    values.reserve(operand.codes.size());
    for (const uint8_t code : operand.codes) values.push_back(static_cast<int8_t>(e4m3_value(code)));
    return values;
  };
  const auto a_values = integers(operands.a), b_values = integers(operands.b);
  std::vector<double> out;
  out.reserve(static_cast<size_t>(s.batch() * s.m * s.n));
  for (int64_t batch = 0; batch < s.batch(); ++batch) {
    const int64_t a_index = s.a_batch != 0 ? batch : 0, b_index = s.b_batch != 0 ? batch : 0;
    for (int64_t row = 0; row < s.m; ++row) {
      const int8_t* a_row = a_values.data() + (a_index * s.m + row) * s.k;
      for (int64_t column = 0; column < s.n; ++column) {
        const int8_t* b_row = b_values.data() + (b_index * s.n + column) * s.k;
        double sum = 0;
        for (int64_t kb = 0; kb < operands.a.k_blocks(); ++kb) {
          int partial = 0;
          const int64_t end = std::min<int64_t>((kb + 1) * kScaleBlock, s.k);
          for (int64_t k = kb * kScaleBlock; k < end; ++k) partial += a_row[k] * b_row[k];
          sum += double{operands.a.scale(a_index, row, kb)} * operands.b.scale(b_index, column, kb) * partial;
        }
        out.push_back(sum);
      }
    }
  }
  return out;
}

MatmulProblem make_problem(const Shape& s, int rows_per_b_scale, OutType out) {
  const auto dims = [](int64_t batch, int64_t rows, int64_t columns) {
    return batch != 0 ? std::vector<int64_t>{batch, rows, columns} : std::vector<int64_t>{rows, columns};
  };
  const int64_t k_blocks = ceil_div(s.k, kScaleBlock);
  return jax_fp8::host::matmul_problem(dims(s.a_batch, s.m, s.k), dims(s.a_batch, s.m, k_blocks),
                                       dims(s.b_batch, s.n, s.k),
                                       dims(s.b_batch, ceil_div(s.n, rows_per_b_scale), k_blocks),
                                       dims(std::max(s.a_batch, s.b_batch), s.m, s.n), rows_per_b_scale, out);
}

// A product on the device, ready to run.
class DeviceProduct {
 public:
  DeviceProduct(const MatmulProblem& problem, const Operands& operands)
      : problem_(problem),
        a_(operands.a.codes),
        a_scales_(operands.a.device_scales()),
        b_(operands.b.codes),
        b_scales_(operands.b.device_scales()),
        out_(problem.batch * problem.m * problem.n * size_of(problem.out)),
        scratch_(scratch_bytes(problem)) {}

  // The bits of the result.
  std::vector<uint32_t> run(const std::string& config) {
    out_.poison();
    scratch_.poison();
    run_matmul(problem_, {a_.data(), a_scales_.data(), b_.data(), b_scales_.data(), out_.data()}, scratch_.data(),
               config, kDevice, stream_.get());
    stream_.finish();
    if (problem_.out == OutType::kFloat32) return out_.read<uint32_t>();
    const auto narrow = out_.read<uint16_t>();
    return {narrow.begin(), narrow.end()};
  }

  std::string guard_problem() const {
    return ::guard_problem({{"a", &a_},
                            {"a.scales", &a_scales_},
                            {"b", &b_},
                            {"b.scales", &b_scales_},
                            {"the result", &out_},
                            {"scratch", &scratch_}});
  }

 private:
  MatmulProblem problem_;
  Buffer a_, a_scales_, b_, b_scales_, out_, scratch_;
  Stream stream_;
};

std::string compare(const Shape& s, OutType type, const std::vector<uint32_t>& got,
                    const std::vector<double>& expected) {
  const uint32_t negative_zero = type == OutType::kFloat32 ? 1u << 31 : 1u << 15;
  if (got.size() != expected.size()) return "the reference has another size";
  size_t wrong = 0, first = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    if ((got[i] == negative_zero ? 0 : got[i]) == out_bits(expected[i], type)) continue;
    if (wrong++ == 0) first = i;
  }
  if (wrong == 0) return {};
  char line[200];
  const auto index = static_cast<int64_t>(first);
  std::snprintf(line, sizeof line, "%zu of %zu differ; first (%lld, %lld, %lld): 0x%x, not 0x%x (%g)", wrong,
                expected.size(), static_cast<long long>(index / (s.m * s.n)), static_cast<long long>(index / s.n % s.m),
                static_cast<long long>(index % s.n), got[first], out_bits(expected[first], type), expected[first]);
  return line;
}

bool scales_by_copy(const std::string& config, const MatmulProblem& problem) {
  if (problem.is_empty() || problem.k == 0) return false;
  const int num_sms = jax_fp8::host::device_info(kDevice).num_sms;
  const auto family = select_config(problem, num_sms, config).candidate.config().family;
  return problem.scales_by_copy() || family == jax_fp8::tile::Family::kSwapped;
}

std::string matmul_label(const char* kind, const std::string& config, const MatmulProblem& problem, const Shape& s) {
  return std::string(kind) + " " + (config.empty() ? "automatic" : config) + " " + name_of(problem.out) + " b " +
         std::to_string(problem.rows_per_b_scale) + "x128: " + s.label() +
         (scales_by_copy(config, problem) ? ", scales by cp.async" : "");
}

// All configurations and the automatic choice, all output types, both granularities. Adds to `launched` what ran.
void test_matmul(Report& report, const Shape& s, std::set<int>& launched) {
  const int num_sms = jax_fp8::host::device_info(kDevice).num_sms;
  for (const int rows : {int{kScaleBlock}, 1}) {
    std::optional<Operands> operands;
    std::vector<double> expected;
    for (const OutType out : jax_fp8::tile::kOutTypes) {
      const MatmulProblem problem = make_problem(s, rows, out);
      auto configs = candidates(problem);
      configs.emplace_back();
      for (const std::string& config : configs) {
        report.run(matmul_label("matmul", config, problem, s), [&] {
          if (!operands) {
            operands = integer_operands(s, rows);
            expected = reference(s, *operands);
          }
          DeviceProduct product(problem, *operands);
          const auto got = product.run(config);
          if (s.m * s.n * s.k != 0) launched.insert(select_config(problem, num_sms, config).candidate.index);
          const std::string guards = product.guard_problem();
          return guards.empty() ? compare(s, out, got, expected) : guards;
        });
      }
    }
  }
}

void test_repeats(Report& report, const Shape& s) {
  for (const int rows : {int{kScaleBlock}, 1}) {
    const MatmulProblem problem = make_problem(s, rows, OutType::kFloat32);
    for (const std::string& config : candidates(problem)) {
      report.run(matmul_label("repeats of", config, problem, s), [&]() -> std::string {
        DeviceProduct product(problem, rounding_operands(s, rows));
        const auto first = product.run(config);
        for (const uint32_t bits : first) {
          if ((bits & 0x7fffffff) >= 0x7f800000) return "the result isn't finite";
        }
        for (int i = 1; i < options.repeats; ++i) {
          if (product.run(config) != first) return "run " + std::to_string(i) + " gave other bits than run 0";
        }
        return product.guard_problem();
      });
    }
  }
}

// ---- quantisation -------------------------------------------------------------------------------

struct Array {
  int64_t batch;
  int rows, columns;
};
constexpr Array kArrays[] = {{1, 128, 128}, {1, 127, 129}, {3, 130, 257}, {2, 1, 1}, {1, 5, 300}, {1, 300, 2}};

// Bits of an array whose 128x128 tiles differ in magnitude: ordinary, all zero, tiny, huge, or with one infinity or
// NaN.
std::vector<uint32_t> quantize_input(const InFormat& format, const Array& x) {
  enum Kind { kOrdinary, kZero, kSubnormal, kTiny, kHuge, kInfinity, kNan, kKinds };
  std::mt19937 random(3);
  const auto max = static_cast<int>(format.max_exponent());
  std::vector<uint32_t> bits(static_cast<size_t>(x.batch * x.rows * x.columns));
  const int64_t tiles_r = ceil_div(x.rows, kScaleBlock), tiles_c = ceil_div(x.columns, kScaleBlock);
  for (int64_t tile = 0; tile < x.batch * tiles_r * tiles_c; ++tile) {
    const auto kind = static_cast<Kind>(tile == 0 ? 0 : random() % kKinds);
    const int top = kind == kTiny ? 12 : kind == kHuge ? max - 1 : max / 2 + static_cast<int>(random() % 8);
    const int64_t first_row = tile / tiles_c % tiles_r * kScaleBlock, first_column = tile % tiles_c * kScaleBlock;
    const int64_t last_row = std::min<int64_t>(first_row + kScaleBlock, x.rows);
    const int64_t last_column = std::min<int64_t>(first_column + kScaleBlock, x.columns);
    const int64_t batch = tile / (tiles_r * tiles_c);
    const auto at = [&](int64_t row, int64_t column) -> uint32_t& {
      return bits[static_cast<size_t>((batch * x.rows + row) * x.columns + column)];
    };
    for (int64_t row = first_row; row < last_row; ++row) {
      for (int64_t column = first_column; column < last_column; ++column) {
        const int exponent = std::max(0, top - static_cast<int>(random() % 12));
        const auto mantissa = static_cast<uint32_t>(random() % (1u << format.mantissa_bits));
        at(row, column) =
            kind == kZero
                ? 0
                : format.bits(random() % 2 != 0, kind == kSubnormal ? 0 : static_cast<uint32_t>(exponent), mantissa);
      }
    }
    if (kind == kInfinity || kind == kNan) {
      const auto rows = static_cast<uint32_t>(last_row - first_row),
                 columns = static_cast<uint32_t>(last_column - first_column);
      at(first_row + random() % rows, first_column + random() % columns) =
          format.bits(random() % 2 != 0, format.max_exponent(), kind == kNan ? 1 : 0);
    }
  }
  return bits;
}

// The numeric contract, for one block.
float expected_scale(float amax, bool is_finite, bool power_of_two) {
  if (!is_finite) return std::bit_cast<float>(0x7fc00000);
  float scale = amax * std::bit_cast<float>(0x3b124925);
  if (power_of_two) {
    int exponent = amax == 0.f ? -200 : std::ilogb(amax) - 9;
    while (std::ldexp(448.0, exponent) < amax) ++exponent;
    scale = std::ldexp(1.f, exponent);
  }
  return std::max(scale, std::numeric_limits<float>::min());
}

// What quantisation of lines [batch][lines] along their k positions must give; at(batch, line, k) is the input.
struct Expected {
  std::vector<uint8_t> codes;  // [batch][lines][ks]
  std::vector<float> scales;   // in the kernels' order
};

template <typename At>
Expected expected_quantization(int64_t batch, int lines, int ks, bool square_blocks, bool power_of_two, At&& at) {
  const int64_t rows_per_scale = square_blocks ? kScaleBlock : 1;
  const int64_t scale_rows = ceil_div(lines, rows_per_scale), k_blocks = ceil_div(ks, kScaleBlock);
  Expected expected{std::vector<uint8_t>(static_cast<size_t>(batch * lines * ks)),
                    std::vector<float>(static_cast<size_t>(batch * scale_rows * k_blocks))};
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t scale_row = 0; scale_row < scale_rows; ++scale_row) {
      for (int64_t kb = 0; kb < k_blocks; ++kb) {
        const auto for_each = [&](auto&& visit) {
          for (int64_t line = scale_row * rows_per_scale;
               line < std::min<int64_t>((scale_row + 1) * rows_per_scale, lines); ++line) {
            for (int64_t k = kb * kScaleBlock; k < std::min<int64_t>((kb + 1) * kScaleBlock, ks); ++k) {
              const float x = at(b, line, k);
              visit((b * lines + line) * ks + k, std::fabs(x) < std::numeric_limits<float>::min() ? 0.f : x);
            }
          }
        };
        float amax = 0;
        bool is_finite = true;
        for_each([&](int64_t, float x) {
          is_finite = is_finite && std::isfinite(x);
          amax = std::max(amax, std::fabs(x));
        });
        const float scale = expected_scale(amax, is_finite, power_of_two), inverse = 1.f / scale;
        for_each([&](int64_t i, float x) {
          expected.codes[static_cast<size_t>(i)] =
              is_finite ? nearest_e4m3(std::clamp(x * inverse, -448.f, 448.f)) : kNanCode;
        });
        const int64_t place =
            square_blocks ? (b * scale_rows + scale_row) * k_blocks + kb : (kb * batch + b) * lines + scale_row;
        expected.scales[static_cast<size_t>(place)] = scale;
      }
    }
  }
  return expected;
}

// Device memory of one orientation's results.
struct DeviceOrientation {
  Buffer codes, scales;

  explicit DeviceOrientation(const Expected& expected)
      : codes(static_cast<int64_t>(expected.codes.size())), scales(static_cast<int64_t>(4 * expected.scales.size())) {}

  jax_fp8::quantize::Orientation get() const { return {codes.as<uint8_t>(), scales.as<float>()}; }

  std::string compare(const char* name, const Expected& expected) const {
    const auto got_scales = scales.read<uint32_t>();
    for (size_t i = 0; i < got_scales.size(); ++i) {
      if (got_scales[i] != std::bit_cast<uint32_t>(expected.scales[i])) {
        return std::string(name) + ": scale " + std::to_string(i) + " of " + std::to_string(got_scales.size()) +
               " has bits " + std::to_string(got_scales[i]) + ", not " +
               std::to_string(std::bit_cast<uint32_t>(expected.scales[i]));
      }
    }
    const auto got_codes = codes.read<uint8_t>();
    for (size_t i = 0; i < got_codes.size(); ++i) {
      if (got_codes[i] != expected.codes[i]) {
        return std::string(name) + ": code " + std::to_string(i) + " of " + std::to_string(got_codes.size()) + " is " +
               std::to_string(got_codes[i]) + ", not " + std::to_string(expected.codes[i]);
      }
    }
    return guard_problem({{"codes", &codes}, {"scales", &scales}});
  }
};

std::string run_quantize_case(InType in, const Array& x, bool square_blocks, bool power_of_two, bool along_columns,
                              bool along_rows) {
  const InFormat& format = kInFormats[static_cast<size_t>(in)];
  const auto bits = quantize_input(format, x);
  const auto at = [&](int64_t b, int64_t row, int64_t column) {
    return format.value(bits[static_cast<size_t>((b * x.rows + row) * x.columns + column)]);
  };
  const Expected by_columns = expected_quantization(x.batch, x.rows, x.columns, square_blocks, power_of_two, at);
  const Expected by_rows =
      expected_quantization(x.batch, x.columns, x.rows, square_blocks, power_of_two,
                            [&](int64_t b, int64_t column, int64_t row) { return at(b, row, column); });
  const Buffer input = format.bytes() == 4 ? Buffer(bits) : Buffer(std::vector<uint16_t>(bits.begin(), bits.end()));
  const DeviceOrientation columns(by_columns), rows(by_rows);
  jax_fp8::quantize::QuantizeParams params{};
  params.x = input.data();
  params.batch = x.batch;
  params.rows = x.rows;
  params.columns = x.columns;
  params.square_blocks = square_blocks;
  params.power_of_two = power_of_two;
  if (along_columns) params.along_columns = columns.get();
  if (along_rows) params.along_rows = rows.get();
  const Stream stream;
  jax_fp8::host::run_quantize(in, params, kDevice, stream.get());
  stream.finish();
  std::string problem = along_columns ? columns.compare("along columns", by_columns) : std::string();
  if (problem.empty() && along_rows) problem = rows.compare("along rows", by_rows);
  return problem.empty() ? guard_problem({{"x", &input}}) : problem;
}

void test_quantize(Report& report, InType in, const Array& x) {
  for (const bool square_blocks : {false, true}) {
    for (const bool power_of_two : {false, true}) {
      for (const auto& [along_columns, along_rows] : {std::pair{true, false}, {false, true}, {true, true}}) {
        const std::string label = std::string("quantize ") + kInFormats[static_cast<size_t>(in)].name + " in " +
                                  (square_blocks ? "128x128" : "1x128") + (power_of_two ? ", powers of two" : "") +
                                  ", along" + (along_columns ? " columns" : "") + (along_rows ? " rows" : "") + ": " +
                                  std::to_string(x.batch) + " x " + std::to_string(x.rows) + " x " +
                                  std::to_string(x.columns);
        report.run(label, [&, along_columns = along_columns, along_rows = along_rows] {
          return run_quantize_case(in, x, square_blocks, power_of_two, along_columns, along_rows);
        });
      }
    }
  }
}

// ---- benchmark ----------------------------------------------------------------------------------

class Event {
 public:
  Event() { check(cudaEventCreate(&event_), "cudaEventCreate"); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() { cudaEventDestroy(event_); }

  void record(const Stream& stream) { check(cudaEventRecord(event_, stream.get()), "cudaEventRecord"); }
  double us_since(const Event& start) const {
    check(cudaEventSynchronize(event_), "cudaEventSynchronize");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, start.event_, event_), "cudaEventElapsedTime");
    return 1000.0 * ms;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

// Codes and scales of normally distributed values, quantised on the device.
struct NormalOperand {
  Buffer codes, scales;

  NormalOperand(int64_t rows, int64_t k, int rows_per_scale, uint32_t seed)
      : codes(rows * k), scales(4 * ceil_div(rows, rows_per_scale) * ceil_div(k, kScaleBlock)) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> period((1 << 20) - 3), values(static_cast<size_t>(rows * k));  // an odd period: rows differ
    for (float& x : period) x = normal(random);
    for (size_t i = 0; i < values.size(); ++i) values[i] = period[i % period.size()];
    const Buffer input(values);
    const Stream stream;
    jax_fp8::quantize::QuantizeParams params{};
    params.x = input.data();
    params.batch = 1;
    params.rows = static_cast<int>(rows);
    params.columns = static_cast<int>(k);
    params.square_blocks = rows_per_scale == kScaleBlock;
    params.along_columns = {codes.as<uint8_t>(), scales.as<float>()};
    jax_fp8::host::run_quantize(InType::kFloat32, params, kDevice, stream.get());
    stream.finish();
  }
};

void bench(int64_t m, int64_t n, int64_t k) {
  constexpr int kRuns = 21;
  constexpr size_t kFlushBytes = size_t{256} << 20;  // five times the L2 of an H100
  const Shape shape{"bench", 0, 0, m, n, k};
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, kDevice), "cudaGetDeviceProperties");
  std::printf("%s, m %lld, n %lld, k %lld, bfloat16, median of %d (fastest, slowest), cold L2\n", properties.name,
              static_cast<long long>(m), static_cast<long long>(n), static_cast<long long>(k), kRuns);
  const bool is_large = m > 256;  // and heats the chip
  const auto idle = std::chrono::milliseconds(is_large ? 100 : 20);
  const NormalOperand a(m, k, 1, 1);
  const Buffer out(2 * m * n), flush(static_cast<int64_t>(kFlushBytes));
  const Stream stream;
  for (const int rows : {int{kScaleBlock}, 1}) {
    if (rows == 1 && !is_large) continue;
    const NormalOperand b(n, k, rows, 2);
    const MatmulProblem problem = make_problem(shape, rows, OutType::kBfloat16);
    const Buffer scratch(scratch_bytes(problem));
    const auto run = [&](const std::string& config) {
      run_matmul(problem, {a.codes.data(), a.scales.data(), b.codes.data(), b.scales.data(), out.data()},
                 scratch.data(), config, kDevice, stream.get());
    };
    auto configs = candidates(problem);
    configs.emplace_back();
    for (const std::string& config : configs) {
      if (config.find(options.filter) == std::string::npos) continue;
      const auto choice = select_config(problem, jax_fp8::host::device_info(kDevice).num_sms, config);
      const auto& tile = choice.candidate.config();
      const bool for_few_rows = tile.family != jax_fp8::tile::Family::kTile || choice.candidate.split() > 1;
      if (for_few_rows && tile.block_m * 16 < m) continue;
      std::this_thread::sleep_for(idle);
      for (int i = 0; i < 3; ++i) run(config);
      for (int i = 0; i < 10; ++i) {  // the host runs ahead from here on: nothing waits for it
        check(cudaMemsetAsync(flush.data(), i, kFlushBytes, stream.get()), "cudaMemsetAsync");
      }
      std::array<Event, kRuns> starts, stops;
      for (int i = 0; i < kRuns; ++i) {
        check(cudaMemsetAsync(flush.data(), i, kFlushBytes, stream.get()), "cudaMemsetAsync");
        starts[i].record(stream);
        run(config);
        stops[i].record(stream);
      }
      stream.finish();
      std::vector<double> us;
      for (int i = 0; i < kRuns; ++i) us.push_back(stops[i].us_since(starts[i]));
      std::ranges::sort(us);
      const double tflops =
          2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) / us[kRuns / 2] / 1e6;
      const std::string chosen = config.empty() ? "automatic (" + choice.candidate.name() + ")" : config;
      std::printf("b %dx128  %-20s %9.1f us (%.1f, %.1f)  %7.1f TFLOP/s\n", rows, chosen.c_str(), us[kRuns / 2],
                  us.front(), us.back(), tflops);
    }
  }
}

int test() {
  Report report;
  for (const InType in : {InType::kFloat32, InType::kBfloat16, InType::kFloat16}) {
    for (const Array& x : kArrays) test_quantize(report, in, x);
  }
  std::set<int> launched;
  for (const Shape& s : kShapes) test_matmul(report, s, launched);
  for (const Shape& s : kShapes) {
    const std::string what = s.what;
    if (what.starts_with("the ring wraps") || what.starts_with("more tiles than SMs")) test_repeats(report, s);
  }
  if (options.filter.empty() && options.skip.empty()) {
    report.run("every configuration of the table was launched", [&] {
      const size_t all = jax_fp8::tile::kSm90Configs.size();
      return launched.size() == all ? "" : std::to_string(launched.size()) + " of " + std::to_string(all);
    });
  }
  return report.finish();
}

[[noreturn]] void usage() {
  std::fprintf(stderr,
               "jax_fp8_driver [--exact] [--filter TEXT] [--skip TEXT] [--repeats N] | --bench M N K [--bench ...]\n");
  std::exit(2);
}

}  // namespace

int main(int argc, char** argv) try {
  std::vector<int64_t> bench_shape;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    const auto value = [&]() -> const char* { return i + 1 < argc ? argv[++i] : (usage(), nullptr); };
    if (option == "--exact") {
      options.exact = true;
    } else if (option == "--filter") {
      options.filter = value();
    } else if (option == "--skip") {
      options.skip = value();
    } else if (option == "--repeats") {
      options.repeats = std::atoi(value());
    } else if (option == "--bench") {
      for (int axis = 0; axis < 3; ++axis) bench_shape.push_back(std::atoll(value()));
    } else {
      usage();
    }
  }
  if (!jax_fp8::host::device_info(kDevice).is_hopper()) throw std::runtime_error("device 0 is no Hopper GPU");
  if (bench_shape.empty()) return test();
  options.exact = true;  // aligned as XLA's buffers are: a box that starts off a 128-byte line reads twice the lines
  for (size_t i = 0; i < bench_shape.size(); i += 3) bench(bench_shape[i], bench_shape[i + 1], bench_shape[i + 2]);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "jax_fp8_driver: %s\n", error.what());
  return 1;
}
