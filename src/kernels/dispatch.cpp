#include "kernels/dispatch.h"

#include <array>
#include <cstddef>

namespace trine::kernels {
namespace {

// In the order of IsaLevel.
template <typename Table>
using PerLevel = std::array<const Table*, kNumIsaLevels>;

constexpr PerLevel<LinearTable> kLinear{&kLinearScalar, &kLinearAvx2, &kLinearAvx512};
constexpr PerLevel<RowwiseTable> kRowwise{&kRowwiseScalar, &kRowwiseAvx2, &kRowwiseAvx512};
constexpr PerLevel<ConvertTable> kConvert{&kConvertScalar, &kConvertAvx2, &kConvertAvx512};
constexpr PerLevel<AttentionTileTable> kAttentionTile{&kAttentionTileScalar, &kAttentionTileAvx2,
                                                      &kAttentionTileAvx512};
constexpr PerLevel<DequantTable> kDequant{&kDequantScalar, &kDequantAvx2, &kDequantAvx512};

}  // namespace

const LinearTable& linear_table(IsaLevel level) {
  return *kLinear[static_cast<std::size_t>(level)];
}

const RowwiseTable& rowwise_table(IsaLevel level) {
  return *kRowwise[static_cast<std::size_t>(level)];
}

const ConvertTable& convert_table(IsaLevel level) {
  return *kConvert[static_cast<std::size_t>(level)];
}

const AttentionTileTable& attention_tile_table(IsaLevel level) {
  return *kAttentionTile[static_cast<std::size_t>(level)];
}

const DequantTable& dequant_table(IsaLevel level) {
  return *kDequant[static_cast<std::size_t>(level)];
}

}  // namespace trine::kernels
