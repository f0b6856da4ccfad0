// The safetensors reader on good files, and each rule it enforces on bad ones.
#include "format/safetensors.h"

#include <string>

#include <gtest/gtest.h>

#include "base/bytes.h"
#include "support/format_bytes.h"

namespace trine {
namespace {

using test::safetensors_bytes;

constexpr std::string_view kOne = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";

TEST(Safetensors, ReadsTensorsInBufferOrder) {
  const std::string bytes = safetensors_bytes(
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F16","shape":[2,3],"data_offsets":[8,20]},)"
      R"("a":{"dtype":"I64","shape":[],"data_offsets":[0,8]},"e":{"shape":[4,0],"dtype":"BF16","data_offsets":[8,8]}}  )",
      std::string(8, '\1') + std::string(12, '\2'));
  const auto file = parse_safetensors(as_byte_span(bytes));
  ASSERT_TRUE(file.has_value()) << file.error().message;
  EXPECT_EQ(file->metadata, (StringPairs{{"format", "pt"}}));
  ASSERT_EQ(file->tensors.size(), 3u);
  EXPECT_EQ(file->tensors[0].name, "a");
  EXPECT_TRUE(file->tensors[0].shape.empty());
  EXPECT_EQ(file->tensors[0].num_elems(), 1);
  EXPECT_EQ(file->tensors[1].name, "e");
  EXPECT_EQ(file->tensors[1].shape, (std::vector<std::int64_t>{4, 0}));
  EXPECT_TRUE(file->tensors[1].data.empty());
  EXPECT_EQ(file->tensors[2].name, "b");
  EXPECT_EQ(file->tensors[2].dtype, DType::kF16);
  EXPECT_EQ(as_text(file->tensors[2].data), std::string(12, '\2'));
}

TEST(Safetensors, KnowsEveryElementType) {
  constexpr std::tuple<const char*, DType, int, int> kTypes[] = {
      {"BOOL", DType::kBool, 4, 4},
      {"U8", DType::kU8, 4, 4},
      {"I8", DType::kI8, 4, 4},
      {"F8_E5M2", DType::kF8E5M2, 4, 4},
      {"F8_E4M3", DType::kF8E4M3, 4, 4},
      {"F8_E8M0", DType::kF8E8M0, 4, 4},
      {"I16", DType::kI16, 4, 8},
      {"U16", DType::kU16, 4, 8},
      {"F16", DType::kF16, 4, 8},
      {"BF16", DType::kBF16, 4, 8},
      {"I32", DType::kI32, 4, 16},
      {"U32", DType::kU32, 4, 16},
      {"F32", DType::kF32, 4, 16},
      {"F64", DType::kF64, 4, 32},
      {"I64", DType::kI64, 4, 32},
      {"U64", DType::kU64, 4, 32},
      {"C64", DType::kC64, 4, 32},
      {"F4", DType::kF4, 4, 2},
      {"F6_E2M3", DType::kF6E2M3, 4, 3},
      {"F6_E3M2", DType::kF6E3M2, 4, 3},
      {"F8_E4M3FNUZ", DType::kF8E4M3FNUZ, 4, 4},
      {"F8_E5M2FNUZ", DType::kF8E5M2FNUZ, 4, 4}};
  for (const auto& [name, dtype, elems, size] : kTypes) {
    const std::string bytes = safetensors_bytes(
        fmt::format(R"({{"w":{{"dtype":"{}","shape":[{}],"data_offsets":[0,{}]}}}})", name, elems,
                    size),
        std::string(static_cast<std::size_t>(size), '\0'));
    const auto file = parse_safetensors(as_byte_span(bytes));
    ASSERT_TRUE(file.has_value()) << name << ": " << file.error().message;
    EXPECT_EQ(file->tensors[0].dtype, dtype) << name;
    EXPECT_EQ(safetensors_dtype_name(dtype), name);
  }
  EXPECT_EQ(safetensors_dtype_name(DType::kQ4K), "");
}

struct BadCase {
  const char* name;
  std::string bytes;
  const char* part;
  ErrorCode code = ErrorCode::kCorruptData;
};

BadCase bad_json(const char* name, std::string_view json, const char* part,
                 ErrorCode code = ErrorCode::kCorruptData) {
  return {name, safetensors_bytes(json, std::string(8, '\0')), part, code};
}

// One tensor "a" over a buffer of 8 bytes, given by the rest of its entry.
BadCase bad_entry(const char* name, std::string_view fields, const char* part,
                  ErrorCode code = ErrorCode::kCorruptData) {
  return bad_json(name, fmt::format(R"({{"a":{{{}}}}})", fields), part, code);
}

class SafetensorsRefuses : public testing::TestWithParam<BadCase> {};

TEST_P(SafetensorsRefuses, WithAnErrorThatSaysWhy) {
  const auto file = parse_safetensors(as_byte_span(GetParam().bytes));
  ASSERT_FALSE(file.has_value());
  EXPECT_EQ(file.error().code, GetParam().code) << file.error().message;
  EXPECT_NE(file.error().message.find(GetParam().part), std::string::npos) << file.error().message;
}

INSTANTIATE_TEST_SUITE_P(
    Header, SafetensorsRefuses,
    testing::Values(
        BadCase{"Empty", "", "header size: 8 bytes needed at offset 0, 0 left"},
        BadCase{"HeaderTooLarge", safetensors_bytes(kOne, "abcd", 100'000'001),
                "header of 100000001 bytes, at most 100000000"},
        BadCase{"HeaderWraps", safetensors_bytes(kOne, "abcd", UINT64_MAX - 7),
                "header of 18446744073709551608 bytes, at most 100000000"},
        BadCase{"HeaderPastEnd", safetensors_bytes(kOne, "abcd", 1000),
                "header: 1000 bytes needed"},
        BadCase{"HeaderEmpty", safetensors_bytes("", "abcd"),
                "header starts with \"\", wanted \"{\""},
        bad_json("HeaderSpace", " {}", "header starts with \" \", wanted \"{\""),
        bad_json("HeaderArray", "[]", "header starts with \"[\", wanted \"{\""),
        bad_json("HeaderSyntax", "{", "JSON: parse error"),
        bad_json("HeaderTail", "{} x", "JSON: parse error"),
        bad_json(
            "DuplicateName",
            R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
            "duplicate key \"a\""),
        bad_json("Depth", R"({"a":{"b":{"c":{"d":{"e":{"f":{"g":{"h":{}}}}}}}}})",
                 "nesting deeper than 8"),
        bad_json("MetadataArray", R"({"__metadata__":[]})", "__metadata__ is not an object"),
        bad_json("MetadataNumber", R"({"__metadata__":{"k":1}})",
                 "__metadata__ key \"k\" is not a string"),
        bad_json("NameTooLong", "{\"" + std::string(65537, 'n') + "\":{}}",
                 "tensor name of 65537 bytes, at most 65536")),
    [](const auto& param_info) { return param_info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Entries, SafetensorsRefuses,
    testing::Values(
        bad_json("EntryNumber", R"({"a":3})", "tensor a: entry is not an object"),
        bad_entry("FieldMissing", R"("dtype":"F32","shape":[2])",
                  "tensor a: field data_offsets is missing"),
        bad_entry("FieldUnknown", R"("dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1)",
                  "tensor a: unknown field \"x\""),
        bad_entry("DtypeNumber", R"("dtype":1,"shape":[2],"data_offsets":[0,8])",
                  "tensor a: dtype is not a string"),
        bad_entry("DtypeUnknown", R"("dtype":"Q9","shape":[2],"data_offsets":[0,8])",
                  "tensor a: dtype \"Q9\" is unknown", ErrorCode::kUnsupported),
        bad_entry("ShapeObject", R"("dtype":"F32","shape":{},"data_offsets":[0,8])",
                  "tensor a: shape is not an array"),
        bad_entry("ShapeNegative", R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])",
                  "tensor a: shape holds -2, wanted a non-negative integer"),
        bad_entry("ShapeFloat", R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])",
                  "tensor a: shape holds 2.0, wanted a non-negative integer"),
        bad_entry("ShapeText", R"("dtype":"F32","shape":["2"],"data_offsets":[0,8])",
                  "tensor a: shape holds \"2\", wanted a non-negative integer"),
        bad_entry("ShapeHuge",
                  R"("dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,8])",
                  "tensor a: shape holds 9223372036854775808, at most 9223372036854775807"),
        bad_entry("ShapeWraps",
                  R"("dtype":"F32","shape":[4294967297,4294967296,2],"data_offsets":[0,8])",
                  "tensor a: shape [4294967297, 4294967296] has more than"),
        bad_entry("BytesWrap",
                  R"("dtype":"F64","shape":[2305843009213693953],"data_offsets":[0,8])",
                  "tensor a: 2305843009213693953 elements of F64"),
        bad_entry("SubByteEnd", R"("dtype":"F4","shape":[3],"data_offsets":[0,2])",
                  "tensor a: 3 elements of F4 do not end on a byte"),
        bad_entry("SizeMismatch", R"("dtype":"F32","shape":[3],"data_offsets":[0,8])",
                  "tensor a: shape [3] of F32 needs 12 bytes, data_offsets [0, 8) give 8"),
        bad_entry("OffsetsThree", R"("dtype":"F32","shape":[2],"data_offsets":[0,8,8])",
                  "tensor a: data_offsets is not an array of two"),
        bad_entry("OffsetsBackwards", R"("dtype":"F32","shape":[2],"data_offsets":[8,0])",
                  "tensor a: data_offsets [8, 0) run backwards"),
        bad_entry("OffsetsNegative", R"("dtype":"F32","shape":[2],"data_offsets":[-8,0])",
                  "tensor a: data_offsets holds -8"),
        bad_entry("FirstNotZero", R"("dtype":"F32","shape":[1],"data_offsets":[4,8])",
                  "tensor a: begins at 4, wanted 0 (a hole"),
        bad_entry("PastEnd", R"("dtype":"F32","shape":[4],"data_offsets":[0,16])",
                  "tensor a: ends at 16, the buffer has 8 bytes (truncated file?)"),
        bad_entry("Trailing", R"("dtype":"F32","shape":[1],"data_offsets":[0,4])",
                  "4 bytes after the last tensor, none are allowed"),
        bad_json("NoTensors", "{}", "8 bytes after the last tensor, none are allowed"),
        bad_json(
            "Overlap",
            R"({"a":{"dtype":"U8","shape":[6],"data_offsets":[0,6]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
            "tensor b: begins at 4, wanted 6 (overlap"),
        bad_json(
            "Hole",
            R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
            "tensor b: begins at 4, wanted 2 (a hole"),
        bad_json(
            "SameBytesTwice",
            R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})",
            "tensor b: begins at 0, wanted 8 (overlap")),
    [](const auto& param_info) { return param_info.param.name; });

