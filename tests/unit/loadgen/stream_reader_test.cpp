#include "loadgen/stream_reader.h"

#include <gtest/gtest.h>

namespace trine::loadgen {
namespace {

constexpr std::string_view kChat =
    ": ping\n\n"
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n"
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"}}],\"usage\":null}\r\n\r\n"
    "data:{\"choices\":[{\"index\":0,\"delta\":{\"reasoning_content\":\"hm\"}}]}\n\n"
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0}]}}]}\n\n"
    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":9,"
    "\"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\n"
    "data: [DONE]\n\n";

TEST(StreamReader, CountsOutputsNotRolesAndTokensByUsage) {
  for (std::size_t cut = 1; cut <= kChat.size(); ++cut) {
    StreamReader reader;
    std::int32_t outputs = 0;
    for (std::size_t at = 0; at < kChat.size(); at += cut) {
      const auto found = reader.add(kChat.substr(at, cut));
      ASSERT_TRUE(found.has_value());
      outputs += found->num_outputs;
    }
    EXPECT_EQ(outputs, 3) << cut;
    ASSERT_TRUE(reader.finish().has_value());
    EXPECT_EQ(reader.prompt_tokens(), 7);
    EXPECT_EQ(reader.completion_tokens(), 9);
    EXPECT_EQ(reader.cached_tokens(), 4);
    EXPECT_EQ(reader.finish_reason(), "stop");
  }
}

TEST(StreamReader, Completions) {
  StreamReader reader;
  const auto found = reader.add(
      "data: {\"choices\":[{\"text\":\"\"}]}\ndata: "
      "{\"choices\":[{\"text\":\"a\"},{\"text\":\"b\"}]}\n");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->num_outputs, 1);
}

TEST(StreamReader, CutStreamsAreNotComplete) {
  StreamReader cut;
  ASSERT_TRUE(cut.add("data: {\"choices\":[{\"text\":\"a\"}]}\n").has_value());
  EXPECT_EQ(cut.finish().error().message, "the stream ends without a finish_reason");
  ASSERT_TRUE(
      cut.add("data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"length\"}]}\n").has_value());
  EXPECT_EQ(cut.finish().error().message, "the stream ends without [DONE]");
  ASSERT_TRUE(cut.add("data: [DO").has_value());
  EXPECT_EQ(cut.finish().error().message, "the stream ends within a line");
}

TEST(StreamReader, ErrorEventsAndNonsense) {
  StreamReader error;
  const auto found = error.add("data: {\"error\":{\"message\":\"no\\u001b room\",\"code\":503}}\n");
  ASSERT_FALSE(found.has_value());
  EXPECT_EQ(found.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(found.error().message, "error event: no\\x1b room");
  for (const char* bad : {"data: {\n", "data: 7\n", "data: {\"choices\":[7]}\n"}) {
    StreamReader reader;
    const auto got = reader.add(bad);
    ASSERT_FALSE(got.has_value()) << bad;
    EXPECT_EQ(got.error().code == ErrorCode::kUnavailable, false) << bad;
  }
  StreamReader longer;
  EXPECT_FALSE(longer.add(std::string(StreamReader::kMostLine + 1, 'x')).has_value());
}

TEST(ErrorText, FindsTheMessage) {
  EXPECT_EQ(error_text(R"({"error":{"message":"queue full"}})"), "queue full");
  EXPECT_EQ(error_text(R"({"error":"gone"})"), "gone");
  EXPECT_EQ(error_text("<html>\n"), "<html>\\x0a");
}

}  // namespace
}  // namespace trine::loadgen
