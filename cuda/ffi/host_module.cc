// The Python module `jax_fp8._host`: choice of configurations, without CUDA.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "host/problem.h"
#include "host/select.h"

namespace nb = nanobind;
using jax_fp8::host::Choice;
using jax_fp8::host::MatmulProblem;

namespace {

MatmulProblem problem(int64_t batch, int64_t m, int64_t n, int64_t k, int rows_per_b_scale, const std::string& out) {
  using jax_fp8::tile::OutType;
  const OutType type = out == "float32" ? OutType::kFloat32 : out == "float16" ? OutType::kFloat16 : OutType::kBfloat16;
  return {.batch = batch,
          .a_batch = batch,
          .b_batch = batch,
          .m = m,
          .n = n,
          .k = k,
          .rows_per_b_scale = rows_per_b_scale,
          .out = type};
}

nb::dict select_config(int64_t batch, int64_t m, int64_t n, int64_t k, int rows_per_b_scale, const std::string& out,
                       int num_sms, const std::string& config) {
  const MatmulProblem p = problem(batch, m, n, k, rows_per_b_scale, out);
  const Choice choice = jax_fp8::host::select_config(p, num_sms, config);
  nb::dict result;
  const auto& tile = choice.candidate.config();
  result["name"] = choice.candidate.name();
  result["block_m"] = tile.block_m;
  result["block_n"] = tile.block_n;
  result["split"] = choice.candidate.split();
  result["stages"] = choice.stages;
  result["raster_group"] = choice.grid.raster_group;
  result["num_ctas"] = choice.launch.num_blocks();
  result["waves"] = choice.waves;
  result["predicted_us"] = choice.cost_us;
  result["reason"] = choice.reason();
  // what is slower than it could be: kSwapped always copies scales, and stores four elements at once
  const bool is_tile = tile.family == jax_fp8::tile::Family::kTile;
  result["scales_by_copy"] = is_tile && p.scales_by_copy();
  result["stores_elements"] = is_tile ? !p.store_by_tma() : p.n % 4 != 0;
  result["pads_k"] = p.pads_k();
  return result;
}

std::vector<std::string> config_names(int rows_per_b_scale, const std::string& out) {
  return jax_fp8::host::candidates(problem(1, 1, 1, 1, rows_per_b_scale, out));
}

}  // namespace

NB_MODULE(_host, m) {
  m.attr("build_id") = JAX_FP8_BUILD_ID;
  m.def("select_config", &select_config, nb::arg("batch"), nb::arg("m"), nb::arg("n"), nb::arg("k"),
        nb::arg("rows_per_b_scale"), nb::arg("out"), nb::arg("num_sms"), nb::arg("config") = "");
  m.def("config_names", &config_names, nb::arg("rows_per_b_scale"), nb::arg("out"));
}
