#include "loadgen/workload.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace trine::loadgen {
namespace {

using Json = nlohmann::ordered_json;

Json body_of(const Workload& workload, std::uint64_t index) {
  return Json::parse(workload.body(index));
}

std::int64_t words(const std::string& text) {
  return std::count(text.begin(), text.end(), ' ') + 1;
}

WorkloadOptions options() {
  return {
      .model = "m", .input = {.low = 10, .high = 10}, .output = {.low = 5, .high = 5}, .seed = 1};
}

TEST(Workload, AsksForUsageAndIsAFunctionOfSeedAndIndex) {
  const auto a = Workload::create(options(), {}).value();
  const auto b = Workload::create(options(), {}).value();
  EXPECT_EQ(a.body(3), b.body(3));
  EXPECT_NE(a.body(3), a.body(4));
  EXPECT_NE(a.body(3), a.for_warmup().body(3));
  const Json body = body_of(a, 0);
  EXPECT_EQ(body["stream"], true);
  EXPECT_EQ(body["stream_options"]["include_usage"], true);
  EXPECT_EQ(body["max_tokens"], 5);
  EXPECT_EQ(body["temperature"], 0.0);
  EXPECT_FALSE(body.contains("ignore_eos"));
  EXPECT_EQ(words(body["prompt"]), 10);
}

TEST(Workload, UsesWhatWasMeasured) {
  WorkloadOptions o = options();
  o.endpoint = Endpoint::kChat;
  o.input = {.low = 110, .high = 110};
  o.tokens_per_word = 2.0;
  o.overhead_tokens = 10.0;
  o.ignore_eos = true;
  o.extra_body = R"({"top_p": 0.5})";
  const Json body = body_of(Workload::create(o, {}).value(), 0);
  EXPECT_EQ(words(body["messages"][0]["content"]), 50);
  EXPECT_EQ(body["ignore_eos"], true);
  EXPECT_EQ(body["top_p"], 0.5);
}

TEST(Workload, PrefixesAreSharedWithinAGroup) {
  WorkloadOptions o = options();
  o.prefix_tokens = 6;
  o.prefix_groups = 3;
  const auto workload = Workload::create(o, {}).value();
  std::vector<std::string> prefixes;
  std::vector<std::string> whole;
  for (std::uint64_t i = 0; i < 60; ++i) {
    const std::string prompt = body_of(workload, i)["prompt"];
    EXPECT_EQ(words(prompt), 16);
    std::size_t at = 0;
    for (int w = 0; w < 6; ++w) {
      at = prompt.find(' ', at) + 1;
    }
    prefixes.push_back(prompt.substr(0, at));
    whole.push_back(prompt);
  }
  for (auto* list : {&prefixes, &whole}) {
    std::sort(list->begin(), list->end());
    list->erase(std::unique(list->begin(), list->end()), list->end());
  }
  EXPECT_EQ(prefixes.size(), 3U);
  EXPECT_EQ(whole.size(), 60U);
}

TEST(Workload, EqualBlocksAreEqualText) {
  TraceEntry a;
  a.prompt_tokens = 1000;
  a.output_tokens = 9;
  a.blocks = {4, 5};
  TraceEntry b = a;
  b.blocks = {4, 6};
  const auto workload = Workload::create(options(), {a, b}).value();
  const std::string first = body_of(workload, 0)["prompt"];
  const std::string second = body_of(workload, 1)["prompt"];
  EXPECT_EQ(body_of(workload, 0)["max_tokens"], 9);
  EXPECT_EQ(words(first), 1000);
  const auto [at, other] = std::mismatch(first.begin(), first.end(), second.begin(), second.end());
  EXPECT_GE(words(std::string(first.begin(), at)), 512);
  EXPECT_LE(words(std::string(first.begin(), at)), 520);
  EXPECT_EQ(body_of(workload, 2), body_of(workload, 0));  // from the front again
}

TEST(Workload, Ids) {
  WorkloadOptions o = options();
  o.prompt_ids = 2000;
  const Json body = body_of(Workload::create(o, {}).value(), 0);
  ASSERT_EQ(body["prompt"].size(), 10U);
  for (const Json& id : body["prompt"]) {
    EXPECT_GE(id.get<int>(), 512);
    EXPECT_LT(id.get<int>(), 2000);
  }
  o.endpoint = Endpoint::kChat;
  EXPECT_NE(Workload::create(o, {}).error().message.find("--prompt-ids"), std::string::npos);
}

TEST(Workload, Refusals) {
  WorkloadOptions o = options();
  for (const char* bad : {"{", "7", R"({"stream": false})", R"({"model": "x"})"}) {
    o.extra_body = bad;
    const auto workload = Workload::create(o, {});
    ASSERT_FALSE(workload.has_value()) << bad;
    EXPECT_TRUE(workload.error().message.starts_with("--extra-body")) << bad;
  }
  TraceEntry chat;
  chat.messages = "[]";
  EXPECT_FALSE(Workload::create(options(), {chat}).has_value());
}

TEST(Lengths, Laws) {
  const LengthLaw fixed = parse_length("7", "--input-len").value();
  EXPECT_EQ(fixed.draw(1, 2, 0), 7);
  const LengthLaw range = parse_length("3-6", "--input-len").value();
  std::vector<int> seen(7);
  for (std::uint64_t i = 0; i < 400; ++i) {
    ++seen.at(static_cast<std::size_t>(range.draw(1, i, 0)));
  }
  for (const std::size_t value : {3U, 4U, 5U, 6U}) {
    EXPECT_GT(seen[value], 60);
  }
  const LengthLaw law = parse_length("lognormal:100:0.5", "--input-len").value();
  std::vector<std::int64_t> drawn;
  for (std::uint64_t i = 0; i < 2001; ++i) {
    drawn.push_back(law.draw(1, i, 0));
  }
  std::sort(drawn.begin(), drawn.end());
  EXPECT_NEAR(static_cast<double>(drawn[1000]), 100.0, 6.0);
  EXPECT_NEAR(static_cast<double>(drawn[1683]), 100.0 * std::exp(0.5), 10.0);  // one sigma
  for (const char* bad :
       {"", "0", "5-3", "a", "1-", "lognormal:1", "lognormal:0:1", "lognormal:5:9", "-4"}) {
    const auto parsed = parse_length(bad, "--input-len");
    ASSERT_FALSE(parsed.has_value()) << bad;
    EXPECT_TRUE(parsed.error().message.starts_with("--input-len")) << bad;
  }
}

}  // namespace
}  // namespace trine::loadgen
