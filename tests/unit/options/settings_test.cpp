#include "options/settings.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace trine::options {
namespace {

using testing::HasSubstr;

class TempFile {
 public:
  explicit TempFile(const std::string& text)
      : path_(std::filesystem::temp_directory_path() /
              ("trine-settings-" + std::to_string(::getpid()) + "-" + std::to_string(count_++) +
               ".toml")) {
    std::ofstream(path_, std::ios::binary) << text;
  }

  ~TempFile() { std::filesystem::remove(path_); }

  std::string path() const { return path_.string(); }

 private:
  static inline int count_ = 0;
  std::filesystem::path path_;
};

Error file_error(const std::string& text) {
  const TempFile file(text);
  Settings settings;
  const Status status = settings.apply_file(file.path());
  EXPECT_FALSE(status.has_value()) << text;
  Error error = status.has_value() ? Error{} : status.error();
  // The rest of the message is compared without the random path.
  const std::size_t at = error.message.find(file.path());
  EXPECT_EQ(at, 0u) << error.message;
  error.message.erase(0, file.path().size());
  return error;
}

TEST(Settings, PrecedenceDoesNotDependOnTheOrderOfReading) {
  const TempFile file("[sampling]\ntemperature = 0.3\n");
  const std::array<const char*, 2> environment = {"TRINE_TEMPERATURE=0.4", nullptr};
  std::array<int, 4> order = {0, 1, 2, 3};
  do {
    Settings settings;
    for (const int source : order) {
      switch (source) {
        case 0:
          settings.set("temperature", 0.2, Origin::kModel, "generation_config.json");
          break;
        case 1:
          ASSERT_TRUE(settings.apply_file(file.path()).has_value());
          break;
        case 2:
          ASSERT_TRUE(settings.apply_environment(environment.data()).has_value());
          break;
        default:
          settings.set("temperature", 0.5, Origin::kFlag, "--temperature");
      }
    }
    EXPECT_EQ(settings.number("temperature"), 0.5);
    EXPECT_EQ(settings.origin("temperature"), Origin::kFlag);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(Settings, EachSourceBeatsTheNextLowerOne) {
  const TempFile file("[sampling]\ntemperature = 0.3\n");
  const std::array<const char*, 2> environment = {"TRINE_TEMPERATURE=0.4", nullptr};
  Settings settings;
  EXPECT_EQ(settings.origin("temperature"), Origin::kDefault);
  settings.set("temperature", 0.2, Origin::kModel, "generation_config.json");
  EXPECT_EQ(settings.number("temperature"), 0.2);
  ASSERT_TRUE(settings.apply_file(file.path()).has_value());
  EXPECT_EQ(settings.number("temperature"), 0.3);
  EXPECT_THAT(settings.place("temperature"), testing::EndsWith(".toml:2"));
  ASSERT_TRUE(settings.apply_environment(environment.data()).has_value());
  EXPECT_EQ(settings.number("temperature"), 0.4);
  EXPECT_EQ(settings.place("temperature"), "TRINE_TEMPERATURE");
}

TEST(Settings, OfOneSourceTheLastValueCounts) {
  Settings settings;
  settings.set("top-k", std::int64_t{1}, Origin::kFlag, "--top-k");
  settings.set("top-k", std::int64_t{2}, Origin::kFlag, "/set");
  EXPECT_EQ(settings.integer("top-k"), 2);
  EXPECT_EQ(settings.place("top-k"), "/set");
}

TEST(Settings, FilesOfUpToAMebibyteAreRead) {
  const std::string line = "[sampling]\ntop_k = 3\n";
  constexpr std::size_t kLimit = std::size_t{1} << 20;
  const TempFile whole(line + "#" + std::string(kLimit - line.size() - 1, 'x'));
  Settings settings;
  ASSERT_TRUE(settings.apply_file(whole.path()).has_value());
  EXPECT_EQ(settings.integer("top-k"), 3);
  EXPECT_THAT(file_error(line + "#" + std::string(kLimit - line.size(), 'x')).message,
              HasSubstr("larger than 1048576 bytes"));
}

TEST(Settings, FilesHoldEveryType) {
  const TempFile file(
      "[sampling]\nseed = 7\nstop = [\"a,b\", \"c\"]\ntop_p = 1\n[engine]\nctx = \"4K\"\nkv = "
      "\"bf16\"\n"
      "[general]\nquiet = true\n");
  Settings settings;
  const Status status = settings.apply_file(file.path());
  ASSERT_TRUE(status.has_value()) << status.error().message;
  EXPECT_EQ(settings.maybe_unsigned("seed"), 7u);
  EXPECT_THAT(settings.list("stop"), testing::ElementsAre("a,b", "c"));
  EXPECT_EQ(settings.number("top-p"), 1.0);
  EXPECT_EQ(settings.integer("ctx"), 4096);
  EXPECT_EQ(settings.text("kv"), "bf16");
  EXPECT_TRUE(settings.flag("quiet"));
}

TEST(Settings, FileErrorsNameFileLineAndKey) {
  EXPECT_THAT(file_error("[sampling]\n\ntemprature = 1\n").message,
              testing::AllOf(testing::StartsWith(":3: "), HasSubstr("'sampling.temprature'"),
                             HasSubstr("did you mean 'sampling.temperature'?")));
  EXPECT_THAT(file_error("[smapling]\ntemperature = 1\n").message,
              testing::StartsWith(":1: unknown key"));
  EXPECT_THAT(file_error("temperature = 1\n").message, testing::StartsWith(":1: unknown key"));
  EXPECT_THAT(
      file_error("[sampling]\ntemperature = \"hot\"\n").message,
      testing::AllOf(testing::StartsWith(":2: sampling.temperature"), HasSubstr("a string")));
  EXPECT_THAT(file_error("[sampling]\ntop_p = 1.5\n").message,
              testing::AllOf(testing::StartsWith(":2: sampling.top_p"), HasSubstr("above 0 to 1")));
  EXPECT_THAT(file_error("[sampling]\ntop_p = nan\n").message,
              testing::StartsWith(":2: sampling.top_p"));
  EXPECT_THAT(file_error("[sampling]\nstop = [1979-05-27]\n").message, HasSubstr("date"));
  EXPECT_THAT(file_error("[general]\nquiet = \"true\"\n").message, HasSubstr("true or false"));
  EXPECT_THAT(file_error("[sampling]\ntemperature = \n").message, testing::StartsWith(":2: "));
  EXPECT_THAT(file_error("[sampling]\nseed = -1\n").message,
              testing::StartsWith(":2: sampling.seed"));
  EXPECT_THAT(file_error("[sampling.top_p]\nx = 1\n").message, HasSubstr("a table where a number"));
}

TEST(Settings, PerCallInputsHaveNoKeyAndNoVariable) {
  EXPECT_THAT(file_error("[input]\nprompt = \"x\"\n").message,
              HasSubstr("unknown key 'input.prompt'"));
  const std::array<const char*, 2> environment = {"TRINE_PROMPT=x", nullptr};
  Settings settings;
  const auto unknown = settings.apply_environment(environment.data());
  ASSERT_TRUE(unknown.has_value());
  EXPECT_THAT(*unknown, testing::ElementsAre("TRINE_PROMPT"));
  EXPECT_FALSE(settings.has("prompt"));
}

TEST(Settings, AMissingFileIsAnError) {
  Settings settings;
  const Status status = settings.apply_file("/nonexistent/trine.toml");
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, ErrorCode::kNotFound);
  const Status directory = settings.apply_file("/tmp");
  EXPECT_FALSE(directory.has_value());
}

TEST(Settings, EnvironmentErrorsNameTheVariable) {
  const std::array<const char*, 3> environment = {"PATH=/bin", "TRINE_TOP_P=2", nullptr};
  Settings settings;
  const auto result = settings.apply_environment(environment.data());
  ASSERT_FALSE(result.has_value());
  EXPECT_THAT(result.error().message, testing::StartsWith("TRINE_TOP_P: "));
}

TEST(Settings, EmptyVariablesAreUnsetAndListsSplitAtCommas) {
  const std::array<const char*, 4> environment = {"TRINE_TOP_P=", "TRINE_STOP=a,b",
                                                  "TRINE_NOSUCH=1", nullptr};
  Settings settings;
  const auto unknown = settings.apply_environment(environment.data());
  ASSERT_TRUE(unknown.has_value());
  EXPECT_EQ(settings.origin("top-p"), Origin::kDefault);
  EXPECT_THAT(settings.list("stop"), testing::ElementsAre("a", "b"));
  EXPECT_THAT(*unknown, testing::ElementsAre("TRINE_NOSUCH"));
}

}  // namespace
}  // namespace trine::options
