#include "loadgen/trace.h"

#include <fstream>
#include <string>
#include <tuple>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace trine::loadgen {
namespace {

std::string failure(TraceFormat format, std::string_view text) {
  const auto trace = read_trace(format, text);
  EXPECT_FALSE(trace.has_value()) << text;
  return trace.has_value() ? "" : trace.error().message;
}

constexpr std::string_view kHeader = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n";

TEST(Azure, BothYearsWindowsLineEndsAndOrder) {
  const auto trace = read_trace(TraceFormat::kAzure, std::string(kHeader) +
                                                         "2023-11-16 18:17:04.0799600,12,3\r\n"
                                                         "2023-11-16 18:17:03.9799600,4808,10\r\n"
                                                         "2023-11-16 18:17:05+00:00,1,1");
  ASSERT_TRUE(trace.has_value()) << trace.error().message;
  ASSERT_EQ(trace->entries.size(), 3U);
  EXPECT_EQ(trace->entries[0].at_ms, 0.0);
  EXPECT_EQ(trace->entries[0].prompt_tokens, 4808);
  EXPECT_EQ(trace->entries[0].output_tokens, 10);
  EXPECT_NEAR(*trace->entries[1].at_ms, 100.0, 1e-3);
  EXPECT_NEAR(*trace->entries[2].at_ms, 1020.04, 1e-3);
}

TEST(Azure, ErrorsNameLineAndField) {
  const std::string head(kHeader);
  const std::pair<std::string, std::string> cases[] = {
      {"", "line 1: the header"},
      {"a,b,c\n", "line 1: the header is 'a,b,c'"},
      {head, "there is no request in it"},
      {head + "2023-11-16 18:17:03,1\n",
       "line 2: '2023-11-16 18:17:03,1' has not the three fields"},
      {head + "2023-11-16 18:17:03,1,2,3\n", "line 2: "},
      {head + "2023-13-16 18:17:03,1,2\n", "line 2: TIMESTAMP is '2023-13-16 18:17:03'"},
      {head + "2023-02-29 18:17:03,1,2\n", "line 2: TIMESTAMP"},
      {head + "2023-11-16 24:17:03,1,2\n", "line 2: TIMESTAMP"},
      {head + "2023-11-16 18:17:03.,1,2\n", "line 2: TIMESTAMP"},
      {head + "2023-11-16 18:17:03x,1,2\n", "line 2: TIMESTAMP"},
      {head + "2023-11-16 18:17:03,1,2\n\n2023-11-16 18:17:03,0,2\n",
       "line 4: ContextTokens is '0'"},
      {head + "2023-11-16 18:17:03,1,-2\n", "line 2: GeneratedTokens is '-2'"},
      {head + "2023-11-16 18:17:03,1,99999999999999999999\n", "line 2: GeneratedTokens is '9"},
      {head + "2023-11-16 18:17:03,1.5,2\n", "line 2: ContextTokens is '1.5'"},
  };
  for (const auto& [text, expected] : cases) {
    EXPECT_NE(failure(TraceFormat::kAzure, text).find(expected), std::string::npos)
        << failure(TraceFormat::kAzure, text) << " | " << expected;
  }
}

TEST(Mooncake, Entries) {
  const auto trace = read_trace(TraceFormat::kMooncake,
                                "{\"timestamp\": 3000, \"input_length\": 1025, \"output_length\": "
                                "5, \"hash_ids\": [7, 8, 99]}\n"
                                "{\"timestamp\": 1000, \"input_length\": 512, \"output_length\": "
                                "6, \"hash_ids\": [7], \"x\": 1}\n");
  ASSERT_TRUE(trace.has_value()) << trace.error().message;
  EXPECT_EQ(trace->entries[0].output_tokens, 6);
  EXPECT_EQ(*trace->entries[1].at_ms, 2000.0);
  EXPECT_EQ(trace->entries[1].blocks, (std::vector<std::uint64_t>{7, 8, 99}));
}

TEST(Mooncake, ErrorsNameLineAndField) {
  const std::pair<std::string, std::string> cases[] = {
      {"[]", "line 1: must be an object"},
      {"{", "line 1: "},
      {"{\"input_length\": 1}", "line 1: field 'timestamp' is missing"},
      {"{\"timestamp\": -1}", "line 1: timestamp must be a number"},
      {"{\"timestamp\": 1, \"output_length\": 5}", "line 1: field 'input_length' is missing"},
      {"{\"timestamp\": 1, \"input_length\": \"5\"}",
       "line 1: input_length is 'not a whole number'"},
      {"{\"timestamp\": 1, \"input_length\": 5, \"output_length\": 0}",
       "line 1: output_length is '0'"},
      {"{\"timestamp\": 1, \"input_length\": 5, \"output_length\": 1}", "line 1: field 'hash_ids'"},
      {"{\"timestamp\": 1, \"input_length\": 5, \"output_length\": 1, \"hash_ids\": [1, 2]}",
       "line 1: hash_ids has 2 ids, an input_length of 5 has 1 blocks"},
      {"{\"timestamp\": 1, \"input_length\": 5, \"output_length\": 1, \"hash_ids\": [-1]}",
       "line 1: hash_ids[0] must be"},
  };
  for (const auto& [text, expected] : cases) {
    EXPECT_NE(failure(TraceFormat::kMooncake, text).find(expected), std::string::npos)
        << failure(TraceFormat::kMooncake, text);
  }
}

TEST(ShareGpt, TwoTurnsAndCuts) {
  const std::string good(40, 'a');
  const std::string text =
      "[{\"id\": \"1\", \"conversations\": [{\"from\": \"human\", \"value\": \"" + good +
      "\"}, {\"from\": \"gpt\", \"value\": \"" + good +
      "b\"}, {\"from\": \"human\", \"value\": 7}]},"
      "{\"conversations\": []},"
      "{\"conversations\": [{\"value\": \"x\"}, {\"value\": \"" +
      good +
      "\"}]},"
      "{\"conversations\": [{\"value\": \"" +
      std::string(5000, 'c') + "\"}, {\"value\": \"" + good + "\"}]}]";
  const auto trace = read_trace(TraceFormat::kShareGpt, text);
  ASSERT_TRUE(trace.has_value()) << trace.error().message;
  ASSERT_EQ(trace->entries.size(), 1U);
  EXPECT_EQ(trace->num_dropped, 3U);
  EXPECT_EQ(trace->entries[0].prompt, good);
  EXPECT_EQ(trace->entries[0].output_tokens, 11);
  EXPECT_FALSE(trace->entries[0].at_ms.has_value());
}

TEST(ShareGpt, ErrorsNameEntryAndField) {
  const std::pair<std::string, std::string> cases[] = {
      {"{}", "must be a list"},
      {"[7]", "entry 0: must be an object with a list 'conversations'"},
      {"[{\"conversations\": 3}]", "entry 0: "},
      {"[{\"conversations\": [{\"value\": \"a\"}, {}]}]", "entry 0: conversations[1]"},
      {"[]", "there is no request in it"},
  };
  for (const auto& [text, expected] : cases) {
    EXPECT_NE(failure(TraceFormat::kShareGpt, text).find(expected), std::string::npos)
        << failure(TraceFormat::kShareGpt, text);
  }
}

TEST(Log, Entries) {
  const auto trace = read_trace(
      TraceFormat::kLog,
      "{\"timestamp_ms\": 20.5, \"prompt\": \"Hello\", \"output_tokens\": 3}\n"
      "{\"timestamp_ms\": 10, \"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}\n"
      "{\"timestamp_ms\": 30, \"prompt_tokens\": 9}\n");
  ASSERT_TRUE(trace.has_value()) << trace.error().message;
  EXPECT_EQ(trace->entries[0].messages, "[{\"role\":\"user\",\"content\":\"Hi\"}]");
  EXPECT_FALSE(trace->entries[0].output_tokens.has_value());
  EXPECT_EQ(trace->entries[1].prompt, "Hello");
  EXPECT_EQ(*trace->entries[1].at_ms, 10.5);
  EXPECT_EQ(trace->entries[2].prompt_tokens, 9);
}

TEST(Log, ErrorsNameLineAndField) {
  const std::pair<std::string, std::string> cases[] = {
      {"{\"prompt\": \"a\", \"temperature\": 1}",
       "line 1: field 'temperature' is not known; there are timestamp_ms"},
      {"{}", "line 1: give one of the fields"},
      {"{\"prompt\": \"a\", \"prompt_tokens\": 1}", "line 1: give one of the fields"},
      {"{\"prompt\": \"\"}", "line 1: field 'prompt' must be"},
      {"{\"messages\": []}", "line 1: field 'messages' must be"},
      {"{\"prompt\": \"a\", \"output_tokens\": 0}", "line 1: output_tokens is '0'"},
      {"{\"prompt\": \"a\", \"timestamp_ms\": 1}\n\n{\"prompt\": \"a\"}",
       "line 3: 'timestamp_ms' is given in some"},
      {"{\"prompt\": \"a\"}\n{\"prompt\": \"a\", \"timestamp_ms\": 1}",
       "line 2: 'timestamp_ms' is given in some"},
  };
  for (const auto& [text, expected] : cases) {
    EXPECT_NE(failure(TraceFormat::kLog, text).find(expected), std::string::npos)
        << failure(TraceFormat::kLog, text);
  }
}

std::string golden(const std::string& name) {
  std::ifstream file(TRINE_SOURCE_DIR "/tests/golden/loadgen/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Golden, AsPythonReadsThem) {
  const std::tuple<TraceFormat, const char*, const char*> files[] = {
      {TraceFormat::kAzure, "azure.csv", "azure.expected.json"},
      {TraceFormat::kMooncake, "mooncake.jsonl", "mooncake.expected.json"},
      {TraceFormat::kShareGpt, "sharegpt.json", "sharegpt.expected.json"},
  };
  for (const auto& [format, name, expected_name] : files) {
    const auto trace = read_trace(format, golden(name));
    ASSERT_TRUE(trace.has_value()) << name << trace.error().message;
    const auto expected = nlohmann::json::parse(golden(expected_name));
    ASSERT_EQ(trace->entries.size(), expected.size()) << name;
    ASSERT_GT(expected.size(), 3U);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const TraceEntry& entry = trace->entries[i];
      EXPECT_NEAR(entry.at_ms.value_or(0.0), expected[i].value("at_ms", 0.0), 1e-3) << name << i;
      EXPECT_EQ(entry.prompt_tokens, expected[i].value("prompt_tokens", 0)) << name << i;
      EXPECT_EQ(entry.output_tokens, expected[i].value("output_tokens", 0)) << name << i;
      EXPECT_EQ(entry.prompt, expected[i].value("prompt", "")) << name << i;
      EXPECT_EQ(entry.blocks, expected[i].value("blocks", std::vector<std::uint64_t>()))
          << name << i;
    }
  }
}

TEST(TraceFormats, ByName) {
  EXPECT_EQ(parse_trace_format("mooncake").value(), TraceFormat::kMooncake);
  EXPECT_FALSE(parse_trace_format("csv").has_value());
}

}  // namespace
}  // namespace trine::loadgen
