// Real GGUF files against llama.cpp (tests/golden/llama_cpp/PROVENANCE.md). Runs when the model is
// in the store
// ($TRINE_HOME, else the cache directory); otherwise says how to get it and skips.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/half.h"
#include "base/json.h"
#include "hub/store.h"
#include "support/tiny_model.h"

namespace trine {
namespace {

constexpr std::size_t kPositions = 512;

struct PeerLaw {
  std::vector<std::int32_t> ids;      // [512]
  std::vector<std::uint32_t> tokens;  // [512, k], likeliest first
  std::vector<double> probs;          // [512, k]
  std::size_t k = 0;
};

PeerLaw read_law(const std::string& name, std::size_t k) {
  const auto path =
      std::filesystem::path(TRINE_SOURCE_DIR) / "tests/golden/llama_cpp" / (name + ".bin");
  const std::string bytes = testing::read_file(path);
  PeerLaw law;
  law.k = k;
  if (bytes.size() != kPositions * (4 + k * 6)) {
    ADD_FAILURE() << path << ": " << bytes.size() << " bytes";
    return law;
  }
  law.ids.resize(kPositions);
  law.tokens.resize(kPositions * k);
  const char* at = bytes.data();
  std::memcpy(law.ids.data(), at, kPositions * 4);
  at += kPositions * 4;
  std::memcpy(law.tokens.data(), at, law.tokens.size() * 4);
  at += law.tokens.size() * 4;
  for (std::size_t i = 0; i < kPositions * k; ++i) {
    std::uint16_t half = 0;
    std::memcpy(&half, at + i * 2, 2);
    law.probs.push_back(std::exp(static_cast<double>(f16_to_f32(half))));
  }
  return law;
}

// KL(peer || ours) over the peer's k likeliest tokens and one bucket for the rest.
double divergence(const PeerLaw& law, std::size_t position, std::span<const float> logits) {
  const double top = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  double sum = 0.0;
  for (const float logit : logits) {
    sum += std::exp(static_cast<double>(logit) - top);
  }
  double kl = 0.0;
  double peer_rest = 1.0;
  double our_rest = 1.0;
  for (std::size_t i = position * law.k; i < (position + 1) * law.k; ++i) {
    const double p = law.probs[i];
    const double q = std::exp(static_cast<double>(logits[law.tokens[i]]) - top) / sum;
    kl += p * std::log(p / q);
    peer_rest -= p;
    our_rest -= q;
  }
  // Rounding of the stored probabilities may leave a rest of about -1e-4.
  return peer_rest > 0.0 && our_rest > 0.0 ? kl + peer_rest * std::log(peer_rest / our_rest) : kl;
}

class PeerGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(PeerGolden, LawsAgree) {
  const std::string name = GetParam();
  const char* home = std::getenv("TRINE_HOME");
  const auto store = hub::Store::open(home == nullptr ? "" : home);
  const auto path =
      store.has_value() ? store->resolve(name) : Result<std::string>(tl::unexpected(store.error()));
  if (!path.has_value()) {
    GTEST_SKIP() << name << " is not in the model store; get it with: trine pull " << name;
  }
  const auto meta = parse_json(testing::read_file(std::filesystem::path(TRINE_SOURCE_DIR) /
                                                  "tests/golden/llama_cpp" / (name + ".json")));
  ASSERT_TRUE(meta.has_value());
  ASSERT_EQ(std::filesystem::file_size(*path), meta->at("file_bytes").get<std::uintmax_t>())
      << *path;
  Model::LoadOptions exact_way;
  exact_way.activations = Model::LoadOptions::Activations::kF32;
  exact_way.num_threads = 0;
  Model::LoadOptions fast_way = exact_way;
  fast_way.activations = Model::LoadOptions::Activations::kInt8;
  const auto model = Model::load(*path, exact_way);
  ASSERT_TRUE(model.has_value()) << model.error().message;
  const auto fast = Model::load(*path, fast_way);
  ASSERT_TRUE(fast.has_value()) << fast.error().message;
  const auto vocab = static_cast<std::size_t>((*model)->config().vocab_size);
  ASSERT_EQ(vocab, meta->at("vocab_size").get<std::size_t>());
  const PeerLaw wide = read_law(name + ".wide", meta->at("k").at("wide").get<std::size_t>());
  const PeerLaw file = read_law(name + ".file", meta->at("k").at("file").get<std::size_t>());
  ASSERT_EQ(wide.ids, file.ids);

  testing::Runner runner(*model, 0, DType::kF32, 17);
  testing::Runner fast_runner(*fast, 0, DType::kF32, 17);
  KvSequence sequence(*runner.pool);
  KvSequence fast_sequence(*fast_runner.pool);
  const std::span<const std::int32_t> ids(wide.ids);
  std::vector<float> logits;
  double worst_wide = 0.0;
  double worst_file = 0.0;
  double mean_file = 0.0;
  double worst_fast = 0.0;
  double mean_fast = 0.0;
  for (std::size_t first = 0; first < kPositions; first += 64) {  // in parts, to bound the logits
    const Span span{&sequence, ids.subspan(first, 64), {}, Span::Logits::kAll};
    ASSERT_TRUE(runner.step({&span, 1}, logits).has_value());
    for (std::size_t i = 0; i < 64; ++i) {
      const std::span<const float> row(logits.data() + i * vocab, vocab);
      worst_wide = std::max(worst_wide, divergence(wide, first + i, row));
      const double kl = divergence(file, first + i, row);
      worst_file = std::max(worst_file, kl);
      mean_file += kl / kPositions;
    }
    const Span fast_span{&fast_sequence, ids.subspan(first, 64), {}, Span::Logits::kAll};
    ASSERT_TRUE(fast_runner.step({&fast_span, 1}, logits).has_value());
    for (std::size_t i = 0; i < 64; ++i) {
      const double kl = divergence(wide, first + i, {logits.data() + i * vocab, vocab});
      worst_fast = std::max(worst_fast, kl);
      mean_fast += kl / kPositions;
    }
  }
  std::printf(
      "%s: max KL %.1e with the peer in f32; max %.1e, mean %.1e with its 8-bit activations; ours "
      "in "
      "8 bits against the peer in f32: max %.1e, mean %.1e\n",
      name.c_str(), worst_wide, worst_file, mean_file, worst_fast, mean_fast);
  EXPECT_LE(worst_wide, 1e-3);
  EXPECT_LE(worst_file, 6e-2);
  EXPECT_LE(mean_file, 1e-2);
  // Our int8 activations lose no more than the peer's.
  EXPECT_LE(worst_fast, 6e-2);
  EXPECT_LE(mean_fast, 1e-2);
}

INSTANTIATE_TEST_SUITE_P(All, PeerGolden, ::testing::Values("smollm2-135m", "gemma3-270m"),
                         [](const auto& param_info) {
                           std::string name = param_info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace trine
