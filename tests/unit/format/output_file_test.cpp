#include "format/output_file.h"

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace trine {
namespace {

namespace fs = std::filesystem;

class OutputFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "trine-output-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
  }

  void TearDown() override {
    std::error_code ignored;
    fs::remove_all(dir_, ignored);
  }

  std::string path(std::string_view name) const { return (dir_ / name).string(); }

  static std::string content(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

  static void put(const std::string& path, std::string_view text) {
    std::ofstream(path, std::ios::binary) << text;
  }

  static Status write(const std::string& path, std::string_view text) {
    TRINE_TRY_ASSIGN(OutputFile out, OutputFile::create(path));
    TRINE_TRY(out.write(std::as_bytes(std::span<const char>(text))));
    return out.commit();
  }

  std::size_t num_entries() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(dir_), fs::directory_iterator()));
  }

  fs::path dir_;
};

TEST_F(OutputFileTest, ReplacesAFileAndKeepsItsMode) {
  put(path("x"), "old");
  ASSERT_EQ(::chmod(path("x").c_str(), 0600), 0);
  {
    auto out = OutputFile::create(path("x"));
    ASSERT_TRUE(out.has_value()) << out.error().message;
    EXPECT_EQ(content(path("x")), "old");
  }
  EXPECT_EQ(content(path("x")), "old");
  EXPECT_EQ(num_entries(), 1u);
  ASSERT_TRUE(write(path("x"), "new").has_value());
  EXPECT_EQ(content(path("x")), "new");
  EXPECT_EQ(fs::status(path("x")).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(num_entries(), 1u);
}

TEST_F(OutputFileTest, FollowsLinksAndKeepsThem) {
  fs::create_directory(path("sub"));
  put(path("sub/target"), "old");
  fs::create_symlink("sub/second", path("first"));  // relative to the link's own folder
  fs::create_symlink("target", path("sub/second"));
  ASSERT_TRUE(write(path("first"), "new").has_value());
  EXPECT_TRUE(fs::is_symlink(path("first")));
  EXPECT_TRUE(fs::is_symlink(path("sub/second")));
  EXPECT_EQ(content(path("sub/target")), "new");

  fs::create_symlink(path("free"), path("dangling"));
  ASSERT_TRUE(write(path("dangling"), "made").has_value());
  EXPECT_TRUE(fs::is_symlink(path("dangling")));
  EXPECT_EQ(content(path("free")), "made");

  fs::create_symlink("loop", path("loop"));
  EXPECT_FALSE(write(path("loop"), "x").has_value());
  EXPECT_TRUE(fs::is_symlink(path("loop")));
}

TEST_F(OutputFileTest, WritesIntoAPipeInsteadOfReplacingIt) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  fs::create_symlink("pipe", path("link"));
  const int reader = ::open(path("pipe").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(reader, 0);
  for (const char* name : {"pipe", "link"}) {
    const Status done = write(path(name), "bytes");
    ASSERT_TRUE(done.has_value()) << done.error().message;
    std::array<char, 16> buffer = {};
    EXPECT_EQ(::read(reader, buffer.data(), buffer.size()), 5);
    EXPECT_EQ(std::string_view(buffer.data(), 5), "bytes");
  }
  ::close(reader);
  EXPECT_TRUE(fs::is_fifo(path("pipe")));
  EXPECT_EQ(num_entries(), 2u);
}

TEST_F(OutputFileTest, WritesIntoADevice) {
  const auto before = fs::status("/dev/null").type();
  const Status done = write("/dev/null", "bytes");
  EXPECT_TRUE(done.has_value()) << done.error().message;
  EXPECT_EQ(fs::status("/dev/null").type(), before);
}

TEST_F(OutputFileTest, RefusesADirectory) {
  const Status done = write(dir_.string(), "x");
  ASSERT_FALSE(done.has_value());
  EXPECT_NE(done.error().message.find(dir_.string()), std::string::npos);
}

}  // namespace
}  // namespace trine
