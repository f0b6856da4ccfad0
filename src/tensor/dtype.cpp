#include "tensor/dtype.h"

#include <array>
#include <cstddef>

namespace trine {
namespace {

// Sizes: docs/formats/gguf-blocks.md, from the GGUF specification.
constexpr std::array<DTypeInfo, kNumDTypes> kInfos{{
    {"F32", 1, 4, true},          {"F16", 1, 2, true},          {"BF16", 1, 2, true},
    {"F64", 1, 8, true},          {"F8_E4M3", 1, 1, true},      {"F8_E5M2", 1, 1, true},
    {"I8", 1, 1, false},          {"I16", 1, 2, false},         {"I32", 1, 4, false},
    {"I64", 1, 8, false},         {"U8", 1, 1, false},          {"U16", 1, 2, false},
    {"U32", 1, 4, false},         {"U64", 1, 8, false},         {"BOOL", 1, 1, false},
    {"Q4_0", 32, 18, true},       {"Q4_1", 32, 20, true},       {"Q5_0", 32, 22, true},
    {"Q5_1", 32, 24, true},       {"Q8_0", 32, 34, true},       {"Q8_1", 32, 36, true},
    {"Q2_K", 256, 84, true},      {"Q3_K", 256, 110, true},     {"Q4_K", 256, 144, true},
    {"Q5_K", 256, 176, true},     {"Q6_K", 256, 210, true},     {"IQ4_NL", 32, 18, true},
    {"IQ4_XS", 256, 136, true},   {"MXFP4", 32, 17, true},      {"NVFP4", 64, 36, true},
    {"TQ1_0", 256, 54, true},     {"TQ2_0", 256, 66, true},     {"Q1_0", 128, 18, true},
    {"Q2_0", 64, 18, true},       {"IQ2_XXS", 256, 66, false},  {"IQ2_XS", 256, 74, false},
    {"IQ2_S", 256, 82, false},    {"IQ3_XXS", 256, 98, false},  {"IQ3_S", 256, 110, false},
    {"IQ1_S", 256, 50, false},    {"IQ1_M", 256, 56, false},    {"F8_E8M0", 1, 1, false},
    {"F8_E4M3FNUZ", 1, 1, false}, {"F8_E5M2FNUZ", 1, 1, false}, {"F4", 2, 1, false},
    {"F6_E2M3", 4, 3, false},     {"F6_E3M2", 4, 3, false},     {"C64", 1, 8, false},
}};

}  // namespace

const DTypeInfo& dtype_info(DType type) {
  return kInfos[static_cast<std::size_t>(type)];
}

std::optional<std::int64_t> dtype_row_bytes(DType type, std::int64_t elems) {
  const DTypeInfo& info = dtype_info(type);
  if (elems < 0 || elems % info.block_elems != 0) {
    return std::nullopt;
  }
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(elems / info.block_elems, std::int64_t{info.block_bytes}, &bytes)) {
    return std::nullopt;
  }
  return bytes;
}

}  // namespace trine
