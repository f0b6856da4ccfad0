#include "format/quant_config.h"

#include <gtest/gtest.h>

#include "format/hf_config.h"

namespace trine {
namespace {

using Strategy = WeightScheme::Strategy;

QuantConfig parsed(std::string_view text, StoredMethod method = StoredMethod::kGptq) {
  auto config = parse_quant_config_file(text, method);
  EXPECT_TRUE(config.has_value()) << config.error().message;
  return config.value_or(QuantConfig{});
}

// Patterns of these tests: a name that begins with them, "*" for any.
Result<bool> begins(const std::string& pattern, std::string_view module) {
  return pattern == "*" || module.starts_with(pattern);
}

std::optional<WeightScheme> scheme(const QuantConfig& config, std::string_view module,
                                   std::string_view class_name = "Linear") {
  return scheme_of_module(config, module, class_name, begins).value();
}

TEST(QuantConfig, GptqInItsSpellings) {
  const QuantConfig now = parsed(
      R"({"quant_method":"gptq","bits":4,"group_size":128,"desc_act":true,"sym":false,
          "checkpoint_format":"gptq_v2","pack_dtype":"int32","meta":{"quantizer":["x"]}})");
  EXPECT_EQ(now.weights.bits, 4);
  EXPECT_EQ(now.weights.group, 128);
  EXPECT_EQ(now.weights.strategy, Strategy::kGroup);
  EXPECT_EQ(now.weights.symmetric, false);
  EXPECT_TRUE(now.desc_act);
  EXPECT_FALSE(now.stored_zero_is_less_one);
  const QuantConfig older = parsed(R"({"wbits":3,"groupsize":-1,"sym":true,"format":"gptq"})");
  EXPECT_EQ(older.weights.bits, 3);
  EXPECT_EQ(older.weights.strategy, Strategy::kChannel);
  EXPECT_TRUE(older.stored_zero_is_less_one);
  const QuantConfig oldest = parsed(R"({"w_bit":8,"q_group_size":64})");
  EXPECT_EQ(oldest.weights.bits, 8);
  EXPECT_EQ(oldest.weights.group, 64);
  EXPECT_FALSE(oldest.weights.symmetric.has_value());
}

TEST(QuantConfig, GptqOverridesTakeTheFirstPatternThatMatches) {
  const QuantConfig config = parsed(
      R"({"bits":4,"group_size":32,"sym":true,"dynamic":{
          "+:model.a":{"bits":8,"group_size":-1,"sym":false},"-:model.b":{},"model":{"bits":2}}})");
  EXPECT_EQ(scheme(config, "model.a.q")->bits, 8);
  EXPECT_EQ(scheme(config, "model.a.q")->strategy, Strategy::kChannel);
  EXPECT_EQ(scheme(config, "model.a.q")->symmetric, false);
  EXPECT_FALSE(scheme(config, "model.b.q").has_value());
  EXPECT_EQ(scheme(config, "model.c.q")->bits, 2);
  EXPECT_EQ(scheme(config, "model.c.q")->group, 32);
  EXPECT_EQ(scheme(config, "lm_head")->bits, 4);
}

TEST(QuantConfig, AwqInItsSpellings) {
  const QuantConfig now = parsed(
      R"({"quant_method":"awq","bits":4,"group_size":128,"zero_point":true,"version":"gemm",
          "modules_to_not_convert":null})");
  EXPECT_EQ(now.method, StoredMethod::kAwq);
  EXPECT_FALSE(now.gemv);
  EXPECT_EQ(now.weights.symmetric, false);
  const QuantConfig older = parsed(
      R"({"w_bit":4,"q_group_size":-1,"zero_point":true,"version":"GEMV"})", StoredMethod::kAwq);
  EXPECT_EQ(older.method, StoredMethod::kAwq);
  EXPECT_TRUE(older.gemv);
  EXPECT_EQ(older.weights.strategy, Strategy::kChannel);
}

TEST(QuantConfig, CompressedTensorsTakesTheMostSpecificTarget) {
  const QuantConfig config = parsed(
      R"({"quant_method":"compressed-tensors","format":"mixed-precision","ignore":["lm_head","re:model.v"],
          "config_groups":{
           "a":{"targets":["Linear"],"weights":{"num_bits":8,"type":"int","strategy":"channel"},
                "input_activations":{"num_bits":8,"type":"int","strategy":"token","dynamic":true}},
           "b":{"targets":["re:model.x"],"weights":{"num_bits":4,"type":"int","strategy":"group",
                "group_size":64,"symmetric":false}},
           "c":{"targets":["model.x.y"],"weights":{"num_bits":8,"type":"float","strategy":"block",
                "block_structure":[128,64]}}}})");
  EXPECT_EQ(scheme(config, "model.q")->bits, 8);
  EXPECT_TRUE(scheme(config, "model.q")->int8_activations);
  EXPECT_EQ(scheme(config, "model.x.z")->bits, 4);
  EXPECT_EQ(scheme(config, "model.x.z")->symmetric, false);
  EXPECT_FALSE(scheme(config, "model.x.z")->int8_activations);
  EXPECT_TRUE(scheme(config, "model.x.y")->is_float);
  EXPECT_EQ(scheme(config, "model.x.y")->block_rows, 128);
  EXPECT_EQ(scheme(config, "model.x.y")->block_cols, 64);
  EXPECT_FALSE(scheme(config, "lm_head").has_value());
  EXPECT_FALSE(scheme(config, "model.v.q").has_value());
  EXPECT_FALSE(scheme(config, "model.q", "Embedding").has_value());
}

