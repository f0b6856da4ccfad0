// Hand-made tensors of quantized matrices for tests: codes, zero points and scales in, the words of
// each layout out. Written from docs/formats/quantized-checkpoints.md alone.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/half.h"
#include "format/checkpoint.h"

namespace trine::test {

class TensorBag {
 public:
  template <typename T>
  TensorInfo& add(std::string name, DType dtype, std::vector<std::int64_t> shape,
                  const std::vector<T>& values) {
    auto bytes = std::make_shared<std::vector<std::byte>>(values.size() * sizeof(T));
    if (!values.empty()) {
      std::memcpy(bytes->data(), values.data(), bytes->size());
    }
    tensors.push_back({std::move(name), dtype, std::move(shape), {bytes->data(), bytes->size()}});
    keep.push_back(bytes);
    return tensors.back();
  }

  TensorInfo& at(std::string_view name) {
    for (TensorInfo& tensor : tensors) {
      if (tensor.name == name) {
        return tensor;
      }
    }
    return tensors.at(tensors.size());
  }

  void drop(std::string_view name) {
    std::erase_if(tensors, [name](const TensorInfo& t) { return t.name == name; });
  }

  Checkpoint checkpoint() const {
    std::vector<std::shared_ptr<const void>> alive(keep.begin(), keep.end());
    return Checkpoint::build("test", tensors, std::move(alive)).value();
  }

  std::vector<TensorInfo> tensors;
  std::vector<std::shared_ptr<std::vector<std::byte>>> keep;
};

// Lines of values as words, value i at bit i * bits of its line, or 32 / bits in each word.
inline std::vector<std::uint32_t> to_words(const std::vector<std::vector<unsigned>>& lines,
                                           int bits, bool spaced = false) {
  std::vector<std::uint32_t> out;
  const auto b = static_cast<std::size_t>(bits);
  for (const auto& line : lines) {
    const std::size_t per = 32 / b;
    const std::size_t words = spaced ? (line.size() + per - 1) / per : (line.size() * b + 31) / 32;
    const std::size_t base = out.size();
    out.resize(base + words);
    for (std::size_t i = 0; i < line.size(); ++i) {
      for (std::size_t k = 0; k < b; ++k) {
        const std::size_t bit = spaced ? i / per * 32 + i % per * b + k : i * b + k;
        out[base + bit / 32] |= (line[i] >> k & 1U) << (bit % 32);
      }
    }
  }
  return out;
}

inline std::vector<std::uint32_t> transpose(const std::vector<std::uint32_t>& in,
                                            std::size_t rows) {
  std::vector<std::uint32_t> out(in.size());
  const std::size_t cols = in.size() / rows;
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < cols; ++c) {
      out[c * rows + r] = in[r * cols + c];
    }
  }
  return out;
}

}  // namespace trine::test
