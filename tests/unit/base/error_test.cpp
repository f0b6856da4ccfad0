#include "base/error.h"

#include <array>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "base/bytes.h"
#include "base/printable.h"

namespace trine {
namespace {

Result<int> half_of(int value) {
  if (value % 2 != 0) {
    return fail(ErrorCode::kInvalidArgument, "{} is odd", value);
  }
  return value / 2;
}

Result<int> quarter_of(int value) {
  TRINE_TRY_ASSIGN(const int half, half_of(value));
  TRINE_TRY_ASSIGN(const int quarter, half_of(half));
  return quarter;
}

TEST(Result, TryPassesTheErrorOn) {
  EXPECT_EQ(*quarter_of(8), 2);
  EXPECT_EQ(quarter_of(6).error().message, "3 is odd");
}

TEST(Error, ExitStatusFollowsTheProductTable) {
  EXPECT_EQ(exit_status(ErrorCode::kInvalidArgument), 2);
  EXPECT_EQ(exit_status(ErrorCode::kCorruptData), 3);
  EXPECT_EQ(exit_status(ErrorCode::kUnsupported), 3);
  EXPECT_EQ(exit_status(ErrorCode::kExhausted), 4);
  EXPECT_EQ(exit_status(ErrorCode::kCancelled), 130);
  EXPECT_EQ(exit_status(ErrorCode::kUnavailable), 1);
}

TEST(ByteReader, NamesTheFieldThatIsCutOff) {
  const std::array<std::byte, 3> bytes{};
  ByteReader reader(bytes);
  EXPECT_TRUE(reader.read<std::uint16_t>("version").has_value());
  const auto cut = reader.read<std::uint32_t>("tensor count");
  ASSERT_FALSE(cut.has_value());
  EXPECT_EQ(cut.error().message,
            "tensor count: 4 bytes needed at offset 2, 1 left (truncated file?)");
}

TEST(CheckedSizes, RefuseOverflow) {
  EXPECT_FALSE(checked_mul(std::uint64_t{1} << 42, std::uint64_t{1} << 22).has_value());
  EXPECT_FALSE(checked_add(~std::uint64_t{0}, 1).has_value());
  EXPECT_EQ(checked_mul(6, 7), 42u);
}

TEST(Printable, CutsLongText) {
  EXPECT_EQ(printable("abcdef", 4), "abcd...");
  EXPECT_EQ(printable("abcd", 4), "abcd");
  EXPECT_EQ(printable("\xed\xa0\x80\xe2\x82"),
            "\\xed\\xa0\\x80\\xe2\\x82");  // surrogate, cut sequence
}

TEST(Error, NoMessageCanDriveATerminalOrForgeALogLine) {
  const auto failed = fail(ErrorCode::kCorruptData, "name {}", "\x1b[2J\n\xff\xc3\xa9");
  EXPECT_EQ(failed.value().message, "name \\x1b[2J\\x0a\\xff\xc3\xa9");
  Error error = failed.value();
  EXPECT_EQ(std::move(error).with_context("dir\r").message,
            "dir\\x0d: name \\x1b[2J\\x0a\\xff\xc3\xa9");
  const std::string large(100'000, 'x');
  EXPECT_EQ((Error{ErrorCode::kInternal, large}.message), large);  // escaped, never cut
}

}  // namespace
}  // namespace trine
