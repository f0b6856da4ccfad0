#include "options/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trine::options {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::string_view kTaken[] = {"prompt", "temperature", "max-tokens", "stop",
                                       "json",   "quiet",       "ctx"};

Result<CommandLine> parse(const std::vector<std::string>& args) {
  return parse_command_line(args, kTaken);
}

Settings applied(const std::vector<std::string>& args) {
  Settings settings;
  const auto line = parse(args);
  EXPECT_TRUE(line.has_value()) << (line.has_value() ? "" : line.error().message);
  if (line.has_value()) {
    apply_flags(*line, settings);
  }
  return settings;
}

std::string message(const std::vector<std::string>& args) {
  const auto line = parse(args);
  EXPECT_FALSE(line.has_value());
  EXPECT_TRUE(line.has_value() || line.error().code == ErrorCode::kInvalidArgument);
  return line.has_value() ? "" : line.error().message;
}

TEST(CommandLine, ReadsAllFormsOfAFlag) {
  EXPECT_EQ(applied({"--max-tokens", "5"}).integer("max-tokens"), 5);
  EXPECT_EQ(applied({"--max-tokens=5"}).integer("max-tokens"), 5);
  EXPECT_EQ(applied({"-n", "5"}).integer("max-tokens"), 5);
  EXPECT_EQ(applied({"-n5"}).integer("max-tokens"), 5);
  EXPECT_TRUE(applied({"--json"}).flag("json"));
  EXPECT_FALSE(applied({"--json", "--no-json"}).flag("json"));
  EXPECT_EQ(applied({"--ctx", "2K"}).integer("ctx"), 2048);
  EXPECT_EQ(applied({"--temperature", "0.5", "--temperature", "0.7"}).number("temperature"), 0.7);
}

TEST(CommandLine, ValuesMayLookLikeAnything) {
  for (const std::string value : {"", "--json", "-q", "--", "[a,b]", "{}", "a,b", "%s",
                                  "--max-tokens=3", "\xff\xfe", "line\nline"}) {
    EXPECT_EQ(applied({"--prompt", value}).text("prompt"), value);
    EXPECT_EQ(applied({"--prompt=" + value}).text("prompt"), value);
    EXPECT_EQ(applied({"-p", value}).text("prompt"), value);
    EXPECT_THAT(applied({"--stop", value, "--stop", "x"}).list("stop"), ElementsAre(value, "x"));
  }
}

TEST(CommandLine, PositionalsKeepTheirOrderAmongFlags) {
  const auto line = parse({"model", "-n", "3", "hello", "--json", "--", "--prompt", "-x"});
  ASSERT_TRUE(line.has_value()) << line.error().message;
  EXPECT_THAT(line->positionals, ElementsAre("model", "hello", "--prompt", "-x"));
  const auto dashes = parse({"-p", "-p", "--json", "--", "--", "x"});
  ASSERT_TRUE(dashes.has_value());
  EXPECT_THAT(dashes->positionals, ElementsAre("--", "x"));
  EXPECT_EQ(dashes->flags.size(), 2u);
  const auto brackets = parse({"[a,b]", "{}", ""});
  ASSERT_TRUE(brackets.has_value());
  EXPECT_THAT(brackets->positionals, ElementsAre("[a,b]", "{}", ""));
}

TEST(CommandLine, ErrorsNameTheFlag) {
  EXPECT_THAT(message({"--temprature", "1"}),
              HasSubstr("unknown option --temprature, did you mean --temperature?"));
  EXPECT_THAT(message({"--temprature=1"}), HasSubstr("--temprature, did you mean --temperature?"));
  EXPECT_THAT(message({"-z"}), HasSubstr("unknown option -z"));
  EXPECT_THAT(message({"--temperature"}), HasSubstr("--temperature"));
  EXPECT_THAT(message({"--temperature", "warm"}), HasSubstr("--temperature: cannot use 'warm'"));
  EXPECT_THAT(message({"--json=perhaps"}), HasSubstr("--json"));
  EXPECT_EQ(message({"-p", "a", "--prompt=b"}),
            "--prompt is given 2 times, as 'a' and 'b'; give it once");
  EXPECT_THAT(message({"-p", std::string(50, 'x'), "-p", ""}),
              HasSubstr("as '" + std::string(40, 'x') + "...' and ''"));
  // A row of the table that this command does not take is unknown to it.
  EXPECT_THAT(message({"--seed", "1"}), HasSubstr("unknown option --seed"));
}

TEST(CommandLine, HelpWinsOverBadValues) {
  const auto line = parse({"--temperature", "warm", "--help"});
  ASSERT_TRUE(line.has_value());
  EXPECT_TRUE(line->help);
}

TEST(OptionsHelp, ListsExactlyTheRowsTaken) {
  const std::string help = options_help(kTaken, 100);
  for (const std::string_view name : kTaken) {
    EXPECT_THAT(help, HasSubstr("--" + std::string(name)));
  }
  EXPECT_EQ(help.find("--seed"), std::string::npos);
  for (std::size_t at = 0; at < help.size();) {
    const std::size_t end = help.find('\n', at);
    EXPECT_LE(end - at, 100u) << help.substr(at, end - at);
    at = end + 1;
  }
}

}  // namespace
}  // namespace trine::options
