#include <fstream>
#include <set>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "options/docs.h"
#include "options/option.h"
#include "options/settings.h"
#include "options/value.h"

namespace trine::options {
namespace {

using testing::HasSubstr;

TEST(OptionTable, NamesVariablesAndKeysAreUnique) {
  std::set<std::string> names;
  std::set<std::string> variables;
  std::set<std::string> keys;
  for (const Option& option : option_table()) {
    EXPECT_TRUE(names.insert(std::string(option.name)).second) << option.name;
    EXPECT_TRUE(variables.insert(env_name(option)).second) << option.name;
    EXPECT_TRUE(keys.insert(file_key(option)).second) << option.name;
  }
}

TEST(OptionTable, EveryRowIsComplete) {
  std::set<std::string_view> groups;
  for (const OptionGroup& group : option_groups()) {
    groups.insert(group.name);
  }
  for (const Option& option : option_table()) {
    EXPECT_TRUE(groups.contains(option.group)) << option.name;
    EXPECT_FALSE(option.help.empty()) << option.name;
    EXPECT_FALSE(option.help.ends_with('.')) << option.name;
    EXPECT_EQ(option.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-"),
              std::string_view::npos);
    // "--no-x" would collide with the negated form of x.
    EXPECT_FALSE(option.name.starts_with("no-")) << option.name;
    EXPECT_EQ(option.type == Type::kChoice, !option.choices.empty()) << option.name;
    // A value that is not given must be explained, unless it is off.
    EXPECT_TRUE(!option.default_text.empty() || !option.unset_note.empty() ||
                option.type == Type::kBool)
        << option.name;
    EXPECT_LE(option.min, option.max) << option.name;
  }
}

TEST(OptionTable, EveryDefaultPassesItsOwnChecks) {
  for (const Option& option : option_table()) {
    if (!option.default_text.empty()) {
      EXPECT_TRUE(parse_value(option, option.default_text, option.name).has_value()) << option.name;
    }
  }
  const Settings settings;  // does not abort
  EXPECT_EQ(settings.text("log-level"), "warn");
  EXPECT_EQ(settings.origin("log-level"), Origin::kDefault);
}

TEST(OptionTable, TheDocumentationPageIsCurrent) {
  std::ifstream in(std::string(TRINE_SOURCE_DIR) + "/docs/options.md");
  std::stringstream text;
  text << in.rdbuf();
  EXPECT_EQ(text.str(), options_markdown())
      << "write it anew: build/release/trine options-page > docs/options.md";
}

TEST(Nearest, FindsTyposAndNothingElse) {
  const std::vector<std::string> words = {"pull", "run", "show", "tokenize", "detokenize"};
  EXPECT_EQ(nearest("pul", words), "pull");
  EXPECT_EQ(nearest("rnu", words), "run");
  EXPECT_EQ(nearest("tokenise", words), "tokenize");
  EXPECT_EQ(nearest("xyzzy", words), "");
  EXPECT_EQ(nearest("", words), "");
  EXPECT_EQ(nearest(std::string(100000, 'a'), words), "");
}

}  // namespace
}  // namespace trine::options