TEST(QuantConfig, PresetsStandForTheirSettings) {
  const QuantConfig config = parsed(
      R"({"quant_method":"compressed-tensors","config_groups":{"W4A16":["re:a"],"w8a8":["re:b"],
          "FP8_BLOCK":["re:c"]}})");
  EXPECT_EQ(scheme(config, "a")->group, 128);
  EXPECT_TRUE(scheme(config, "b")->int8_activations);
  EXPECT_EQ(scheme(config, "c")->block_cols, 128);
}

TEST(QuantConfig, Fp8) {
  const QuantConfig block = parsed(
      R"({"quant_method":"fp8","weight_block_size":[128,128],"activation_scheme":"dynamic","fmt":"e4m3"})");
  EXPECT_EQ(block.weights.strategy, Strategy::kBlock);
  EXPECT_EQ(parsed(R"({"quant_method":"fp8"})").weights.strategy, Strategy::kTensor);
}

TEST(QuantConfig, HfConfigReadsBothNames) {
  for (const char* key : {"quantization_config", "compression_config"}) {
    const auto config = parse_hf_config(
        fmt::format(R"({{"model_type":"llama","vocab_size":8,"hidden_size":8,"intermediate_size":8,
                       "num_hidden_layers":1,"num_attention_heads":1,"{}":{{"quant_method":"awq","bits":4}}}})",
                    key));
    ASSERT_TRUE(config.has_value()) << config.error().message;
    ASSERT_TRUE(config->quantization.has_value());
    EXPECT_EQ(config->quantization->method, StoredMethod::kAwq);
  }
}

TEST(QuantConfig, OfGgufFilesIsPacked) {
  constexpr std::string_view kKey = "some.key";
  const auto config = parse_gguf_quant_config(
      R"({"config_groups":{"g":{"targets":["blk.0.attn_q"],"weights":{"num_bits":4}}}})", kKey);
  ASSERT_TRUE(config.has_value()) << config.error().message;
  EXPECT_EQ(config->method, StoredMethod::kCompressedTensors);
  EXPECT_TRUE(config->shapes_optional);
  EXPECT_EQ(scheme(*config, "blk.0.attn_q")->bits, 4);
  EXPECT_FALSE(parsed(R"({"bits":4})").shapes_optional);
  for (const auto& [text, message] :
       {std::pair{"{", "some.key"}, std::pair{"[]", "some.key"},
        std::pair{R"({"quant_method":"awq"})", "some.key: quant_method = \"awq\""},
        std::pair{R"({"format":"float-quantized","config_groups":{}})",
                  "some.key: format = \"float-quantized\": GGUF files hold pack-quantized, "
                  "int-quantized"},
        std::pair{R"({"format":"pack-quantized"})", "some.key: config_groups"}}) {
    const auto bad = parse_gguf_quant_config(text, kKey);
    ASSERT_FALSE(bad.has_value()) << text;
    EXPECT_NE(bad.error().message.find(message), std::string::npos) << bad.error().message;
  }
}

struct BadCase {
  const char* name;
  const char* text;
  ErrorCode code;
  const char* message;
};

class BadQuantConfig : public ::testing::TestWithParam<BadCase> {};

TEST_P(BadQuantConfig, IsRefusedByName) {
  const auto config = parse_quant_config_file(GetParam().text, StoredMethod::kGptq);
  ASSERT_FALSE(config.has_value());
  EXPECT_EQ(config.error().code, GetParam().code);
  EXPECT_NE(config.error().message.find(GetParam().message), std::string::npos)
      << config.error().message;
}

constexpr ErrorCode kNot = ErrorCode::kUnsupported;
constexpr ErrorCode kBad = ErrorCode::kCorruptData;

#define CT(rest) R"({"quant_method":"compressed-tensors",)" rest "}"
#define CT_WEIGHTS(args) CT(R"("config_groups":{"g":{"targets":["Linear"],"weights":{)" args "}}}")

