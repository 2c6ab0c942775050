// Instantiates the Hopper kernel for every configuration of the table, and starts them.
#include "sm90/launch.h"

#include <utility>

#include "ptx/kernel.h"
#include "sm90/kernel.h"
#include "tile/sm90_configs.h"

namespace jax_fp8::sm90 {
namespace {

using Kernel = void (*)(tile::MatmulParams);

struct Entry {
  Kernel kernel;
  int shared_bytes;
};

template <tile::TileConfig C>
constexpr Entry entry() {
  static_assert(sizeof(SharedStorage<C>) <= kMaxSharedBytes, "the tile needs more shared memory than a block can have");
  return {blockwise_fp8_matmul_sm90<Configured<C>>, static_cast<int>(sizeof(SharedStorage<C>))};
}

template <size_t... I>
auto entries(std::index_sequence<I...>) {
  return std::array<Entry, sizeof...(I)>{{entry<tile::kSm90Configs[I]>()...}};
}

const auto kEntries = entries(std::make_index_sequence<tile::kSm90Configs.size()>());

}  // namespace

cudaError_t prepare() {
  for (const Entry& entry : kEntries) {
    if (const auto error = ptx::reserve_shared_memory(entry.kernel, entry.shared_bytes)) return error;
  }
  return cudaSuccess;
}

cudaError_t launch(int index, const tile::MatmulParams& params, int num_ctas, cudaStream_t stream) {
  const Entry& entry = kEntries[index];
  return ptx::launch(entry.kernel, num_ctas, tile::TileConfig::kThreads, entry.shared_bytes, stream, params);
}

}  // namespace jax_fp8::sm90
