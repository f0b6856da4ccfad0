// The writers: what they write reads back, what they may not write they refuse, and nothing
// half-written is left.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "base/bytes.h"
#include "format/gguf_writer.h"
#include "format/safetensors_writer.h"
#include "support/format_bytes.h"

namespace trine {
namespace {

using test::TempDir;

std::string read_file(const std::string& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return as_byte_span(text);
}

TEST(GgufWriter, WritesTheBytesOfAnIndependentBuilder) {
  const TempDir dir;
  const std::string a(48, '\1');
  const std::string b(68, '\2');
  const std::vector<GgufMetadata::Pair> metadata{
      {"general.architecture", std::string("llama")},
      {"llama.block_count", std::uint32_t{2}},
      {"tokenizer.ggml.tokens", GgufArray(std::vector<std::string>{"a", "b", "c"})}};
  const std::vector<TensorInfo> tensors{{"a.weight", DType::kF32, {3, 4}, bytes_of(a)},
                                        {"b.weight", DType::kQ8_0, {2, 32}, bytes_of(b)}};
  ASSERT_TRUE(write_gguf(dir.file("x.gguf"), metadata, tensors).has_value());
  EXPECT_EQ(read_file(dir.file("x.gguf")), test::small_gguf().build());
  EXPECT_EQ(dir.num_files(), 1u);
}

TEST(GgufWriter, StreamsInPiecesInOrder) {
  const TempDir dir;
  const std::vector<GgufTensorSpec> specs{{"a", DType::kF32, {2}}, {"b", DType::kF32, {1}}};
  auto writer = GgufWriter::create(dir.file("x.gguf"), {}, specs).value();
  EXPECT_EQ(writer.append("b", bytes_of("abcd")).error().message,
            "tensor b: out of order, a comes next");
  EXPECT_TRUE(writer.append("a", bytes_of("abc")).has_value());
  EXPECT_EQ(writer.append("a", bytes_of("defghi")).error().message,
            "tensor a: 6 bytes given, 5 of 8 are left");
  EXPECT_EQ(writer.finish().error().message, "tensor a: 3 of 8 bytes given");
  EXPECT_TRUE(writer.append("a", bytes_of("defgh")).has_value());
  EXPECT_TRUE(writer.append("b", bytes_of("ijkl")).has_value());
  EXPECT_EQ(writer.append("b", bytes_of("m")).error().message,
            "tensor b: out of order, nothing comes next");
  EXPECT_FALSE(std::filesystem::exists(dir.file("x.gguf")));
  EXPECT_TRUE(writer.finish().has_value());
  const auto file = open_gguf(dir.file("x.gguf"));
  ASSERT_TRUE(file.has_value()) << file.error().message;
  EXPECT_EQ(as_text(file->checkpoint.find("a")->data), "abcdefgh");
  EXPECT_EQ(as_text(file->checkpoint.find("b")->data), "ijkl");
}

TEST(GgufWriter, AnAbandonedFileLeavesTheOldOneAlone) {
  const TempDir dir;
  const std::string path = dir.write("x.gguf", "old");
  {
    const std::vector<GgufTensorSpec> specs{{"a", DType::kF32, {2}}};
    auto writer = GgufWriter::create(path, {}, specs).value();
    EXPECT_TRUE(writer.append("a", bytes_of("abc")).has_value());
    EXPECT_EQ(dir.num_files(), 2u);
  }
  EXPECT_EQ(read_file(path), "old");
  EXPECT_EQ(dir.num_files(), 1u);
}

TEST(GgufWriter, ADirectoryThatIsMissingIsAnError) {
  const auto writer = GgufWriter::create("/nonexistent-directory/x.gguf", {}, {});
  ASSERT_FALSE(writer.has_value());
  EXPECT_EQ(writer.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(writer.error().message.find("cannot create /nonexistent-directory/x.gguf: "),
            std::string::npos);
}

// RLIMIT_FSIZE makes write() fail with EFBIG, which stands in for a full disk.
TEST(GgufWriter, AFullDiskIsExhaustedAndLeavesNothing) {
  const TempDir dir;
  rlimit old = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{1000, old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string data(4000, 'x');
  const std::vector<TensorInfo> tensors{{"a", DType::kI8, {4000}, bytes_of(data)}};
  const Status status = write_gguf(dir.file("x.gguf"), {}, tensors);
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, old_handler);
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, ErrorCode::kExhausted);
  EXPECT_NE(status.error().message.find("x.gguf: File too large"), std::string::npos)
      << status.error().message;
  EXPECT_EQ(dir.num_files(), 0u);
}

std::string header_error(const std::vector<GgufMetadata::Pair>& metadata,
                         const std::vector<GgufTensorSpec>& tensors) {
  const auto header = encode_gguf_header(metadata, tensors);
  if (header.has_value()) {
    return "no error";
  }
  EXPECT_EQ(header.error().code, ErrorCode::kInvalidArgument);
  return header.error().message;
}

TEST(GgufWriter, RefusesWhatTheReaderWouldRefuse) {
  EXPECT_EQ(header_error({{"", std::uint8_t{1}}}, {}),
            "metadata key of 0 bytes, wanted 1 to 65536");
  EXPECT_EQ(header_error({{std::string(65537, 'k'), std::uint8_t{1}}}, {}),
            "metadata key of 65537 bytes, wanted 1 to 65536");
  EXPECT_EQ(header_error({{"k", std::uint8_t{1}}, {"k", std::uint8_t{1}}}, {}),
            "metadata key k occurs twice");
  const std::string long_text((16 << 20) + 1, 'x');
  EXPECT_EQ(header_error({{"k", long_text}}, {}),
            "metadata key k: string of 16777217 bytes, at most 16777216");
  EXPECT_EQ(header_error({{"k", GgufArray(std::vector<std::string>{long_text})}}, {}),
            "metadata key k: string of 16777217 bytes, at most 16777216");
  EXPECT_EQ(header_error({{"general.alignment", std::uint64_t{32}}}, {}),
            "metadata key general.alignment is u64, wanted u32");
  EXPECT_EQ(header_error({{"general.alignment", std::uint32_t{33}}}, {}),
            "metadata key general.alignment is 33, wanted a power of two from 8 to 65536");
  EXPECT_EQ(header_error({}, {{"", DType::kF32, {1}}}), "tensor : name of 0 bytes, wanted 1 to 63");
  EXPECT_EQ(header_error({}, {{"a", DType::kF32, {1}}, {"a", DType::kF32, {1}}}),
            "tensor a occurs twice");
  EXPECT_EQ(header_error({}, {{"a", DType::kF8E4M3, {1}}}),
            "tensor a: GGUF has no type for F8_E4M3");
  EXPECT_EQ(header_error({}, {{"a", DType::kF32, {}}}), "tensor a: 0 dimensions, wanted 1 to 4");
  EXPECT_EQ(header_error({}, {{"a", DType::kF32, {1, 1, 1, 1, 1}}}),
            "tensor a: 5 dimensions, wanted 1 to 4");
  EXPECT_EQ(header_error({}, {{"a", DType::kQ4K, {256, 128}}}),
            "tensor a: row of 128 elements is not a multiple of 256, the block of Q4_K");
  EXPECT_EQ(header_error({}, {{"a", DType::kU8, {1}}}), "tensor a: GGUF has no type for U8");
  const std::int64_t half = std::int64_t{1} << 62;
  EXPECT_EQ(header_error({}, {{"a", DType::kI8, {half}}, {"b", DType::kI8, {half}}}),
            "tensor b: the file would pass 9223372036854775807 bytes");
}

TEST(SafetensorsWriter, AlignsAndSortsAndReadsBack) {
  const TempDir dir;
  const std::string eight(8, '\3');
  const std::string three("abc");
  const std::string four(4, '\4');
  const std::vector<TensorInfo> tensors{{"z", DType::kU8, {3}, bytes_of(three)},
                                        {"b", DType::kF32, {}, bytes_of(four)},
                                        {"e", DType::kF32, {0, 2}, {}},
                                        {"a", DType::kF32, {2, 1}, bytes_of(eight)},
                                        {"y", DType::kF64, {1}, bytes_of(eight)}};
  ASSERT_TRUE(
      write_safetensors(dir.file("x.safetensors"), tensors, {{"format", "pt"}}).has_value());
  const std::string bytes = read_file(dir.file("x.safetensors"));
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  EXPECT_EQ(header % 8, 0u);
  const auto file = parse_safetensors(as_byte_span(bytes));
  ASSERT_TRUE(file.has_value()) << file.error().message;
  EXPECT_EQ(file->metadata, (StringPairs{{"format", "pt"}}));
  std::string order;
  for (const TensorInfo& tensor : file->tensors) {
    order += tensor.name;
    const auto offset = static_cast<std::size_t>(tensor.data.data() - as_byte_span(bytes).data());
    EXPECT_EQ(offset % static_cast<std::size_t>(dtype_info(tensor.dtype).block_bytes), 0u)
        << tensor.name;
  }
  EXPECT_EQ(order, "yabez");  // the empty one sits at its offset
  const auto opened = open_safetensors(dir.file("x.safetensors")).value();
  for (const TensorInfo& tensor : tensors) {
    EXPECT_EQ(as_text(opened.find(tensor.name)->data), as_text(tensor.data));
    EXPECT_EQ(opened.find(tensor.name)->shape, tensor.shape);
  }
}

std::string safetensors_error(const std::vector<TensorInfo>& tensors,
                              const StringPairs& metadata = {}) {
  const TempDir dir;
  const Status status = write_safetensors(dir.file("x.safetensors"), tensors, metadata);
  EXPECT_EQ(dir.num_files(), status.has_value() ? 1u : 0u);
  return status.has_value() ? "no error" : status.error().message;
}

TEST(SafetensorsWriter, RefusesWhatTheFormatForbids) {
  const std::string four(4, '\0');
  EXPECT_EQ(safetensors_error({{"a", DType::kQ4K, {256}, {}}}),
            "tensor a: safetensors has no dtype for Q4_K");
  EXPECT_EQ(safetensors_error({{"a", DType::kF32, {-1}, {}}}),
            "tensor a: shape [-1] is negative or too large");
  EXPECT_EQ(safetensors_error({{"a", DType::kF4, {3}, {}}}),
            "tensor a: shape [3] of F4 has no whole number of bytes");
  EXPECT_EQ(safetensors_error({{"a", DType::kF32, {2}, bytes_of(four)}}),
            "tensor a: 4 of 8 bytes given");
  EXPECT_EQ(safetensors_error({{"a", DType::kU8, {2}, bytes_of(four)}}),
            "tensor a: 4 bytes given, 2 of 2 are left");
  EXPECT_EQ(safetensors_error(
                {{"a", DType::kF32, {1}, bytes_of(four)}, {"a", DType::kF32, {1}, bytes_of(four)}}),
            "tensor a occurs twice or is reserved");
  EXPECT_EQ(safetensors_error({{"__metadata__", DType::kF32, {1}, bytes_of(four)}}),
            "tensor __metadata__ occurs twice or is reserved");
  EXPECT_EQ(safetensors_error({{"\xff", DType::kF32, {1}, bytes_of(four)}}),
            "a tensor name or metadata string is not valid UTF-8");
  EXPECT_EQ(safetensors_error({}, {{"k", "\xff"}}),
            "a tensor name or metadata string is not valid UTF-8");
  EXPECT_EQ(safetensors_error({}), "no error");
}

std::vector<TensorInfo> five_tensors(std::string_view data) {
  std::vector<TensorInfo> out;
  for (const char* name : {"e", "d", "c", "b", "a"}) {
    out.push_back({name, DType::kU8, {8}, as_byte_span(data)});
  }
  return out;
}

TEST(SafetensorsWriter, ShardsWithAnIndexThatReadsBack) {
  const TempDir dir;
  const std::string data("12345678");
  ASSERT_TRUE(write_safetensors_sharded(dir.path(), five_tensors(data), {}, 16).has_value());
  EXPECT_EQ(dir.num_files(), 4u);
  EXPECT_TRUE(std::filesystem::exists(dir.file("model-00003-of-00003.safetensors")));
  EXPECT_NE(read_file(dir.file("model.safetensors.index.json")).find("\"total_size\":40"),
            std::string::npos);
  const auto opened = open_safetensors(dir.path());
  ASSERT_TRUE(opened.has_value()) << opened.error().message;
  EXPECT_EQ(opened->tensors().size(), 5u);
  EXPECT_EQ(as_text(opened->find("c")->data), data);
}

TEST(SafetensorsWriter, OneShardIsAPlainFile) {
  const TempDir dir;
  ASSERT_TRUE(
      write_safetensors_sharded(dir.path(), five_tensors("12345678"), {}, 1000).has_value());
  EXPECT_EQ(dir.num_files(), 1u);
  EXPECT_TRUE(std::filesystem::exists(dir.file("model.safetensors")));
  // Shards beside it would never be read.
  const Status status = write_safetensors_sharded(dir.path(), five_tensors("12345678"), {}, 16);
  EXPECT_NE(status.error().message.find("would hide the shards"), std::string::npos);
}

TEST(SafetensorsWriter, AFailedSetLeavesNoShards) {
  const TempDir dir;
  auto tensors = five_tensors("12345678");
  tensors[0].shape = {9};  // "e", in the last shard, has too few bytes
  EXPECT_FALSE(write_safetensors_sharded(dir.path(), tensors, {}, 16).has_value());
  EXPECT_EQ(dir.num_files(), 0u);
}

}  // namespace
}  // namespace trine
