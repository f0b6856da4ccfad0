#include "hub/files.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/hub/temp_dir.h"

namespace trine::hub {
namespace {

using testing::HasSubstr;

TEST(Sha256Test, KnownAnswers) {
  // FIPS 180-4 examples.
  Sha256 hash;
  EXPECT_EQ(hash.finish(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  hash.update("a");
  hash.update("bc");
  EXPECT_EQ(hash.finish(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  hash.update("wrong");
  hash.reset();
  hash.update("abc");
  EXPECT_EQ(hash.finish(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Sha256Test, FilesAndPrefixes) {
  const TempDir dir;
  const std::string text(3'000'000, 'a');
  write_text(dir.path() / "f", text);
  Sha256 hash;
  hash.update(text);
  const std::string whole = hash.finish();
  EXPECT_EQ(sha256_file(dir.path() / "f", nullptr).value(), whole);
  ASSERT_TRUE(hash_file_prefix(dir.path() / "f", 3, hash, nullptr).has_value());
  hash.update(std::string(text.size() - 3, 'a'));
  EXPECT_EQ(hash.finish(), whole);
  EXPECT_FALSE(hash_file_prefix(dir.path() / "f", text.size() + 1, hash, nullptr).has_value());
  const std::atomic<bool> cancelled = true;
  EXPECT_EQ(sha256_file(dir.path() / "f", &cancelled).error().code, ErrorCode::kCancelled);
}

TEST(Sha256Test, HexForm) {
  EXPECT_TRUE(is_sha256_hex(std::string(64, 'a')));
  EXPECT_TRUE(is_sha256_hex(std::string(64, 'F')));
  EXPECT_FALSE(is_sha256_hex(std::string(63, 'a')));
  EXPECT_FALSE(is_sha256_hex(std::string(65, 'a')));
  EXPECT_FALSE(is_sha256_hex(std::string(64, 'g')));
}

TEST(FileNameTest, PlainNamesPass) {
  for (const char* name : {"config.json", "a", "Q8 0/m+x.gguf", "a/b/c/d/e/f/g/h", "..x", "x..",
                           "\xC3\xA9.gguf", "sub/manifest.json"}) {
    EXPECT_TRUE(check_file_name(name).has_value()) << name;
  }
}

TEST(FileNameTest, UnsafeNamesAreRefused) {
  const std::string nul("a\0b", 3);
  const std::string deep = "a/b/c/d/e/f/g/h/i";
  for (const std::string& name : {std::string(),
                                  std::string("/etc/passwd"),
                                  std::string(".."),
                                  std::string("."),
                                  std::string("../x"),
                                  std::string("a/../b"),
                                  std::string("a/.."),
                                  std::string("a//b"),
                                  std::string("a/"),
                                  std::string("a/./b"),
                                  std::string("a\\b"),
                                  std::string("a\nb"),
                                  std::string("\x7F"),
                                  nul,
                                  deep,
                                  std::string(256, 'a'),
                                  std::string(600, 'a') + "/" + std::string(600, 'a'),
                                  std::string("\xC0\xAE"),
                                  std::string("\xED\xA0\x80"),
                                  std::string("\xF4\x90\x80\x80"),
                                  std::string("\xC3"),
                                  std::string("manifest.json"),
                                  std::string("x.part"),
                                  std::string("x.part.json")}) {
    const Status status = check_file_name(name);
    ASSERT_FALSE(status.has_value()) << name;
    EXPECT_EQ(status.error().code, ErrorCode::kCorruptData);
  }
}

TEST(FileNameTest, MessageIsPrintable) {
  const std::string message = check_file_name("\x1b[2J").error().message;
  EXPECT_THAT(message, HasSubstr("\\x1b[2J"));
  EXPECT_EQ(message.find('\x1b'), std::string::npos);
}

TEST(FilesTest, AtomicWriteReplacesAndLeavesNothingElse) {
  const TempDir dir;
  ASSERT_TRUE(write_file_atomic(dir.path() / "f", "one").has_value());
  ASSERT_TRUE(write_file_atomic(dir.path() / "f", "two").has_value());
  EXPECT_EQ(read_text(dir.path() / "f"), "two");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1);
  EXPECT_FALSE(write_file_atomic(dir.path() / "none" / "f", "x").has_value());
}

TEST(FilesTest, SmallFileLimits) {
  const TempDir dir;
  write_text(dir.path() / "f", std::string(100, 'x'));
  EXPECT_EQ(read_small_file(dir.path() / "f", 100)->size(), 100U);
  EXPECT_EQ(read_small_file(dir.path() / "f", 99).error().code, ErrorCode::kExhausted);
  EXPECT_EQ(read_small_file(dir.path() / "g", 99).error().code, ErrorCode::kNotFound);
}

TEST(FilesTest, DiskSpace) {
  const TempDir dir;
  EXPECT_TRUE(check_disk_space(dir.path(), 0).has_value());
  const Status full = check_disk_space(dir.path(), std::uint64_t{1} << 62);
  ASSERT_FALSE(full.has_value());
  EXPECT_EQ(full.error().code, ErrorCode::kExhausted);
  EXPECT_THAT(full.error().message, HasSubstr("TRINE_HOME"));
  EXPECT_FALSE(check_disk_space(dir.path(), ~std::uint64_t{0}).has_value());
}

TEST(FilesTest, AReserveStaysFree) {
  for (const std::uint64_t needed : {std::uint64_t{0}, std::uint64_t{1} << 30}) {
    EXPECT_TRUE(check_fits("d", needed, needed + kDiskReserve).has_value());
    const Status short_by_one = check_fits("d", needed, needed + kDiskReserve - 1);
    ASSERT_FALSE(short_by_one.has_value());
    EXPECT_EQ(short_by_one.error().code, ErrorCode::kExhausted);
    EXPECT_THAT(short_by_one.error().message, HasSubstr("16.8 MB kept free"));
  }
}

TEST(FilesTest, FormatBytes) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(1000), "1.0 kB");
  EXPECT_EQ(format_bytes(98'362'432), "98.4 MB");
  EXPECT_EQ(format_bytes(999'949), "999.9 kB");
  EXPECT_EQ(format_bytes(999'999), "1.0 MB");
}

TEST(FilesTest, AtomicWritesReplaceTheFileInsteadOfWritingIntoIt) {
  const TempDir dir;
  const auto path = dir.path() / "note.json";
  const auto reader = dir.path() / "held-by-a-reader";
  ASSERT_TRUE(write_file_atomic(path, "old content").has_value());
  std::filesystem::create_hard_link(path, reader);  // a reader that opened the old file
  ASSERT_TRUE(write_file_atomic(path, "new").has_value());
  EXPECT_EQ(read_small_file(path, 100).value(), "new");
  EXPECT_EQ(read_small_file(reader, 100).value(), "old content");
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir.path())) {
    static_cast<void>(entry);
    ++count;
  }
  EXPECT_EQ(count, 2u) << "no temporary file stays";
}

TEST(FilesTest, GitBlobIds) {
  const TempDir dir;
  // `git hash-object` of an empty file and of "hello\n".
  const auto path = dir.path() / "f";
  ASSERT_TRUE(write_file_atomic(path, "").has_value());
  EXPECT_EQ(git_blob_id(path, nullptr).value(), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
  ASSERT_TRUE(write_file_atomic(path, "hello\n").has_value());
  EXPECT_EQ(git_blob_id(path, nullptr).value(), "ce013625030ba8dba906f756967f9e9ca394464a");
  EXPECT_EQ(git_blob_id(dir.path() / "gone", nullptr).error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace trine::hub
