// A linear layer with inputs whose spectrum and outliers are chosen: what quantizers are judged on
// without a model. Inputs are independent normals with deviations i^-exponent,
// mixed by a random matrix; then some channels are made larger.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

namespace trine::test {

struct SyntheticLayer {
  std::int64_t rows = 64, cols = 256, tokens = 2048;
  std::vector<float> w;         // [rows, cols]
  std::vector<float> x;         // [tokens, cols], to calibrate on
  std::vector<float> held_out;  // the same number of others

  SyntheticLayer(unsigned seed, double exponent, float outlier, std::int64_t num_rows = 64,
                 std::int64_t num_cols = 256, std::int64_t num_tokens = 2048)
      : rows(num_rows), cols(num_cols), tokens(num_tokens) {
    std::mt19937 rng(seed);
    std::normal_distribution<double> normal;
    w.resize(static_cast<std::size_t>(rows * cols));
    for (float& value : w) {
      value = static_cast<float>(normal(rng) / std::sqrt(static_cast<double>(cols)));
    }
    std::vector<float> mix(static_cast<std::size_t>(cols * cols));  // [source, channel]
    for (std::int64_t i = 0; i < cols; ++i) {
      const double share = std::pow(static_cast<double>(i + 1), -exponent);
      for (std::int64_t c = 0; c < cols; ++c) {
        mix[static_cast<std::size_t>(i * cols + c)] = static_cast<float>(share * normal(rng));
      }
    }
    std::vector<float> size(static_cast<std::size_t>(cols), 1.0F);
    for (int i = 0; i < 4; ++i) {
      size[rng() % static_cast<unsigned>(cols)] = outlier;
    }
    const auto draw = [&](std::vector<float>& out) {
      out.resize(static_cast<std::size_t>(tokens * cols));
      for (std::int64_t t = 0; t < tokens; ++t) {
        float* const row = out.data() + t * cols;
        for (std::int64_t i = 0; i < cols; ++i) {
          const auto source = static_cast<float>(normal(rng));
          for (std::int64_t c = 0; c < cols; ++c) {
            row[c] += source * mix[static_cast<std::size_t>(i * cols + c)];
          }
        }
        for (std::int64_t c = 0; c < cols; ++c) {
          row[c] *= size[static_cast<std::size_t>(c)];
        }
      }
    };
    draw(x);
    draw(held_out);
  }
};

}  // namespace trine::test
