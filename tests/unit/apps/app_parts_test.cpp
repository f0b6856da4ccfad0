#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "apps/trine/chat_state.h"
#include "apps/trine/input.h"
#include "apps/trine/npy.h"

namespace trine::app {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(ParseIds, ReadsCommasBlanksAndBrackets) {
  for (const char* text : {"1,2,30", "1 2 30", "[1, 2, 30]", "\n1\t2,\r\n30\n", " [1,2,30]\n"}) {
    const auto ids = parse_ids(text, "x");
    ASSERT_TRUE(ids.has_value()) << text;
    EXPECT_THAT(*ids, ElementsAre(1, 2, 30)) << text;
  }
  EXPECT_TRUE(parse_ids("", "x").value().empty());
  EXPECT_TRUE(parse_ids("[]", "x").value().empty());
}

TEST(ParseIds, NamesTheEntryThatIsNone) {
  for (const char* text : {"1,x", "1,-2", "1,2147483648", "1,2.0", "1,[2]"}) {
    const auto ids = parse_ids(text, "--tokens");
    ASSERT_FALSE(ids.has_value()) << text;
    EXPECT_EQ(ids.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(ids.error().message, HasSubstr("--tokens: entry 2")) << text;
  }
}

TEST(WithoutFinalNewline, DropsOne) {
  EXPECT_EQ(without_final_newline("a\n"), "a");
  EXPECT_EQ(without_final_newline("a\r\n"), "a");
  EXPECT_EQ(without_final_newline("a\n\n"), "a\n");
  EXPECT_EQ(without_final_newline("a"), "a");
  EXPECT_EQ(without_final_newline(""), "");
}

TEST(NpyHeader, IsPaddedTo64Bytes) {
  for (const std::int64_t rows : {1, 7, 100000, 123456789}) {
    const std::string header = npy_header(rows, 262144);
    EXPECT_EQ(header.size() % 64, 0u);
    EXPECT_TRUE(header.starts_with(std::string("\x93NUMPY\x01\x00", 8)));
    EXPECT_EQ(static_cast<unsigned char>(header[8]) + 256u * static_cast<unsigned char>(header[9]),
              header.size() - 10);
    EXPECT_TRUE(header.ends_with("\n"));
    EXPECT_THAT(header, HasSubstr("'shape': (" + std::to_string(rows) + ", 262144)"));
  }
}

TEST(SlashCommand, TellsCommandsFromText) {
  EXPECT_EQ(parse_slash_command("/set top-p  0.9 ")->name, "set");
  EXPECT_EQ(parse_slash_command("/set top-p  0.9 ")->rest, "top-p  0.9");
  EXPECT_EQ(parse_slash_command("/help")->rest, "");
  for (const char* text : {"hello", "/", "//x", "/ x", "", " /help"}) {
    EXPECT_FALSE(parse_slash_command(text).has_value()) << text;
  }
}

TEST(ChatState, UndoAndRegenerateTakeBackWholeTurns) {
  ChatState state("be kind");
  EXPECT_FALSE(state.undo());
  EXPECT_FALSE(state.take_back_answer());
  state.add_user("a");
  EXPECT_FALSE(state.take_back_answer());
  state.add_assistant("b");
  state.add_user("c");
  state.add_assistant("d");
  EXPECT_TRUE(state.take_back_answer());
  EXPECT_EQ(state.num_messages(), 3u);
  state.add_assistant("e");
  EXPECT_TRUE(state.undo());
  EXPECT_EQ(state.num_messages(), 2u);
  EXPECT_EQ(state.messages().size(), 3u);
  state.clear();
  EXPECT_EQ(state.messages().size(), 1u);
}

TEST(ChatState, SavesWhatItLoads) {
  ChatState state("be kind");
  state.add_user("a \"b\" \n\xff");
  state.add_assistant("c");
  ChatState other("");
  ASSERT_TRUE(other.from_json(state.to_json()).has_value());
  EXPECT_EQ(other.system(), "be kind");
  EXPECT_EQ(other.num_messages(), 2u);
  EXPECT_EQ(other.to_json(), state.to_json());
}

TEST(ChatState, RefusesOtherFilesAndStaysAsItWas) {
  ChatState state("");
  state.add_user("kept");
  for (const char* text :
       {"", "5", "{}", "[5]", R"([{"role": "user"}])", R"([{"role": "user", "content": 5}])",
        R"([{"role": "tool", "content": "x"}])",
        R"([{"role": "user", "content": "x"}, {"role": "system", "content": "late"}])"}) {
    const Status status = state.from_json(text);
    ASSERT_FALSE(status.has_value()) << text;
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument) << text;
    EXPECT_EQ(state.num_messages(), 1u);
  }
}

}  // namespace
}  // namespace trine::app
