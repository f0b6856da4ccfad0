#include "format/quantized_linear.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "support/quantized_tensors.h"

namespace trine {
namespace {

using test::TensorBag;
using test::to_words;
using test::transpose;

constexpr std::int64_t kRows = 16;
constexpr std::int64_t kCols = 64;
constexpr std::int64_t kGroup = 32;
constexpr std::int64_t kGroups = 2;

// A 4-bit GPTQ matrix "m" of version 1; every stored zero point is `zero`.
TensorBag gptq(unsigned zero = 7, int bits = 4) {
  TensorBag bag;
  std::vector<std::vector<unsigned>> codes(kRows, std::vector<unsigned>(kCols));
  for (std::size_t r = 0; r < codes.size(); ++r) {
    for (std::size_t c = 0; c < codes[r].size(); ++c) {
      codes[r][c] = static_cast<unsigned>((r * 7 + c * 3) % (std::size_t{1} << bits));
    }
  }
  bag.add("m.qweight", DType::kI32, {kCols * bits / 32, kRows},
          transpose(to_words(codes, bits), kRows));
  bag.add("m.qzeros", DType::kI32, {kGroups, (kRows * bits + 31) / 32},
          to_words(std::vector<std::vector<unsigned>>(kGroups, std::vector<unsigned>(kRows, zero)),
                   bits));
  bag.add("m.scales", DType::kF32, {kGroups, kRows},
          std::vector<float>(static_cast<std::size_t>(kGroups * kRows), 0.25F));
  std::vector<std::int32_t> index(kCols);
  for (std::size_t i = 0; i < index.size(); ++i) {
    index[i] = static_cast<std::int32_t>(i / kGroup);
  }
  bag.add("m.g_idx", DType::kI32, {kCols}, index);
  return bag;
}

QuantConfig gptq_config() {
  QuantConfig config;
  config.weights.group = kGroup;
  config.weights.symmetric = true;
  return config;
}

Result<QuantizedLinear> bind(const TensorBag& bag, const QuantConfig& config = gptq_config(),
                             bool more_rows = false) {
  const Checkpoint checkpoint = bag.checkpoint();
  return QuantizedLinear::bind(checkpoint, config, config.weights, "m", {kRows, kCols, more_rows});
}

void expect_error(const Result<QuantizedLinear>& result, ErrorCode code, std::string_view text) {
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, code);
  EXPECT_NE(result.error().message.find(text), std::string::npos) << result.error().message;
}

TEST(QuantizedLinear, ReadsVersionOneAndTwo) {
  TensorBag bag = gptq(2);
  QuantConfig config = gptq_config();
  config.weights.symmetric = false;
  EXPECT_EQ(bind(bag, config)->zero(3, 1), 3);
  config.stored_zero_is_less_one = false;
  EXPECT_EQ(bind(bag, config)->zero(3, 1), 2);
}

TEST(QuantizedLinear, SymmetricZeroPointsOverruleTheLabel) {
  for (const bool label_v1 : {true, false}) {
    for (const unsigned stored : {7U, 8U}) {
      QuantConfig config = gptq_config();
      config.stored_zero_is_less_one = label_v1;
      const TensorBag bag = gptq(stored);  // outlives what reads it
      const auto linear = bind(bag, config);
      ASSERT_TRUE(linear.has_value());
      EXPECT_EQ(linear->zero(0, 0), 8);
      EXPECT_TRUE(linear->symmetric());
      EXPECT_EQ(linear->relabelled(), label_v1 != (stored == 7));
      config.weights.symmetric.reset();  // the file does not say: the data decides
      EXPECT_EQ(bind(gptq(stored), config)->zero(0, 0), 8);
      config.weights.symmetric = false;  // it says otherwise: the label counts
      EXPECT_EQ(bind(gptq(stored), config)->zero(0, 0),
                static_cast<int>(stored) + (label_v1 ? 1 : 0));
    }
  }
}

TEST(QuantizedLinear, WrappedZeroPointsAreCounted) {
  QuantConfig config = gptq_config();
  config.weights.symmetric = false;
  const TensorBag bag = gptq(15);
  const auto linear = bind(bag, config);
  ASSERT_TRUE(linear.has_value());
  EXPECT_EQ(linear->zero(0, 0), 0);
  EXPECT_EQ(linear->wrapped_zeros(), kRows * kGroups);
  config.weights.symmetric = true;
  EXPECT_TRUE(bind(bag, config)->unlike_symmetric());
}

TEST(QuantizedLinear, GroupIndexInAnyOrder) {
  TensorBag bag = gptq();
  bag.drop("m.g_idx");
  std::vector<std::int32_t> index(kCols);
  for (std::size_t i = 0; i < index.size(); ++i) {
    index[i] = static_cast<std::int32_t>(i % 2);
  }
  bag.add("m.g_idx", DType::kI32, {kCols}, index);
  EXPECT_EQ(bind(bag)->group_of(5), 1);
  bag.drop("m.g_idx");
  EXPECT_TRUE(bind(bag)->group_index().empty());
  // Zeros everywhere stand for the natural order in old files, unless the order matters.
  bag.add("m.g_idx", DType::kI32, {kCols}, std::vector<std::int32_t>(kCols, 0));
  EXPECT_TRUE(bind(bag)->group_index().empty());
  QuantConfig config = gptq_config();
  config.desc_act = true;
  expect_error(bind(bag, config), ErrorCode::kCorruptData, "no column belongs to group 1");
  bag.drop("m.g_idx");
  expect_error(bind(bag, config), ErrorCode::kCorruptData, "tensor m.g_idx is missing");
}

TEST(QuantizedLinear, GroupIndexOutOfRange) {
  for (const std::int32_t bad : {-1, 2}) {
    TensorBag bag = gptq();
    bag.drop("m.g_idx");
    std::vector<std::int32_t> index(kCols, 0);
    index[9] = bad;
    bag.add("m.g_idx", DType::kI32, {kCols}, index);
    expect_error(bind(bag), ErrorCode::kCorruptData,
                 fmt::format("tensor m.g_idx[9] = {}: must lie in 0..1", bad));
  }
}

TEST(QuantizedLinear, ScalesMustBeFiniteAndNotZero) {
  for (const float bad : {0.0F, std::numeric_limits<float>::infinity(), std::nanf("")}) {
    TensorBag bag = gptq();
    bag.drop("m.scales");
    std::vector<float> scales(static_cast<std::size_t>(kGroups * kRows), 0.5F);
    scales[static_cast<std::size_t>(kRows + 3)] = bad;
    bag.add("m.scales", DType::kF32, {kGroups, kRows}, scales);
    expect_error(bind(bag), ErrorCode::kCorruptData,
                 "tensor m.scales: the scale of row 3, group 1");
  }
}

TEST(QuantizedLinear, ShapesTypesAndCompanions) {
  for (const char* name : {"m.qzeros", "m.scales"}) {
    TensorBag missing = gptq();
    missing.drop(name);
    expect_error(bind(missing), ErrorCode::kCorruptData, fmt::format("tensor {} is missing", name));
    TensorBag type = gptq();
    type.at(name).dtype = DType::kI64;
    expect_error(bind(type), ErrorCode::kUnsupported, fmt::format("tensor {} is I64", name));
  }
  TensorBag shape = gptq();
  shape.at("m.scales").shape = {1, kGroups * kRows};
  expect_error(bind(shape), ErrorCode::kCorruptData, "must have [2, 16]");
  TensorBag zeros = gptq();
  zeros.at("m.qzeros").shape = {1, kGroups * kRows * 4 / 32};
  expect_error(bind(zeros), ErrorCode::kCorruptData, "tensor m.qzeros has shape [1, 4]");
  QuantConfig bits = gptq_config();
  bits.weights.bits = 8;
  expect_error(bind(gptq(), bits), ErrorCode::kCorruptData, "must have [16, 16]");
  QuantConfig group = gptq_config();
  group.weights.group = 16;
  expect_error(bind(gptq(), group), ErrorCode::kCorruptData, "must have [4");
}

TEST(QuantizedLinear, PaddedRowsOnlyWhereAllowed) {
  const TensorBag bag = gptq();
  const Checkpoint checkpoint = bag.checkpoint();
  const QuantConfig config = gptq_config();
  const auto strict =
      QuantizedLinear::bind(checkpoint, config, config.weights, "m", {12, kCols, false});
  expect_error(strict, ErrorCode::kCorruptData, "16 rows, the configuration needs 12");
  const auto padded =
      QuantizedLinear::bind(checkpoint, config, config.weights, "m", {12, kCols, true});
  ASSERT_TRUE(padded.has_value()) << padded.error().message;
  EXPECT_EQ(padded->rows(), kRows);
  const auto more =
      QuantizedLinear::bind(checkpoint, config, config.weights, "m", {20, kCols, true});
  expect_error(more, ErrorCode::kCorruptData, "needs 20");
}

TEST(QuantizedLinear, WordsMustBeWhole) {
  const TensorBag bag = gptq();
  const Checkpoint checkpoint = bag.checkpoint();
  const QuantConfig config = gptq_config();
  expect_error(QuantizedLinear::bind(checkpoint, config, config.weights, "m", {kRows, 60, false}),
               ErrorCode::kCorruptData, "do not fill whole words");
}

TEST(QuantizedLinear, MethodAndTensorsMustAgree) {
  QuantConfig config = gptq_config();
  config.method = StoredMethod::kCompressedTensors;
  expect_error(bind(gptq(), config), ErrorCode::kCorruptData,
               "does not belong to a file of quantization method compressed-tensors");
}

// ---- compressed-tensors

QuantConfig packed_config(int bits, bool symmetric = true) {
  QuantConfig config;
  config.method = StoredMethod::kCompressedTensors;
  config.weights.bits = bits;
  config.weights.group = kGroup;
  config.weights.symmetric = symmetric;
  return config;
}

TensorBag packed(int bits, std::int64_t cols, bool spaced) {
  TensorBag bag;
  std::vector<std::vector<unsigned>> codes(kRows,
                                           std::vector<unsigned>(static_cast<std::size_t>(cols)));
  for (std::size_t r = 0; r < codes.size(); ++r) {
    for (std::size_t c = 0; c < codes[r].size(); ++c) {
      codes[r][c] = static_cast<unsigned>((r * 5 + c) % (std::size_t{1} << bits));
    }
  }
  const auto words = to_words(codes, bits, spaced);
  bag.add("m.weight_packed", DType::kI32, {kRows, static_cast<std::int64_t>(words.size()) / kRows},
          words);
  bag.add("m.weight_shape", DType::kI64, {2}, std::vector<std::int64_t>{kRows, cols});
  const std::int64_t groups = (cols + kGroup - 1) / kGroup;
  bag.add("m.weight_scale", DType::kF32, {kRows, groups},
          std::vector<float>(static_cast<std::size_t>(kRows * groups), 0.5F));
  return bag;
}

TEST(QuantizedLinear, ThreeBitsDenseAndSpaced) {
  for (const bool spaced : {false, true}) {
    const TensorBag words = packed(3, kCols, spaced);
    const auto linear = bind(words, packed_config(3));
    ASSERT_TRUE(linear.has_value()) << linear.error().message;
    std::uint8_t codes[kCols];
    linear->read_codes(2, 1, 0, kCols, codes, kCols);
    for (std::size_t c = 0; c < kCols; ++c) {
      ASSERT_EQ(codes[c], (10 + c) % 8) << spaced << " " << c;
    }
  }
  const TensorBag bag = packed(3, 20, false);
  const Checkpoint checkpoint = bag.checkpoint();
  const QuantConfig config = packed_config(3);
  expect_error(QuantizedLinear::bind(checkpoint, config, config.weights, "m", {kRows, 20, false}),
               ErrorCode::kUnsupported, "the file does not say which");
}

TEST(QuantizedLinear, PackedCompanions) {
  TensorBag shape = packed(4, kCols, false);
  shape.drop("m.weight_shape");
  expect_error(bind(shape, packed_config(4)), ErrorCode::kCorruptData, "m.weight_shape is missing");
  QuantConfig in_gguf = packed_config(4);
  in_gguf.shapes_optional = true;
  EXPECT_TRUE(bind(shape, in_gguf).has_value());
  shape.add("m.weight_shape", DType::kI64, {2}, std::vector<std::int64_t>{kRows, kCols + 1});
  expect_error(bind(shape, in_gguf), ErrorCode::kCorruptData, "= [16, 65], the matrix is");
  expect_error(bind(shape, packed_config(4)), ErrorCode::kCorruptData, "= [16, 65], the matrix is");
  expect_error(bind(packed(4, kCols, false), packed_config(4, false)), ErrorCode::kCorruptData,
               "m.weight_zero_point is missing");
  expect_error(bind(packed(4, kCols, false), packed_config(8)), ErrorCode::kCorruptData,
               "has 8 words per row");
  TensorBag zeros = packed(4, kCols, false);
  zeros.add("m.weight_zero_point", DType::kI32, {kRows, kGroups},
            std::vector<std::uint32_t>(static_cast<std::size_t>(kRows * kGroups)));
  expect_error(bind(zeros, packed_config(4, false)), ErrorCode::kCorruptData, "must have [2, 2]");
}

TEST(QuantizedLinear, PlainBytes) {
  TensorBag bag;
  bag.add("m.weight", DType::kI8, {kRows, kCols},
          std::vector<std::int8_t>(static_cast<std::size_t>(kRows * kCols), -128));
  bag.add("m.weight_scale", DType::kBF16, {kRows, 1},
          std::vector<std::uint16_t>(static_cast<std::size_t>(kRows), f32_to_bf16(0.5F)));
  QuantConfig config = packed_config(8);
  config.weights.strategy = WeightScheme::Strategy::kChannel;
  const auto linear = bind(bag, config);
  ASSERT_TRUE(linear.has_value()) << linear.error().message;
  float row[kCols];
  linear->read_rows(1, 1, row, kCols);
  EXPECT_EQ(row[5], -64.0F);
  config.weights.is_float = true;
  expect_error(bind(bag, config), ErrorCode::kCorruptData, "is I8, the configuration says float");
  bag.at("m.weight").dtype = DType::kF8E4M3;
  const auto floats = bind(bag, config);
  ASSERT_TRUE(floats.has_value()) << floats.error().message;
  floats->read_rows(1, 1, row, kCols);
  EXPECT_EQ(row[5], -0.0F);
  bag.add("m.weight_zero_point", DType::kF8E4M3, {kRows, 1},
          std::vector<std::int8_t>(static_cast<std::size_t>(kRows), 1));
  expect_error(bind(bag, config), ErrorCode::kUnsupported, "zero points of floats");
  bag.drop("m.weight_zero_point");
  bag.drop("m.weight_scale");
  bag.add("m.weight_scale", DType::kF32, {kRows, 2}, std::vector<float>(32, 1.0F));
  expect_error(bind(bag, config), ErrorCode::kCorruptData, "must have [16, 1]");
  bag.at("m.weight").dtype = DType::kF16;
  expect_error(bind(bag, config), ErrorCode::kUnsupported, "not stored quantized");
}

}  // namespace
}  // namespace trine