struct IndexCase {
  const char* name;
  const char* json;
  const char* part;
  ErrorCode code = ErrorCode::kCorruptData;
};

class SafetensorsIndexRefuses : public testing::TestWithParam<IndexCase> {};

TEST_P(SafetensorsIndexRefuses, WithAnErrorThatSaysWhy) {
  const auto map = parse_safetensors_index(GetParam().json);
  ASSERT_FALSE(map.has_value());
  EXPECT_EQ(map.error().code, GetParam().code) << map.error().message;
  EXPECT_NE(map.error().message.find(GetParam().part), std::string::npos) << map.error().message;
}

INSTANTIATE_TEST_SUITE_P(
    All, SafetensorsIndexRefuses,
    testing::Values(
        IndexCase{"NotJson", "weights", "JSON: parse error"},
        IndexCase{"NotAnObject", "[]", "weight_map is missing or not an object"},
        IndexCase{"NoMap", "{}", "weight_map is missing or not an object"},
        IndexCase{"MapArray", R"({"weight_map":[]})", "weight_map is missing or not an object"},
        IndexCase{"MapEmpty", R"({"weight_map":{}})", "weight_map has 0 entries"},
        IndexCase{"NameTwice", R"({"weight_map":{"a":"x.safetensors","a":"y.safetensors"}})",
                  "duplicate key \"a\""},
        IndexCase{"FileNumber", R"({"weight_map":{"a":1}})",
                  "weight_map entry a is not a file name"},
        IndexCase{"Parent", R"({"weight_map":{"a":"../x.safetensors"}})",
                  "weight_map entry a: file name \"../x.safetensors\" is not a plain name"},
        IndexCase{"Absolute", R"({"weight_map":{"a":"/x.safetensors"}})", "is not a plain name"},
        IndexCase{"Folder", R"({"weight_map":{"a":"d/x.safetensors"}})", "is not a plain name"},
        IndexCase{"Backslash", R"({"weight_map":{"a":"d\\x.safetensors"}})", "is not a plain name"},
        IndexCase{"Drive", R"({"weight_map":{"a":"c:x.safetensors"}})", "is not a plain name"},
        IndexCase{"Hidden", R"({"weight_map":{"a":".x.safetensors"}})", "is not a plain name"},
        IndexCase{"Nul", R"({"weight_map":{"a":"x\u0000.safetensors"}})", "is not a plain name"},
        IndexCase{"NoName", R"({"weight_map":{"a":""}})", "is not a plain name"},
        IndexCase{"Pickle", R"({"weight_map":{"a":"pytorch_model.bin"}})",
                  "does not end in .safetensors", ErrorCode::kUnsupported}),
    [](const auto& param_info) { return param_info.param.name; });

