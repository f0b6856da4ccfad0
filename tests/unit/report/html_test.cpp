#include "report/html.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trine::report {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::size_t count_of(std::string_view text, std::string_view part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos;
       at = text.find(part, at + part.size())) {
    ++count;
  }
  return count;
}

TEST(Html, EscapesMarkupControlBytesAndBrokenUtf8) {
  EXPECT_EQ(escaped("a<b>&\"'c"), "a&lt;b&gt;&amp;&quot;&#39;c");
  EXPECT_EQ(escaped("one\ntwo\tthree"), "one\ntwo\tthree");
  EXPECT_EQ(escaped(std::string("\x1b[0m\x00z", 6)), "\\x1b[0m\\x00z");
  EXPECT_EQ(escaped("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(escaped("\xc3\xa4\n"), "\xc3\xa4\n");
}

TEST(Html, NoPlaceTakesMarkup) {
  const std::string evil = "</td><script>\"'x";
  Document page(evil);
  page.section(evil);
  page.paragraph(evil);
  page.warning(evil);
  page.preformatted(evil);
  page.add(Table{.caption = evil, .columns = {evil}, .rows = {{evil}}});
  page.add(BarChart{.title = evil, .unit = evil, .series = {evil, evil}, .bars = {{evil, {1, 2}}}});
  page.add(StackedBars{.title = evil, .unit = evil, .parts = {evil}, .bars = {{evil, {1}}}});
  page.add(LineChart{
      .title = evil, .x_label = evil, .y_label = evil, .x = {1, 2}, .series = {{evil, {1, 2}}}});
  page.add(Histogram{.title = evil, .x_label = evil, .edges = {0, 1}, .counts = {3}});
  page.add(Matrix{.title = evil,
                  .row_label = evil,
                  .column_label = evil,
                  .rows = {evil},
                  .columns = {evil},
                  .counts = {{1}}});
  const std::string html = page.html();
  EXPECT_THAT(html, Not(HasSubstr("<script")));
  EXPECT_THAT(html, Not(HasSubstr("\"'x")));
  EXPECT_GT(count_of(html, "&lt;script&gt;"), 20U);
}

TEST(Html, EveryChartHasItsTableAndNothingComesFromOutside) {
  Document page("r");
  page.add(BarChart{.title = "bars", .series = {"a"}, .bars = {{"x", {1.5}}}});
  page.add(StackedBars{.title = "stack", .unit = "MB", .parts = {"w"}, .bars = {{"x", {2.25}}}});
  page.add(LineChart{.title = "line", .x_label = "p", .x = {0, 64}, .series = {{"kl", {1, 3}}}});
  page.add(Histogram{.title = "hist", .x_label = "KL", .edges = {0, 1, 2}, .counts = {7, 9}});
  page.add(Matrix{.title = "m", .rows = {"a"}, .columns = {"a", "b"}, .counts = {{11, 12}}});
  const std::string html = page.html();
  EXPECT_EQ(count_of(html, "<svg"), 5U);
  EXPECT_EQ(count_of(html, "<table"), 5U);
  EXPECT_EQ(count_of(html, "</figure>"), 5U);
  for (const char* cell : {"<td>1.5</td>", "<td>2.25</td>", "<td>64</td>", "<td>1 to 2</td>",
                           "<td>9</td>", "<td>12</td>"}) {
    EXPECT_THAT(html, HasSubstr(cell));
  }
  EXPECT_THAT(html, Not(HasSubstr("http")));
  EXPECT_THAT(html, Not(HasSubstr("url(")));
  EXPECT_THAT(html, Not(HasSubstr("src=")));
  EXPECT_THAT(html, HasSubstr("prefers-color-scheme:dark"));
}

// The picture is that of the numbers: lengths are in their ratio, on either side of zero.
TEST(Html, BarsAreAsLongAsTheirValues) {
  Document page("r");
  page.add(BarChart{.title = "b", .series = {"a"}, .bars = {{"x", {29}}, {"y", {-29}}}});
  EXPECT_EQ(count_of(page.html(), "width=\"290.0\" height=\"14.0\""), 2U);
  Document stack("r");
  stack.add(
      StackedBars{.title = "b", .parts = {"a", "b"}, .bars = {{"x", {1, 3}}, {"y", {-1, 2}}}});
  EXPECT_EQ(count_of(stack.html(), "width=\"145.0\" height=\"18.0\""), 1U);
  EXPECT_EQ(count_of(stack.html(), "width=\"435.0\" height=\"18.0\""), 1U);
  EXPECT_EQ(count_of(stack.html(), "width=\"290.0\" height=\"18.0\""), 1U);
  EXPECT_EQ(count_of(stack.html(), "width=\"0.0\" height=\"18.0\""), 1U);
}

TEST(Html, ValuesThatAreNotFiniteAreTextAndNoPicture) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  Document page("r");
  page.add(BarChart{.title = "b", .series = {"a"}, .bars = {{"x", {kInf}}, {"y", {kNan}}}});
  page.add(LineChart{.title = "l", .x_label = "p", .x = {0, 1}, .series = {{"s", {kNan, kInf}}}});
  page.add(Histogram{});
  page.add(Matrix{});
  const std::string html = page.html();
  EXPECT_THAT(html, HasSubstr("<td>inf</td>"));
  EXPECT_THAT(html, HasSubstr("points=\"\""));
  EXPECT_THAT(html, Not(HasSubstr("=\"nan")));
  EXPECT_THAT(html, Not(HasSubstr("=\"inf")));
  EXPECT_EQ(number_text(-0.0), "0");
  EXPECT_EQ(number_text(0.000123456), "0.0001235");
  EXPECT_EQ(number_text(123456.7), "123457");
  EXPECT_EQ(number_text(-1e15), "-1e+15");
}

TEST(Html, LabelsAreCutBetweenCharacters) {
  Document page("r");
  std::string name;
  for (int i = 0; i < 40; ++i) {
    name += "\xe4\xb8\xad";
  }
  page.add(BarChart{.title = "b", .series = {"a"}, .bars = {{name, {1}}}});
  EXPECT_THAT(page.html(), Not(HasSubstr("\\xe4")));
  EXPECT_THAT(page.html(), HasSubstr("\xe4\xb8\xad..."));
  EXPECT_THAT(page.html(), HasSubstr("<td>" + name + "</td>"));
}

}  // namespace
}  // namespace trine::report
