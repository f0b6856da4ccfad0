#include "engine/stop_matcher.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace trine {
namespace {

struct Outcome {
  std::string text;
  std::string matched;
  bool operator==(const Outcome&) const = default;
};

// Feeds `text` in pieces that end at the bits of `cuts`.
Outcome feed(const std::string& text, const std::vector<std::string>& stops, bool include,
             std::uint64_t cuts) {
  StopMatcher matcher(stops, include);
  Outcome out;
  std::string piece;
  for (std::size_t i = 0; i < text.size(); ++i) {
    piece += text[i];
    if ((cuts >> (i % 64) & 1u) != 0 || i + 1 == text.size()) {
      if (matcher.push(piece, out.text)) {
        out.matched = matcher.matched();
        return out;
      }
      piece.clear();
    }
  }
  matcher.finish(out.text);
  return out;
}

// First completion wins, the longest of those; by trying every end in turn.
Outcome by_definition(const std::string& text, const std::vector<std::string>& stops,
                      bool include) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::string best;
    for (const std::string& stop : stops) {
      if (stop.size() > best.size() && std::string_view(text).substr(0, end).ends_with(stop)) {
        best = stop;
      }
    }
    if (!best.empty()) {
      return {text.substr(0, include ? end : end - best.size()), best};
    }
  }
  return {text, ""};
}

TEST(StopMatcher, HoldsBackOnlyWhatMayBecomeAStop) {
  StopMatcher matcher({"</end>", "\n\n"}, false);
  std::string out;
  EXPECT_FALSE(matcher.push("ab</e", out));
  EXPECT_EQ(out, "ab");
  EXPECT_EQ(matcher.held(), "</e");
  EXPECT_FALSE(matcher.push("x\n", out));
  EXPECT_EQ(out, "ab</ex");
  EXPECT_FALSE(matcher.push("y", out));
  EXPECT_EQ(out, "ab</ex\ny");
  EXPECT_TRUE(matcher.push("z\n\ntail", out));
  EXPECT_EQ(out, "ab</ex\nyz");
  EXPECT_EQ(matcher.matched(), "\n\n");
}

TEST(StopMatcher, FinishReleasesTheRest) {
  StopMatcher matcher({"stop"}, false);
  std::string out;
  EXPECT_FALSE(matcher.push("a sto", out));
  EXPECT_EQ(out, "a ");
  matcher.finish(out);
  EXPECT_EQ(out, "a sto");
}

TEST(StopMatcher, IncludeStopShowsIt) {
  EXPECT_EQ(feed("x STOP y", {"STOP"}, true, ~0ull), (Outcome{"x STOP", "STOP"}));
  EXPECT_EQ(feed("x STOP y", {"STOP"}, false, ~0ull), (Outcome{"x ", "STOP"}));
}

TEST(StopMatcher, WithoutStopsEverythingPasses) {
  EXPECT_EQ(feed("abc", {}, false, 5), (Outcome{"abc", ""}));
}

// Small alphabets make overlaps, self-overlaps and nested stops common.
TEST(StopMatcher, DoesNotDependOnHowTheTextIsCut) {
  for (std::uint64_t round = 0; round < 20000; ++round) {
    const auto block = philox(1, round, RngPurpose::kTest, 0);
    std::string text;
    for (std::uint32_t i = 0; i < 4 + block[0] % 20; ++i) {
      text += static_cast<char>('a' + (block[1] >> i & 1u));
    }
    std::vector<std::string> stops;
    for (std::uint32_t s = 0; s < 1 + block[2] % 3; ++s) {
      std::string stop;
      for (std::uint32_t i = 0; i < 1 + (block[2] >> (4 + 3 * s)) % 6; ++i) {
        stop += static_cast<char>('a' + (block[3] >> (i + 7 * s) & 1u));
      }
      stops.push_back(stop);
    }
    const bool include = (block[2] >> 30 & 1u) != 0;
    const Outcome want = by_definition(text, stops, include);
    const auto more = philox(2, round, RngPurpose::kTest, 0);
    for (const std::uint64_t cuts : {std::uint64_t{0}, ~std::uint64_t{0}, std::uint64_t{more[0]}}) {
      ASSERT_EQ(feed(text, stops, include, cuts), want) << text << " / " << stops.front();
    }
  }
}

}  // namespace
}  // namespace trine
