#include <set>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "apps/trine/command.h"
#include "apps/trine/completion.h"
#include "apps/trine/help.h"
#include "options/option.h"

namespace trine::app {
namespace {

using testing::HasSubstr;

TEST(Commands, AreWellFormed) {
  std::set<std::string_view> names;
  std::set<std::string_view> groups;
  for (const CommandGroup& group : command_groups()) {
    groups.insert(group.name);
  }
  for (const Command* command : commands()) {
    EXPECT_TRUE(names.insert(command->name).second) << command->name;
    EXPECT_TRUE(groups.contains(command->group)) << command->name;
    EXPECT_FALSE(command->summary.empty()) << command->name;
    ASSERT_NE(command->run, nullptr) << command->name;
    EXPECT_EQ(find_command(command->name), command);
    bool optional_seen = false;
    for (const Positional& positional : command->positionals) {
      EXPECT_FALSE(positional.required && optional_seen) << command->name;
      optional_seen = optional_seen || !positional.required;
    }
  }
}

TEST(Commands, TakeRowsOfTheTableWithoutClashes) {
  for (const Command* command : commands()) {
    std::set<std::string_view> names;
    std::set<char> letters = {'h'};
    for (const std::string_view name : all_options(*command)) {
      const options::Option* option = options::find_option(name);
      ASSERT_NE(option, nullptr) << command->name << " " << name;
      EXPECT_TRUE(names.insert(name).second) << command->name << " " << name;
      if (option->short_name != '\0') {
        EXPECT_TRUE(letters.insert(option->short_name).second)
            << command->name << " -" << option->short_name;
      }
    }
  }
}

TEST(Commands, EveryRowOfTheTableIsTakenBySomeCommand) {
  std::set<std::string_view> taken;
  for (const Command* command : commands()) {
    if (command->name != "config") {
      for (const std::string_view name : all_options(*command)) {
        taken.insert(name);
      }
    }
  }
  for (const options::Option& option : options::option_table()) {
    if (option.name != "origin") {
      // A secret is never a flag.
      EXPECT_EQ(taken.contains(option.name), option.sources != options::Sources::kEnvOnly)
          << option.name;
    }
  }
}

TEST(Help, NamesCommandsOptionsAndArguments) {
  for (const Command* command : commands()) {
    const std::string help = command_help(*command);
    for (const std::string_view name : all_options(*command)) {
      EXPECT_THAT(help, HasSubstr(fmt::format("-{}", name)));
    }
    for (const Positional& positional : command->positionals) {
      EXPECT_THAT(help, HasSubstr(std::string(positional.name)));
    }
    EXPECT_EQ(overview().find(std::string(command->summary)) == std::string::npos, command->hidden);
  }
}

TEST(Completion, CoversEveryCommandAndFlag) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const auto script = completion_script(shell);
    ASSERT_TRUE(script.has_value());
    for (const Command* command : commands()) {
      if (command->hidden) {
        continue;
      }
      EXPECT_THAT(*script, HasSubstr(std::string(command->name)));
      for (const std::string_view name : all_options(*command)) {
        EXPECT_THAT(*script, HasSubstr(fmt::format(
                                 "-{}{}", shell == std::string_view("fish") ? "l " : "-", name)));
      }
    }
  }
  EXPECT_FALSE(completion_script("tcsh").has_value());
}

}  // namespace
}  // namespace trine::app
