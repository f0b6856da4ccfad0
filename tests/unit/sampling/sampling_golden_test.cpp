// Laws, draws and log-probabilities against an independent NumPy implementation
// (tools/golden/sampling.py).
#include <algorithm>
#include <bit>
#include <fstream>
#include <map>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "sampling/sampler.h"

namespace trine::sampling {
namespace {

using Json = nlohmann::json;

SamplingParams params_of(const Json& from) {
  SamplingParams out;
  out.repetition_penalty = from.value("repetition_penalty", 1.0);
  out.presence_penalty = from.value("presence_penalty", 0.0);
  out.frequency_penalty = from.value("frequency_penalty", 0.0);
  for (const Json& entry : from.value("logit_bias", Json::array())) {
    out.logit_bias.push_back(
        {.token = entry[0].get<std::int32_t>(), .bias = entry[1].get<double>()});
  }
  out.bad_words = from.value("bad_words", std::vector<std::vector<std::int32_t>>());
  out.min_tokens = from.value("min_tokens", 0);
  out.temperature = from.value("temperature", 1.0);
  out.top_k = from.value("top_k", 0);
  out.top_p = from.value("top_p", 1.0);
  out.min_p = from.value("min_p", 0.0);
  out.typical_p = from.value("typical_p", 1.0);
  return out;
}

TEST(SamplingGolden, LawsDrawsAndLogprobsAgreeWithNumpy) {
  std::ifstream file(TRINE_SOURCE_DIR "/tests/golden/sampling/cases.json");
  ASSERT_TRUE(file.good());
  const Json cases = Json::parse(file);
  ASSERT_GE(cases.size(), 60u);
  Scratch scratch;
  for (const Json& golden : cases) {
    SCOPED_TRACE(golden["params"].dump());
    std::vector<float> raw;
    for (const std::uint32_t bits : golden["logits_bits"].get<std::vector<std::uint32_t>>()) {
      raw.push_back(std::bit_cast<float>(bits));
    }
    const auto vocab_size = static_cast<std::int32_t>(raw.size());
    const auto stop_ids = golden["stop_ids"].get<std::vector<std::int32_t>>();
    const auto pipeline = LogitsPipeline::create(params_of(golden["params"]), vocab_size, stop_ids);
    ASSERT_TRUE(pipeline.has_value()) << pipeline.error().message;
    TokenHistory history;
    history.reset(golden["prompt"].get<std::vector<std::int32_t>>(), vocab_size,
                  pipeline->needs_counts(), 16);
    for (const std::int32_t token : golden["output"].get<std::vector<std::int32_t>>()) {
      history.append(token);
    }

    ASSERT_TRUE(pipeline->law(raw, history, scratch).has_value());
    std::map<std::int32_t, double> law;
    for (std::size_t i = 0; i < scratch.law.candidates.size(); ++i) {
      law[scratch.law.candidates[i].token] = scratch.law.probability(i);
    }
    const auto tokens = golden["tokens"].get<std::vector<std::int32_t>>();
    ASSERT_EQ(law.size(), tokens.size());
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const double want = golden["probabilities"][i].get<double>();
      ASSERT_TRUE(law.contains(tokens[i])) << tokens[i];
      EXPECT_NEAR(law[tokens[i]], want, 1e-12 * want) << tokens[i];
    }

    for (const Json& drawn : golden["draws"]) {
      const Result<std::int32_t> token =
          sample(*pipeline, raw, history, drawn[0].get<std::uint64_t>(), scratch);
      ASSERT_TRUE(token.has_value());
      EXPECT_EQ(*token, drawn[1].get<std::int32_t>()) << "seed " << drawn[0];
    }

    const auto top = golden["top"].get<std::vector<std::int32_t>>();
    Logprobs logprobs;
    raw_logprobs(raw, top[2], static_cast<std::int32_t>(top.size()), scratch, logprobs);
    ASSERT_EQ(logprobs.top.size(), top.size());
    for (std::size_t i = 0; i < top.size(); ++i) {
      EXPECT_EQ(logprobs.top[i].token, top[i]);
      EXPECT_NEAR(logprobs.top[i].logprob, golden["logprobs"][i].get<double>(), 1e-12);
    }
    EXPECT_EQ(logprobs.chosen, logprobs.top[2].logprob);
  }
}

}  // namespace
}  // namespace trine::sampling
