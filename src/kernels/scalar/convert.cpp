#include "kernels/convert.h"

#include <cstring>

#include "base/half.h"

namespace trine::kernels {
namespace {

template <float (*Convert)(std::uint16_t)>
void widen(const void* src, float* dst, std::int64_t n) {
  const auto* bytes = static_cast<const unsigned char*>(src);
  for (std::int64_t i = 0; i < n; ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, bytes + 2 * i, sizeof(bits));
    dst[i] = Convert(bits);
  }
}

template <std::uint16_t (*Convert)(float)>
void narrow(const float* src, void* dst, std::int64_t n) {
  auto* bytes = static_cast<unsigned char*>(dst);
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint16_t bits = Convert(src[i]);
    std::memcpy(bytes + 2 * i, &bits, sizeof(bits));
  }
}

}  // namespace

extern const ConvertTable kConvertScalar = {&widen<f16_to_f32>, &widen<bf16_to_f32>,
                                            &narrow<f32_to_f16>, &narrow<f32_to_bf16>};

}  // namespace trine::kernels
