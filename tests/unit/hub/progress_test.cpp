#include "hub/progress.h"

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace trine::hub {
namespace {

using testing::HasSubstr;

// What a sink of this style prints for one short download.
std::string printed(ProgressStyle style) {
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* out = ::open_memstream(&text, &size);
  const auto sink = make_progress(style, out);
  sink->plan("m", 2, 2000);
  sink->update(500);
  sink->note("something");
  sink->file_done("a", 1000, "ab");
  sink->update(2000);
  sink->finish();
  std::fclose(out);
  std::string result(text, size);
  std::free(text);
  return result;
}

TEST(ProgressTest, JsonIsOneObjectPerLine) {
  std::istringstream lines(printed(ProgressStyle::kJson));
  std::string line;
  std::string events;
  while (std::getline(lines, line)) {
    events += nlohmann::json::parse(line)["event"].get<std::string>() + " ";
  }
  EXPECT_EQ(events, "plan progress note file ");  // the second update comes too soon
}

TEST(ProgressTest, LinesHaveNoControlCharacters) {
  const std::string text = printed(ProgressStyle::kLines);
  EXPECT_THAT(text, HasSubstr("m: 2 files, 2.0 kB\n"));
  EXPECT_THAT(text, HasSubstr("something\n"));
  EXPECT_EQ(text.find('\r'), std::string::npos);
  EXPECT_EQ(text.find('\033'), std::string::npos);
}

TEST(ProgressTest, QuietPrintsNothing) {
  EXPECT_EQ(printed(ProgressStyle::kQuiet), "");
}

}  // namespace
}  // namespace trine::hub
