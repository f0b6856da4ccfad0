// The GGUF reader on good files, and each rule it enforces on bad ones.
#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "base/bytes.h"
#include "format/gguf.h"
#include "support/format_bytes.h"

namespace trine {
namespace {

using test::Bytes;
using test::GgufBytes;
using test::small_gguf;

Result<GgufFile> parse(const std::string& bytes) {
  return parse_gguf(as_byte_span(bytes), "test.gguf");
}

class GgufVersions : public testing::TestWithParam<std::uint32_t> {};

TEST_P(GgufVersions, ReadsMetadataAndTensors) {
  GgufBytes made = small_gguf();
  made.version = GetParam();
  const std::string bytes = made.build();
  const auto file = parse(bytes);
  ASSERT_TRUE(file.has_value()) << file.error().message;
  EXPECT_EQ(file->version, GetParam());
  EXPECT_EQ(file->alignment, 32u);
  EXPECT_EQ(file->metadata.get_string("general.architecture").value(), "llama");
  EXPECT_EQ(file->metadata.get_uint("llama.block_count").value(), 2u);
  EXPECT_EQ(*file->metadata.get_array<std::string>("tokenizer.ggml.tokens", 3).value(),
            (std::vector<std::string>{"a", "b", "c"}));
  ASSERT_EQ(file->checkpoint.tensors().size(), 2u);
  const TensorInfo* a = file->checkpoint.find("a.weight");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->dtype, DType::kF32);
  EXPECT_EQ(a->shape, (std::vector<std::int64_t>{3, 4}));
  EXPECT_EQ(as_text(a->data), std::string(48, '\1'));
  const TensorInfo* b = file->checkpoint.require("b.weight").value();
  EXPECT_EQ(b->dtype, DType::kQ8_0);
  EXPECT_EQ(b->shape, (std::vector<std::int64_t>{2, 32}));
  EXPECT_EQ(as_text(b->data), std::string(68, '\2'));
  EXPECT_EQ(file->checkpoint.find("c.weight"), nullptr);
  EXPECT_NE(file->checkpoint.require("c.weight").error().message.find("c.weight is missing"),
            std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(All, GgufVersions, testing::Values(2u, 3u));

TEST(GgufRead, EveryValueType) {
  GgufBytes made;
  made.pairs = {{"u8", 0, Bytes{}.put(std::uint8_t{200}).out},
                {"i8", 1, Bytes{}.put(std::int8_t{-5}).out},
                {"u16", 2, Bytes{}.put(std::uint16_t{60000}).out},
                {"i16", 3, Bytes{}.put(std::int16_t{-300}).out},
                {"u32", 4, Bytes{}.put(std::uint32_t{4000000000u}).out},
                {"i32", 5, Bytes{}.put(std::int32_t{-70000}).out},
                {"f32", 6, Bytes{}.put(1.5f).out},
                {"bool", 7, Bytes{}.put(std::uint8_t{1}).out},
                {"string", 8, Bytes{}.text("x").out},
                {"u64", 10, Bytes{}.put(std::uint64_t{1} << 60).out},
                {"i64", 11, Bytes{}.put(std::int64_t{-1}).out},
                {"f64", 12, Bytes{}.put(-2.25).out},
                test::gguf_numbers<std::int32_t>("i32s", 5, {1, -2}),
                test::gguf_numbers<std::uint8_t>("bools", 7, {1, 0, 1})};
  const auto file = parse(made.build());
  ASSERT_TRUE(file.has_value()) << file.error().message;
  const GgufMetadata& meta = file->metadata;
  EXPECT_EQ(meta.get_uint("u8").value(), 200u);
  EXPECT_EQ(meta.get_int("i8").value(), -5);
  EXPECT_EQ(meta.get_uint("u16").value(), 60000u);
  EXPECT_EQ(meta.get_int("i16").value(), -300);
  EXPECT_EQ(meta.get_int("u32").value(), 4000000000);
  EXPECT_EQ(meta.get_int("i32").value(), -70000);
  EXPECT_EQ(meta.get_float("f32").value(), 1.5);
  EXPECT_TRUE(meta.get_bool("bool").value());
  EXPECT_EQ(meta.get_uint("u64").value(), std::uint64_t{1} << 60);
  EXPECT_EQ(meta.get_int("i64").value(), -1);
  EXPECT_EQ(meta.get_float("f64").value(), -2.25);
  EXPECT_EQ(meta.get_int_array("i32s", 2).value(), (std::vector<std::int64_t>{1, -2}));
  EXPECT_EQ(*meta.get_array<bool>("bools").value(), (std::vector<bool>{true, false, true}));
}

struct GetterCase {
  const char* name;
  std::function<Status(const GgufMetadata&)> get;
  const char* part;
};

template <typename T>
Status drop(Result<T> result) {
  return result.has_value() ? Status() : tl::unexpected(std::move(result).error());
}

class GgufGetters : public testing::TestWithParam<GetterCase> {};

TEST_P(GgufGetters, NameTheKeyTheTypeFoundAndTheTypeWanted) {
  GgufBytes made = small_gguf();
  made.pairs.push_back({"negative", 5, Bytes{}.put(std::int32_t{-7}).out});
  made.pairs.push_back({"huge", 10, Bytes{}.put(UINT64_MAX).out});
  made.pairs.push_back(test::gguf_f32("nan", __builtin_nanf("")));
  made.pairs.push_back(test::gguf_numbers<std::uint64_t>("huges", 10, {1, UINT64_MAX}));
  const auto file = parse(made.build());
  ASSERT_TRUE(file.has_value()) << file.error().message;
  const Status status = GetParam().get(file->metadata);
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, ErrorCode::kCorruptData);
  EXPECT_EQ(status.error().message, GetParam().part);
}

INSTANTIATE_TEST_SUITE_P(
    All, GgufGetters,
    testing::Values(
        GetterCase{"Missing", [](const auto& m) { return drop(m.get_uint("nope")); },
                   "metadata key nope is missing, wanted an unsigned integer"},
        GetterCase{"UintOfString",
                   [](const auto& m) { return drop(m.get_uint("general.architecture")); },
                   "metadata key general.architecture is string, wanted an unsigned integer"},
        GetterCase{"UintNegative", [](const auto& m) { return drop(m.get_uint("negative", 10)); },
                   "metadata key negative is i32 -7, wanted 0 to 10"},
        GetterCase{"UintTooLarge",
                   [](const auto& m) { return drop(m.get_uint("llama.block_count", 1)); },
                   "metadata key llama.block_count is u32 2, wanted 0 to 1"},
        GetterCase{
            "IntTooLarge", [](const auto& m) { return drop(m.get_int("huge")); },
            "metadata key huge is u64 18446744073709551615, wanted at most 9223372036854775807"},
        GetterCase{"FloatOfInt",
                   [](const auto& m) { return drop(m.get_float("llama.block_count")); },
                   "metadata key llama.block_count is u32, wanted f32 or f64"},
        GetterCase{"FloatNan", [](const auto& m) { return drop(m.get_float("nan")); },
                   "metadata key nan is nan, wanted a finite number"},
        GetterCase{"BoolOfInt", [](const auto& m) { return drop(m.get_bool("llama.block_count")); },
                   "metadata key llama.block_count is u32, wanted bool"},
        GetterCase{"StringOfArray",
                   [](const auto& m) { return drop(m.get_string("tokenizer.ggml.tokens")); },
                   "metadata key tokenizer.ggml.tokens is string[3], wanted string"},
        GetterCase{"ArrayElementType",
                   [](const auto& m) {
                     return drop(m.template get_array<float>("tokenizer.ggml.tokens", 3));
                   },
                   "metadata key tokenizer.ggml.tokens is string[3], wanted f32[3]"},
        GetterCase{"ArrayCount",
                   [](const auto& m) {
                     return drop(m.template get_array<std::string>("tokenizer.ggml.tokens", 4));
                   },
                   "metadata key tokenizer.ggml.tokens is string[3], wanted string[4]"},
        GetterCase{"IntArrayOfStrings",
                   [](const auto& m) { return drop(m.get_int_array("tokenizer.ggml.tokens")); },
                   "metadata key tokenizer.ggml.tokens is string[3], wanted integer[]"},
        GetterCase{"IntArrayItem", [](const auto& m) { return drop(m.get_int_array("huges")); },
                   "metadata key huges: item 1 is 18446744073709551615, wanted at most "
                   "9223372036854775807"}),
    [](const auto& param_info) { return param_info.param.name; });

// One broken file per rule; the error must name what, the value and the limit.
struct BadCase {
  const char* name;
  std::function<std::string()> bytes;
  ErrorCode code;
  const char* part;
};

std::function<std::string()> changed(std::function<void(GgufBytes&)> change) {
  return [change = std::move(change)] {
    GgufBytes file = small_gguf();
    change(file);
    return file.build();
  };
}

std::function<std::string()> truncated(std::size_t keep) {
  return [keep] { return small_gguf().build().substr(0, keep); };
}

constexpr auto kCorrupt = ErrorCode::kCorruptData;
constexpr auto kUnsupported = ErrorCode::kUnsupported;

class GgufRefuses : public testing::TestWithParam<BadCase> {};

TEST_P(GgufRefuses, WithAnErrorThatSaysWhy) {
  const auto file = parse(GetParam().bytes());
  ASSERT_FALSE(file.has_value());
  EXPECT_EQ(file.error().code, GetParam().code) << file.error().message;
  EXPECT_TRUE(file.error().message.starts_with("test.gguf: ")) << file.error().message;
  EXPECT_NE(file.error().message.find(GetParam().part), std::string::npos) << file.error().message;
}

INSTANTIATE_TEST_SUITE_P(
    Header, GgufRefuses,
    testing::Values(BadCase{"Empty", [] { return std::string(); }, kCorrupt,
                            "magic: 4 bytes needed at offset 0, 0 left"},
                    BadCase{"Magic", changed([](auto& f) { f.magic = "GGXF"; }), kCorrupt,
                            "magic is \"GGXF\", wanted \"GGUF\""},
                    BadCase{"Version1", changed([](auto& f) { f.version = 1; }), kUnsupported,
                            "GGUF version 1"},
                    BadCase{"Version4", changed([](auto& f) { f.version = 4; }), kUnsupported,
                            "GGUF version 4, supported are 2 and 3"},
                    BadCase{"Version0", changed([](auto& f) { f.version = 0; }), kUnsupported,
                            "GGUF version 0"},
                    BadCase{"BigEndian", changed([](auto& f) { f.version = 0x03000000; }),
                            kUnsupported, "big-endian GGUF (version 3)"},
                    BadCase{"TruncatedCounts", truncated(20), kCorrupt,
                            "metadata count: 8 bytes needed at offset 16, 4 left"},
                    BadCase{"TensorCount", changed([](auto& f) { f.num_tensors = 1'000'001; }),
                            kCorrupt, "tensor count 1000001, at most 1000000"},
                    BadCase{"TensorCountForBytes",
                            changed([](auto& f) { f.num_tensors = 1'000'000; }), kCorrupt,
                            "tensor count 1000000 needs 33 bytes each"},
                    BadCase{"PairCountWraps",
                            changed([](auto& f) { f.num_pairs = std::uint64_t{1} << 63; }),
                            kCorrupt, "metadata count 9223372036854775808 needs 14 bytes each"}),
    [](const auto& param_info) { return param_info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Metadata, GgufRefuses,
    testing::Values(
        BadCase{"KeyLength",
                [] {
                  return Bytes{}
                      .raw("GGUF")
                      .put(3u)
                      .put(std::uint64_t{0})
                      .put(std::uint64_t{1})
                      .put(std::uint64_t{1} << 63)
                      .raw(std::string(40, 'x'))
                      .out;
                },
                kCorrupt, "metadata key 0: string of 9223372036854775808 bytes, at most 65536"},
        BadCase{"KeyTooLong", changed([](auto& f) { f.pairs[0].key = std::string(65537, 'k'); }),
                kCorrupt, "metadata key 0: string of 65537 bytes, at most 65536"},
        BadCase{"KeyEmpty", changed([](auto& f) { f.pairs[1].key = ""; }), kCorrupt,
                "metadata pair 1: empty key"},
        BadCase{"KeyTwice", changed([](auto& f) { f.pairs[1].key = f.pairs[0].key; }), kCorrupt,
                "metadata key general.architecture occurs twice"},
        BadCase{"ValueType", changed([](auto& f) { f.pairs[1].type = 13; }), kCorrupt,
                "metadata key llama.block_count: value type 13, wanted 0 to 12"},
        BadCase{"StringLength",
                changed([](auto& f) { f.pairs[0].value = Bytes{}.put(UINT64_MAX).out; }), kCorrupt,
                "metadata key general.architecture: string of 18446744073709551615 bytes, at most "
                "16777216"},
        BadCase{"StringPastEnd", changed([](auto& f) {
                  f.pairs[0].value = Bytes{}.put(std::uint64_t{1000000}).out;
                }),
                kCorrupt, "metadata key general.architecture: 1000000 bytes needed"},
        BadCase{"BoolByte", changed([](auto& f) {
                  f.pairs[1] = {"flag", 7, std::string(1, '\2')};
                }),
                kCorrupt, "metadata key flag: bool byte is 2, wanted 0 or 1"},
        BadCase{"BoolItem", changed([](auto& f) {
                  f.pairs[1] = test::gguf_numbers<std::uint8_t>("flags", 7, {1, 9});
                }),
                kCorrupt, "metadata key flags: bool byte is 9, wanted 0 or 1"},
        BadCase{"NestedArray", changed([](auto& f) {
                  f.pairs[1] = {"nest", 9, Bytes{}.put(9u).put(std::uint64_t{1}).out};
                }),
                kCorrupt, "metadata key nest: array of arrays, arrays may not nest"},
        BadCase{"ArrayElementType", changed([](auto& f) {
                  f.pairs[1] = {"odd", 9, Bytes{}.put(77u).put(std::uint64_t{1}).out};
                }),
                kCorrupt, "metadata key odd: array element type 77, wanted 0 to 12"},
        BadCase{"ArrayCountWraps", changed([](auto& f) {
                  f.pairs[1] = {"many", 9, Bytes{}.put(4u).put((std::uint64_t{1} << 62) + 1).out};
                }),
                kCorrupt, "metadata key many: array of 4611686018427387905 items of 4 bytes"},
        BadCase{"ArrayCountPastEnd", changed([](auto& f) {
                  f.pairs[1] = {"many", 9, Bytes{}.put(4u).put(std::uint64_t{100000}).out};
                }),
                kCorrupt, "metadata key many: array of 100000 items of 4 bytes"},
        BadCase{"StringArrayCount", changed([](auto& f) {
                  f.pairs[1] = {"many", 9, Bytes{}.put(8u).put(std::uint64_t{1} << 61).out};
                }),
                kCorrupt, "metadata key many: array of 2305843009213693952 strings"},
        BadCase{"BoolArrayCount", changed([](auto& f) {
                  f.pairs[1] = {"many", 9, Bytes{}.put(7u).put(std::uint64_t{1} << 63).out};
                }),
                kCorrupt, "metadata key many: array of 9223372036854775808 items of 1 byte"},
        BadCase{"AlignmentType", changed([](auto& f) {
                  f.pairs.push_back({"general.alignment", 10, Bytes{}.put(std::uint64_t{32}).out});
                }),
                kCorrupt, "metadata key general.alignment is u64, wanted u32"},
        BadCase{"AlignmentZero",
                changed([](auto& f) { f.pairs.push_back(test::gguf_u32("general.alignment", 0)); }),
                kCorrupt,
                "metadata key general.alignment is 0, wanted a power of two from 8 to 65536"},
        BadCase{"AlignmentSmall",
                changed([](auto& f) { f.pairs.push_back(test::gguf_u32("general.alignment", 4)); }),
                kCorrupt,
                "metadata key general.alignment is 4, wanted a power of two from 8 to 65536"},
        BadCase{"AlignmentOdd", changed([](auto& f) {
                  f.pairs.push_back(test::gguf_u32("general.alignment", 48));
                }),
                kCorrupt,
                "metadata key general.alignment is 48, wanted a power of two from 8 to 65536"},
        BadCase{
            "AlignmentHuge", changed([](auto& f) {
              f.pairs.push_back(test::gguf_u32("general.alignment", 1u << 30));
            }),
            kCorrupt,
            "metadata key general.alignment is 1073741824, wanted a power of two from 8 to 65536"},
        BadCase{"SplitFile",
                changed([](auto& f) { f.pairs.push_back(test::gguf_u32("split.count", 3)); }),
                kUnsupported, "metadata key split.count is 3: a part of a split GGUF"}),
    [](const auto& param_info) { return param_info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Tensors, GgufRefuses,
    testing::Values(
        BadCase{"NameTooLong", changed([](auto& f) { f.tensors[1].name = std::string(64, 'n'); }),
                kCorrupt, "name of tensor 1: string of 64 bytes, at most 63"},
        BadCase{"NameEmpty", changed([](auto& f) { f.tensors[1].name = ""; }), kCorrupt,
                "tensor 1 has an empty name"},
        BadCase{"NameTwice", changed([](auto& f) { f.tensors[1].name = "a.weight"; }), kCorrupt,
                "tensor a.weight occurs twice"},
        BadCase{"DimsZero", changed([](auto& f) { f.tensors[0].num_dims = 0; }), kCorrupt,
                "tensor a.weight: 0 dimensions, wanted 1 to 4"},
        BadCase{"DimsFive", changed([](auto& f) { f.tensors[0].num_dims = 5; }), kCorrupt,
                "tensor a.weight: 5 dimensions, wanted 1 to 4"},
        BadCase{"DimsHuge", changed([](auto& f) { f.tensors[0].num_dims = 0xFFFFFFFF; }), kCorrupt,
                "tensor a.weight: 4294967295 dimensions, wanted 1 to 4"},
        BadCase{"DimZero", changed([](auto& f) {
                  f.tensors[0].dims = {4, 0};
                }),
                kCorrupt, "tensor a.weight: dimension 1 is 0, wanted 1 to 9223372036854775807"},
        BadCase{"DimNegative", changed([](auto& f) {
                  f.tensors[0].dims = {-4, 3};
                }),
                kCorrupt,
                "tensor a.weight: dimension 0 is 18446744073709551612, wanted 1 to "
                "9223372036854775807"},
        BadCase{
            "ElementsWrap", changed([](auto& f) {
              f.tensors[0].dims = {(std::int64_t{1} << 42) + 1, std::int64_t{1} << 22, 4};
            }),
            kCorrupt,
            "tensor a.weight: dimensions [4398046511105, 4194304, 4] (file order) have more than"},
        BadCase{"BytesWrap", changed([](auto& f) { f.tensors[0].dims = {std::int64_t{1} << 62}; }),
                kCorrupt,
                "tensor a.weight: 4611686018427387904 elements of F32 need more than "
                "9223372036854775807 bytes"},
        BadCase{"SizePastEnd", changed([](auto& f) {
                  f.tensors[1].dims = {32, std::int64_t{1} << 40};
                }),
                kCorrupt,
                "tensor b.weight: 37383395344384 bytes at offset 64, the data section has 160"},
        BadCase{"RowNotInBlocks", changed([](auto& f) {
                  f.tensors[1].dims = {16, 4};
                }),
                kCorrupt,
                "tensor b.weight: row of 16 elements is not a multiple of 32, the block of Q8_0"},
        BadCase{"TypeUnknown", changed([](auto& f) { f.tensors[1].type = 99; }), kUnsupported,
                "tensor b.weight: type 99 is unknown"},
        BadCase{"TypeRemoved4", changed([](auto& f) { f.tensors[1].type = 4; }), kUnsupported,
                "tensor b.weight: type 4 (Q4_2) was removed"},
        BadCase{"TypeRemoved5", changed([](auto& f) { f.tensors[1].type = 5; }), kUnsupported,
                "type 5 (Q4_3) was removed"},
        BadCase{"TypeRemoved31", changed([](auto& f) { f.tensors[1].type = 31; }), kUnsupported,
                "type 31 (Q4_0_4_4) was removed"},
        BadCase{"TypeRemoved32", changed([](auto& f) { f.tensors[1].type = 32; }), kUnsupported,
                "type 32 (Q4_0_4_8) was removed"},
        BadCase{"TypeRemoved33", changed([](auto& f) { f.tensors[1].type = 33; }), kUnsupported,
                "type 33 (Q4_0_8_8) was removed"},
        BadCase{"TypeRemoved36", changed([](auto& f) { f.tensors[1].type = 36; }), kUnsupported,
                "type 36 (IQ4_NL_4_4) was removed"},
        BadCase{"TypeRemoved37", changed([](auto& f) { f.tensors[1].type = 37; }), kUnsupported,
                "type 37 (IQ4_NL_4_8) was removed"},
        BadCase{"TypeRemoved38", changed([](auto& f) { f.tensors[1].type = 38; }), kUnsupported,
                "type 38 (IQ4_NL_8_8) was removed"},
        BadCase{"TypeQ8K", changed([](auto& f) { f.tensors[1].type = 15; }), kUnsupported,
                "type 15 (Q8_K)"},
        BadCase{"OffsetOverlaps", changed([](auto& f) { f.tensors[1].offset = 32; }), kCorrupt,
                "tensor b.weight: offset 32, wanted 64"},
        BadCase{"OffsetHole", changed([](auto& f) { f.tensors[1].offset = 96; }), kCorrupt,
                "tensor b.weight: offset 96, wanted 64"},
        BadCase{"OffsetHuge", changed([](auto& f) { f.tensors[1].offset = UINT64_MAX - 16; }),
                kCorrupt, "tensor b.weight: offset 18446744073709551599, wanted 64"},
        BadCase{"OffsetFirst", changed([](auto& f) { f.tensors[0].offset = 32; }), kCorrupt,
                "tensor a.weight: offset 32, wanted 0"},
        BadCase{
            "TruncatedData",
            [] {
              const std::string whole = small_gguf().build();
              return whole.substr(0, whole.size() - 40);
            },
            kCorrupt,
            "tensor b.weight: 68 bytes at offset 64, the data section has 120 (truncated file?)"},
        BadCase{"TrailingBlock", changed([](auto& f) { f.trailing = std::string(32, '\0'); }),
                kCorrupt, "60 bytes after the last tensor, at most 28 of padding"},
        BadCase{"TrailingData",
                [] {
                  std::string whole = small_gguf().build();
                  whole.back() = 'x';
                  return whole;
                },
                kCorrupt, "the 28 bytes of padding after the last tensor are not zero"}),
    [](const auto& param_info) { return param_info.param.name; });

TEST(GgufRead, EveryTruncationIsAnErrorAndTheLastPaddingIsOptional) {
  const std::string whole = small_gguf().build();
  const std::size_t last_tensor_end = whole.size() - 28;
  for (std::size_t keep = 0; keep <= whole.size(); ++keep) {
    EXPECT_EQ(parse(whole.substr(0, keep)).has_value(), keep >= last_tensor_end) << keep;
  }
}

TEST(GgufRead, AlignmentKeyMovesTheData) {
  GgufBytes made = small_gguf();
  made.alignment = 256;
  made.pairs.push_back(test::gguf_u32("general.alignment", 256));
  const std::string bytes = made.build();
  const auto file = parse(bytes);
  ASSERT_TRUE(file.has_value()) << file.error().message;
  EXPECT_EQ(file->alignment, 256u);
  const auto data = file->checkpoint.find("b.weight")->data;
  EXPECT_EQ((data.data() - as_byte_span(bytes).data()) % 256, 0);
  EXPECT_EQ(as_text(data), std::string(68, '\2'));
}

TEST(GgufRead, MetadataWithoutTensors) {
  GgufBytes made = small_gguf();
  made.tensors.clear();
  const auto file = parse(made.build());
  ASSERT_TRUE(file.has_value()) << file.error().message;
  EXPECT_TRUE(file->checkpoint.tensors().empty());
  made.trailing = "x";
  EXPECT_FALSE(parse(made.build()).has_value());
}

TEST(GgufRead, CodebookTypesOpenButAreRefusedAsWeights) {
  constexpr std::pair<std::uint32_t, std::size_t> kTypes[] = {
      {16, 66}, {17, 74}, {18, 98}, {19, 50}, {21, 110}, {22, 82}, {29, 56}};
  for (const auto& [type, size] : kTypes) {
    GgufBytes made;
    made.tensors = {{.name = "w", .dims = {256}, .type = type, .data = std::string(size, '\1')}};
    const auto file = parse(made.build());
    ASSERT_TRUE(file.has_value()) << file.error().message;
    const TensorInfo& tensor = file->checkpoint.tensors()[0];
    const Status status = check_decodable(tensor);
    ASSERT_FALSE(status.has_value());
    EXPECT_EQ(status.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(status.error().message.find(
                  fmt::format("tensor w: {} is a codebook type", dtype_info(tensor.dtype).name)),
              std::string::npos)
        << status.error().message;
  }
}

TEST(GgufRead, IntegerTensorsAreNoWeights) {
  const TensorInfo tensor{"ids", DType::kI32, {1}, {}};
  EXPECT_EQ(check_decodable(tensor).error().message,
            "tensor ids: type I32 cannot be used as a weight");
  const TensorInfo weight{"w", DType::kQ4K, {1}, {}};
  EXPECT_TRUE(check_decodable(weight).has_value());
}

TEST(GgufRead, NamesInErrorsCannotDriveATerminal) {
  GgufBytes made = small_gguf();
  made.tensors[1].name = "\x1b[2J\xff\xc2\x9b\xc3\xa9";
  made.tensors[1].offset = 1;
  const auto file = parse(made.build());
  ASSERT_FALSE(file.has_value());
  EXPECT_NE(file.error().message.find("tensor \\x1b[2J\\xff\\xc2\\x9b\xc3\xa9: offset"),
            std::string::npos)
      << file.error().message;
}

}  // namespace
}  // namespace trine