std::vector<SafetensorsShard> two_shards() {
  return {{"1.safetensors", {{"a", DType::kF32, {0}, {}}, {"b", DType::kF32, {0}, {}}}},
          {"2.safetensors", {{"c", DType::kF32, {0}, {}}}}};
}

TEST(SafetensorsShards, EachNameOnceAndWhereTheIndexSays) {
  const StringPairs map{{"a", "1.safetensors"}, {"b", "1.safetensors"}, {"c", "2.safetensors"}};
  EXPECT_EQ(join_safetensors_shards(map, two_shards())->size(), 3u);
  const auto message = [](const auto& result) {
    return result.has_value() ? "no error" : result.error().message;
  };
  EXPECT_EQ(
      message(join_safetensors_shards(
          {{"a", "1.safetensors"}, {"b", "2.safetensors"}, {"c", "2.safetensors"}}, two_shards())),
      "tensor b is in 1.safetensors, weight_map says 2.safetensors");
  EXPECT_EQ(message(join_safetensors_shards({{"a", "1.safetensors"}, {"c", "2.safetensors"}},
                                            two_shards())),
            "tensor b is in 1.safetensors but not in weight_map (or occurs twice)");
  auto missing = two_shards();
  missing[0].tensors.pop_back();
  EXPECT_EQ(message(join_safetensors_shards(map, missing)),
            "tensor b is not in 1.safetensors, where weight_map puts it");
  auto twice = two_shards();
  twice[0].tensors.push_back(twice[0].tensors[0]);
  EXPECT_EQ(message(join_safetensors_shards(map, twice)),
            "tensor a is in 1.safetensors but not in weight_map (or occurs twice)");
}

}  // namespace
}  // namespace trine
