#include "kernels/dispatch.h"

#include <array>
#include <cstddef>

namespace trine::kernels {
namespace {

// In the order of IsaLevel.
template <typename Table>
using PerLevel = std::array<const Table*, kNumIsaLevels>;

// The float families have nothing for the int8 units: those levels use the tables below them.
template <typename Table>
constexpr PerLevel<Table> float_levels(const Table& scalar, const Table& avx2,
                                       const Table& avx512) {
  return {&scalar, &avx2, &avx2, &avx512, &avx512, &avx512};
}

constexpr auto kLinear = float_levels(kLinearScalar, kLinearAvx2, kLinearAvx512);
constexpr auto kRowwise = float_levels(kRowwiseScalar, kRowwiseAvx2, kRowwiseAvx512);
constexpr auto kConvert = float_levels(kConvertScalar, kConvertAvx2, kConvertAvx512);
constexpr auto kAttention = float_levels(kAttentionScalar, kAttentionAvx2, kAttentionAvx512);
constexpr PerLevel<AttentionI8Table> kAttentionI8{&kAttentionI8Scalar,     &kAttentionI8Avx2,
                                                  &kAttentionI8AvxVnni,    &kAttentionI8Avx512,
                                                  &kAttentionI8Avx512Vnni, &kAttentionI8Avx512Vnni};
constexpr auto kSelect = float_levels(kSelectScalar, kSelectAvx2, kSelectAvx512);
constexpr auto kDequant = float_levels(kDequantScalar, kDequantAvx2, kDequantAvx512);
constexpr PerLevel<PackedTable> kPacked{&kPackedScalar, &kPackedAvx2,       &kPackedAvxVnni,
                                        &kPackedAvx512, &kPackedAvx512Vnni, &kPackedAmx};

constexpr PerLevel<LimitsTable> kLimits{&kLimitsScalar, &kLimitsAvx2,       &kLimitsAvxVnni,
                                        &kLimitsAvx512, &kLimitsAvx512Vnni, &kLimitsAmx};

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

const AttentionTable& attention_table(IsaLevel level) {
  return *kAttention[static_cast<std::size_t>(level)];
}

const AttentionI8Table& attention_i8_table(IsaLevel level) {
  return *kAttentionI8[static_cast<std::size_t>(level)];
}

const DequantTable& dequant_table(IsaLevel level) {
  return *kDequant[static_cast<std::size_t>(level)];
}

const SelectTable& select_table(IsaLevel level) {
  return *kSelect[static_cast<std::size_t>(level)];
}

const LimitsTable& limits_table(IsaLevel level) {
  return *kLimits[static_cast<std::size_t>(level)];
}

const PackedTable& packed_table(IsaLevel level) {
  return *kPacked[static_cast<std::size_t>(level)];
}

}  // namespace trine::kernels
