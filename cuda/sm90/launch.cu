// Instantiates the Hopper kernels for every configuration of the table, and starts them.
#include "sm90/launch.h"

#include <utility>

#include "ptx/kernel.h"
#include "sm90/kernel.h"
#include "sm90/swapped_kernel.h"
#include "tile/sm90_configs.h"

namespace jax_fp8::sm90 {
namespace {

using Kernel = void (*)(tile::MatmulParams);

struct Entry {
  Kernel kernel;
  int shared_bytes;  // and further ones for
  int stage_bytes;   // each slot of a ring of params.stages
  int split_bytes;   // sums over a cluster

  int bytes(int stages, bool splits) const { return shared_bytes + stages * stage_bytes + (splits ? split_bytes : 0); }
};

template <tile::TileConfig C>
constexpr Entry entry() {
  if constexpr (C.family == tile::Family::kTile) {
    static_assert(sizeof(SharedStorage<C>) <= tile::max_shared_bytes(1), "more shared memory than an SM has");
    return {blockwise_fp8_matmul_sm90<Configured<C>>, sizeof(SharedStorage<C>), 0, 0};
  } else {
    constexpr int kRing = C.stages * C.stage_bytes(), kHead = static_cast<int>(sizeof(SwappedStorage<C>)) - kRing;
    static_assert(kHead == tile::kSwappedHeadBytes && kHead + kRing <= tile::max_shared_bytes(1));
    return {blockwise_fp8_matmul_swapped_sm90<Configured<C>>, kHead, C.stage_bytes(), C.sum_bytes()};
  }
}

template <size_t... I>
auto entries(std::index_sequence<I...>) {
  return std::array<Entry, sizeof...(I)>{{entry<tile::kSm90Configs[I]>()...}};
}

const auto kEntries = entries(std::make_index_sequence<tile::kSm90Configs.size()>());

}  // namespace

cudaError_t prepare() {
  for (const Entry& entry : kEntries) {
    const int most = entry.stage_bytes > 0 ? tile::max_shared_bytes(1) : entry.bytes(0, true);
    if (const auto error = ptx::reserve_shared_memory(entry.kernel, most)) return error;
  }
  return cudaSuccess;
}

cudaError_t launch(int index, const tile::MatmulParams& params, const ptx::LaunchShape& shape, cudaStream_t stream) {
  const Entry& entry = kEntries[static_cast<size_t>(index)];
  return ptx::launch(entry.kernel, shape, entry.bytes(params.stages, shape.cluster > 1), stream, params);
}

}  // namespace jax_fp8::sm90
