// Opening paths: kinds told apart by content, directories by their files.
#include "format/open.h"

#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "base/bytes.h"
#include "format/safetensors.h"
#include "platform/mapped_file.h"
#include "support/format_bytes.h"

namespace trine {
namespace {

using test::TempDir;

std::string one_tensor(const std::string& name) {
  return test::safetensors_bytes(
      "{\"" + name + R"(":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "abcd");
}

std::string open_error(const std::string& path, ErrorCode code) {
  const auto opened = open_checkpoint(path);
  if (opened.has_value()) {
    return "no error";
  }
  EXPECT_EQ(opened.error().code, code) << opened.error().message;
  return opened.error().message;
}

TEST(OpenCheckpoint, TellsKindsApartByContent) {
  const TempDir dir;
  const auto gguf = open_checkpoint(dir.write("model.bin", test::small_gguf().build()));
  ASSERT_TRUE(gguf.has_value()) << gguf.error().message;
  EXPECT_EQ(gguf->kind, CheckpointKind::kGguf);
  EXPECT_NE(gguf->weights().find("a.weight"), nullptr);
  const auto safetensors = open_checkpoint(dir.write("weights", one_tensor("x")));
  ASSERT_TRUE(safetensors.has_value()) << safetensors.error().message;
  EXPECT_EQ(safetensors->kind, CheckpointKind::kSafetensors);
  EXPECT_NE(safetensors->weights().find("x"), nullptr);
}

TEST(OpenCheckpoint, TensorsOutliveTheFileOnDisk) {
  const TempDir dir;
  const std::string path = dir.write("x.safetensors", one_tensor("x"));
  auto opened = open_checkpoint(path);
  ASSERT_TRUE(opened.has_value());
  std::filesystem::remove(path);
  const auto moved = std::move(*opened);
  EXPECT_EQ(as_text(moved.weights().find("x")->data), "abcd");
}

TEST(OpenCheckpoint, RefusesByName) {
  const TempDir dir;
  EXPECT_EQ(open_error(dir.file("nope"), ErrorCode::kNotFound),
            "no such model file or directory: " + dir.file("nope"));
  for (const std::string_view bytes : {"PK\x03\x04 zip", "\x80\x02}q\x00 pickle"}) {
    const std::string text =
        open_error(dir.write("pytorch_model.bin", bytes), ErrorCode::kUnsupported);
    EXPECT_NE(text.find("is a pickle file"), std::string::npos) << text;
    EXPECT_NE(text.find("convert it to safetensors"), std::string::npos) << text;
  }
  EXPECT_NE(
      open_error(dir.write("old", "tjgg\1\0\0\0\0"), ErrorCode::kUnsupported).find("before GGUF"),
      std::string::npos);
  EXPECT_NE(
      open_error(dir.write("text", "hello world"), ErrorCode::kCorruptData).find("is neither GGUF"),
      std::string::npos);
  EXPECT_NE(open_error(dir.write("empty", ""), ErrorCode::kCorruptData).find("is neither GGUF"),
            std::string::npos);
  EXPECT_NE(open_error("/dev/null", ErrorCode::kInvalidArgument).find("not a regular file"),
            std::string::npos);
}

TEST(OpenSafetensors, DirectoryPrefersTheSingleFileThenTheIndexThenTheOnlyFile) {
  const TempDir dir;
  EXPECT_NE(open_error(dir.path(), ErrorCode::kCorruptData).find("has no .safetensors file"),
            std::string::npos);
  dir.write("pytorch_model.bin", "PK\x03\x04");
  const std::string pickle = open_error(dir.path(), ErrorCode::kUnsupported);
  EXPECT_NE(pickle.find("only pickle weights (pytorch_model.bin)"), std::string::npos) << pickle;

  dir.write("part-1.safetensors", one_tensor("only"));
  EXPECT_NE(open_checkpoint(dir.path())->weights().find("only"), nullptr);
  dir.write("part-2.safetensors", one_tensor("second"));
  const std::string several = open_error(dir.path(), ErrorCode::kInvalidArgument);
  EXPECT_NE(several.find("has 2 .safetensors files and no model.safetensors.index.json"),
            std::string::npos);

  dir.write(
      "model.safetensors.index.json",
      R"({"metadata":{},"weight_map":{"only":"part-1.safetensors","second":"part-2.safetensors"}})");
  const auto sharded = open_checkpoint(dir.path());
  ASSERT_TRUE(sharded.has_value()) << sharded.error().message;
  EXPECT_EQ(as_text(sharded->weights().find("second")->data), "abcd");
  EXPECT_NE(sharded->weights().find("only"), nullptr);

  dir.write("model.safetensors", one_tensor("single"));
  EXPECT_NE(open_checkpoint(dir.path())->weights().find("single"), nullptr);
}

TEST(OpenSafetensors, IndexErrorsNameTheFile) {
  const TempDir dir;
  dir.write("a.safetensors", one_tensor("a"));
  dir.write("model.safetensors.index.json", R"({"weight_map":{"a":"gone.safetensors"}})");
  EXPECT_NE(open_error(dir.path(), ErrorCode::kCorruptData).find("gone.safetensors"),
            std::string::npos);
  dir.write("model.safetensors.index.json", R"({"weight_map":{"b":"a.safetensors"}})");
  const std::string text = open_error(dir.path(), ErrorCode::kCorruptData);
  EXPECT_NE(
      text.find("model.safetensors.index.json: tensor a is in a.safetensors but not in weight_map"),
      std::string::npos)
      << text;
  dir.write("a.safetensors", "garbage!garbage!");
  EXPECT_NE(open_error(dir.path(), ErrorCode::kCorruptData).find("a.safetensors: header of"),
            std::string::npos);
}

TEST(MappedFile, MapsNothingForAnEmptyFileAndNamesWhatFails) {
  const TempDir dir;
  EXPECT_TRUE(MappedFile::open(dir.write("empty", "")).value()->bytes().empty());
  const auto file = MappedFile::open(dir.write("text", "hello")).value();
  EXPECT_EQ(as_text(file->bytes()), "hello");
  EXPECT_EQ(file->path(), dir.file("text"));
  const auto missing = MappedFile::open(dir.file("nope"));
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_NE(missing.error().message.find("nope: No such file"), std::string::npos);
  EXPECT_EQ(MappedFile::open(dir.path()).error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace trine
