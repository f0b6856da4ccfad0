// The first byte picks a type, the rest are its blocks: every instruction set decodes them to the
// same bits.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/dispatch.h"

namespace {

bool same(float a, float b) {
  std::uint32_t x = 0;
  std::uint32_t y = 0;
  std::memcpy(&x, &a, sizeof x);
  std::memcpy(&y, &b, sizeof y);
  return x == y || (a != a && b != b);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  const auto type = static_cast<trine::DType>(data[0] % trine::kNumDTypes);
  const auto row = static_cast<std::size_t>(type);
  const trine::DTypeInfo& info = trine::dtype_info(type);
  if (!info.decodes_to_f32) {
    return 0;
  }
  const std::size_t blocks = (size - 1) / static_cast<std::size_t>(info.block_bytes);
  const std::size_t bytes = blocks * static_cast<std::size_t>(info.block_bytes);
  const std::size_t elems = blocks * static_cast<std::size_t>(info.block_elems);
  // An exact allocation, so that a read past the last block is seen.
  const auto input = std::make_unique<std::byte[]>(bytes);
  if (bytes > 0) {
    std::memcpy(input.get(), data + 1, bytes);
  }
  std::vector<float> expected(elems);
  trine::kernels::kDequantScalar.row[row](input.get(), expected.data(),
                                          static_cast<std::int64_t>(elems));
  for (const trine::IsaLevel level : trine::kAllIsaLevels) {
    if (!trine::missing_feature(level, trine::cpu_features()).empty()) {
      continue;
    }
    std::vector<float> got(elems);
    trine::kernels::dequant_table(level).row[row](input.get(), got.data(),
                                                  static_cast<std::int64_t>(elems));
    for (std::size_t i = 0; i < elems; ++i) {
      if (!same(got[i], expected[i])) {
        __builtin_trap();
      }
    }
  }
  return 0;
}