INSTANTIATE_TEST_SUITE_P(
    All, BadQuantConfig,
    ::testing::Values(
        BadCase{"NotAnObject", "[]", kBad, "must be an object"},
        BadCase{"Method", R"({"quant_method":"bitsandbytes"})", kNot,
                "quant_method = \"bitsandbytes\": supported are gptq, awq"},
        BadCase{"NoBits", R"({"group_size":128})", kBad, "key bits is missing"},
        BadCase{"PlanarBits", R"({"bits":5})", kNot, "bits = 5: the planar packing"},
        BadCase{"OddBits", R"({"bits":16})", kNot, "bits = 16: supported are 2, 3, 4 and 8"},
        BadCase{"BitsType", R"({"bits":"4"})", kBad, "bits = \"4\""},
        BadCase{"GroupZero", R"({"bits":4,"group_size":0})", kBad, "group_size = 0"},
        BadCase{"GroupNegative", R"({"bits":4,"group_size":-2})", kBad, "group_size = -2"},
        BadCase{"Marlin", R"({"bits":4,"is_marlin_format":true})", kNot, "the Marlin packing"},
        BadCase{"MarlinFormat", R"({"bits":4,"checkpoint_format":"marlin"})", kNot,
                "checkpoint_format = \"marlin\""},
        BadCase{"Bitblas", R"({"bits":4,"format":"bitblas"})", kNot, "format = \"bitblas\""},
        BadCase{"PackType", R"({"bits":4,"pack_dtype":"int16"})", kNot, "only int32 words"},
        BadCase{"SymType", R"({"bits":4,"sym":1})", kBad, "sym = 1"},
        BadCase{"DynamicType", R"({"bits":4,"dynamic":[1]})", kBad, "dynamic = [1]"},
        BadCase{"DynamicBits", R"({"bits":4,"dynamic":{"a":{"bits":6}}})", kNot,
                "dynamic.a.bits = 6: the planar"},
        BadCase{"AwqBits", R"({"quant_method":"awq","bits":8})", kNot, "AWQ files have 4 bits"},
        BadCase{"AwqVersion", R"({"quant_method":"awq","version":"gemv_fast"})", kNot,
                "version = \"gemv_fast\""},
        BadCase{"AwqMarlin", R"({"quant_method":"awq","version":"marlin"})", kNot, "\"marlin\""},
        BadCase{"Fp8Kind", R"({"quant_method":"fp8","fmt":"e5m2"})", kNot, "fmt = \"e5m2\""},
        BadCase{"Fp8Block", R"({"quant_method":"fp8","weight_block_size":[128]})", kBad,
                "a list of two sizes"},
        BadCase{"Nvfp4", CT(R"("format":"nvfp4-pack-quantized","config_groups":{})"), kNot,
                "\"nvfp4-pack-quantized\""},
        BadCase{"Marlin24", CT(R"("format":"marlin-24","config_groups":{})"), kNot, "marlin-24"},
        BadCase{"Sparse",
                CT(R"("config_groups":{},"sparsity_config":{"format":"sparse-24-bitmask"})"), kNot,
                "sparse weights"},
        BadCase{"Transform",
                CT(R"("config_groups":{},"transform_config":{"config_groups":{"u":{}}})"), kNot,
                "transformed weights"},
        BadCase{"NoGroups", CT(R"("format":"int-quantized")"), kBad, "config_groups"},
        BadCase{"Preset", CT(R"("config_groups":{"NVFP4":["Linear"]})"), kNot, "preset \"NVFP4\""},
        BadCase{"CtBits", CT_WEIGHTS(R"("num_bits":6,"strategy":"channel")"), kNot, "num_bits = 6"},
        BadCase{"CtFloat4", CT_WEIGHTS(R"("num_bits":4,"type":"float")"), kNot, "floats of 8 bits"},
        BadCase{"CtStrategy", CT_WEIGHTS(R"("strategy":"tensor_group","group_size":16)"), kNot,
                "strategy = \"tensor_group\""},
        BadCase{"CtNoGroupSize", CT_WEIGHTS(R"("strategy":"group")"), kBad,
                "group_size is missing"},
        BadCase{"CtDynamicWeights", CT_WEIGHTS(R"("dynamic":true)"), kNot,
                "scales made at run time"},
        BadCase{"CtScales", CT_WEIGHTS(R"("scale_dtype":"torch.uint8","strategy":"channel")"), kNot,
                "scale_dtype"},
        BadCase{"CtInput4",
                CT(R"("config_groups":{"g":{"targets":["Linear"],"weights":{"num_bits":4},
                "input_activations":{"num_bits":4,"dynamic":true}}})"),
                kNot, "less than 8 bits"},
        BadCase{"CtTarget", CT(R"("config_groups":{"g":{"targets":[1],"weights":{}}})"), kBad,
                "1 is not a string"},
        BadCase{"CtGroupFormat",
                CT(R"("config_groups":{"g":{"targets":[],"format":"mxfp4-pack-quantized"}})"), kNot,
                "mxfp4-pack-quantized"}),
    [](const auto& param_info) { return param_info.param.name; });

}  // namespace
}  // namespace trine
