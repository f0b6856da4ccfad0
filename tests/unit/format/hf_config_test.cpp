#include "format/hf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/log.h"

namespace trine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

constexpr const char* kLlama =
    R"({"model_type":"llama","architectures":["LlamaForCausalLM"],"vocab_size":131,"hidden_size":64,
    "intermediate_size":96,"num_hidden_layers":4,"num_attention_heads":4})";

// kLlama with another model type and more keys.
std::string config_text(const char* type, const char* more) {
  Json base = *parse_json(kLlama);
  base["model_type"] = type;
  base.erase("architectures");
  const Json extra = *parse_json(more);
  for (const auto& [key, value] : extra.items()) {
    base[key] = value;
  }
  return base.dump();
}

HfConfig parsed(const char* type, const char* more) {
  const auto config = parse_hf_config(config_text(type, more));
  EXPECT_TRUE(config.has_value()) << config.error().message;
  return config.value_or(HfConfig{});
}

TEST(HfConfig, FillsInDefaults) {
  const HfConfig llama = parsed("llama", "{}");
  EXPECT_EQ(llama.num_kv_heads, 4);
  EXPECT_EQ(llama.head_dim, 16);
  EXPECT_EQ(llama.context_length, 2048);
  EXPECT_EQ(llama.norm_eps, 1e-6);
  EXPECT_EQ(llama.activation, "silu");
  EXPECT_FALSE(llama.tie_word_embeddings);
  EXPECT_EQ(llama.rope.type, "default");
  EXPECT_EQ(llama.rope.theta, 10000.0);
  EXPECT_EQ(parsed("qwen3", R"({"num_key_value_heads":2})").head_dim, 128);
  EXPECT_EQ(parsed("mixtral", R"({"num_key_value_heads":2})").rope.theta, 1e6);
  EXPECT_EQ(parsed("mistral", R"({"num_key_value_heads":null})").num_kv_heads, 4);
  EXPECT_EQ(parsed("phi3", "{}").norm_eps, 1e-5);
}

TEST(HfConfig, GemmaTextMayLeaveOutAlmostEverything) {
  const auto config = parse_hf_config(
      R"({"model_type":"gemma3","text_config":{"model_type":"gemma3_text","hidden_size":2560,"num_hidden_layers":34,
      "intermediate_size":10240,"rope_scaling":{"factor":8.0,"rope_type":"linear"},"sliding_window":1024},
      "vision_config":{"hidden_size":1152},"eos_token_id":[1,106]})");
  ASSERT_TRUE(config.has_value()) << config.error().message;
  EXPECT_EQ(config->vocab_size, 262208);
  EXPECT_EQ(config->num_heads, 8);
  EXPECT_EQ(config->head_dim, 256);
  EXPECT_TRUE(config->tie_word_embeddings);
  EXPECT_TRUE(config->nested_text);
  EXPECT_EQ(config->rope.type, "linear");
  EXPECT_EQ(config->rope.theta, 1e6);
  EXPECT_EQ(config->rope_sliding.type, "default");
  EXPECT_EQ(config->rope_sliding.theta, 1e4);
  EXPECT_TRUE(config->sliding[4]);
  EXPECT_FALSE(config->sliding[5]);
  EXPECT_THAT(config->eos_token_ids, ElementsAre(1, 106));
}

TEST(HfConfig, SlidingWindowsFollowTheFamily) {
  EXPECT_EQ(parsed("mistral", R"({"num_key_value_heads":2})").sliding_window, 4096);
  EXPECT_EQ(parsed("mistral", R"({"num_key_value_heads":2,"sliding_window":null})").sliding_window,
            0);
  EXPECT_EQ(parsed("qwen2", R"({"num_key_value_heads":2,"sliding_window":64})").sliding_window, 0);
  const HfConfig qwen = parsed(
      "qwen2",
      R"({"num_key_value_heads":2,"sliding_window":64,"use_sliding_window":true,"max_window_layers":3})");
  EXPECT_EQ(qwen.sliding_window, 64);
  EXPECT_THAT(qwen.sliding, ElementsAre(false, false, false, true));
  const HfConfig listed =
      parsed("qwen3", R"({"num_key_value_heads":2,"sliding_window":64,"use_sliding_window":true,
      "layer_types":["sliding_attention","full_attention","full_attention","sliding_attention"]})");
  EXPECT_THAT(listed.sliding, ElementsAre(true, false, false, true));
}

TEST(HfConfig, MixtureLayers) {
  const HfConfig config =
      parsed("qwen3_moe", R"({"num_experts":8,"num_experts_per_tok":2,"decoder_sparse_step":2,
      "mlp_only_layers":[3]})");
  EXPECT_THAT(config.moe_layer, ElementsAre(false, true, false, false));
  EXPECT_FALSE(config.norm_topk_prob);
  EXPECT_TRUE(parsed("mixtral", R"({"num_key_value_heads":2})").norm_topk_prob);
}

TEST(HfConfig, BothSpellingsOfRopeGiveTheSame) {
  const char* inner = R"("factor":4.0,"original_max_position_embeddings":64)";
  const HfConfig old_style = parsed(
      "llama",
      fmt::format(R"({{"rope_theta":5e5,"rope_scaling":{{"type":"yarn",{}}}}})", inner).c_str());
  const HfConfig new_style = parsed(
      "llama",
      fmt::format(R"({{"rope_parameters":{{"rope_type":"yarn","rope_theta":5e5,{}}}}})", inner)
          .c_str());
  const HfConfig per_layer = parsed(
      "llama",
      fmt::format(
          R"({{"rope_parameters":{{"full_attention":{{"rope_type":"yarn","rope_theta":5e5,{}}}}}}})",
          inner)
          .c_str());
  EXPECT_EQ(old_style.rope, new_style.rope);
  EXPECT_EQ(old_style.rope, per_layer.rope);
  EXPECT_EQ(old_style.rope.type, "yarn");
  EXPECT_EQ(old_style.rope.theta, 5e5);
}

TEST(HfConfig, PhiReadsItsOwnNamesOfLongrope) {
  for (const char* type : {"su", "yarn", "longrope"}) {
    const HfConfig config =
        parsed("phi3",
               fmt::format(R"({{"original_max_position_embeddings":64,"max_position_embeddings":512,
        "rope_scaling":{{"type":"{}","short_factor":[1,1,1,1,1,1,1,1],"long_factor":[2,2,2,2,2,2,2,2]}}}})",
                           type)
                   .c_str());
    EXPECT_EQ(config.rope.type, "longrope");
    EXPECT_EQ(config.rope.original_context, 64);
    EXPECT_EQ(config.rope.factor, 8.0);
  }
}

TEST(HfConfig, TheTypeMayComeFromTheArchitecture) {
  Json config = *parse_json(kLlama);
  config.erase("model_type");
  EXPECT_EQ(parse_hf_config(config.dump()).value().model_type, "llama");
}

struct BadCase {
  const char* name;
  const char* type;
  const char* more;
  ErrorCode code;
  const char* part;
};

class HfConfigRefuses : public ::testing::TestWithParam<BadCase> {};

TEST_P(HfConfigRefuses, WithKeyValueAndLimit) {
  const BadCase& bad = GetParam();
  const auto config = parse_hf_config(config_text(bad.type, bad.more));
  ASSERT_FALSE(config.has_value());
  EXPECT_EQ(config.error().code, bad.code) << config.error().message;
  EXPECT_THAT(config.error().message, HasSubstr(bad.part));
}

constexpr ErrorCode kBad = ErrorCode::kCorruptData;
constexpr ErrorCode kNot = ErrorCode::kUnsupported;
INSTANTIATE_TEST_SUITE_P(
    Ranges, HfConfigRefuses,
    ::testing::Values(
        BadCase{"ZeroHidden", "llama", R"({"hidden_size":0})", kBad,
                "hidden_size = 0: must lie in 1..1048576"},
        BadCase{"NegativeLayers", "llama", R"({"num_hidden_layers":-3})", kBad,
                "num_hidden_layers = -3"},
        BadCase{"HugeVocab", "llama", R"({"vocab_size":1e12})", kBad, "must lie in 1..16777216"},
        BadCase{"Fraction", "llama", R"({"head_dim":16.5})", kBad,
                "head_dim = 16.5: must be a whole number"},
        BadCase{"Text", "llama", R"({"vocab_size":"131"})", kBad, "vocab_size = \"131\""},
        BadCase{"NotBool", "llama", R"({"tie_word_embeddings":1})", kBad,
                "tie_word_embeddings = 1: must be true or false"},
        BadCase{"Heads", "llama", R"({"num_key_value_heads":3})", kBad,
                "num_key_value_heads = 3: must divide"},
        BadCase{"Division", "llama", R"({"hidden_size":66})", kBad, "no head_dim is given"},
        BadCase{"Missing", "llama", R"({"vocab_size":null})", kBad, "vocab_size is missing"},
        BadCase{"OddHead", "llama", R"({"head_dim":15})", kNot, "must be even"},
        BadCase{"WideHeads", "llama", R"({"num_attention_heads":4096,"head_dim":1024})", kNot,
                "in all, at most"},
        BadCase{"Window", "mistral", R"({"num_key_value_heads":2,"sliding_window":-1})", kBad,
                "sliding_window = -1"},
        BadCase{"LayerTypesCount", "qwen3",
                R"({"num_key_value_heads":2,"layer_types":["full_attention"]})", kBad,
                "has 1 values, num_hidden_layers is 4"},
        BadCase{"SlidingWithoutWindow", "qwen2",
                R"({"num_key_value_heads":2,"layer_types":["sliding_attention",
        "full_attention","full_attention","full_attention"]})",
                kBad, "no sliding_window is set"},
        BadCase{"ExpertsPerToken", "mixtral",
                R"({"num_key_value_heads":2,"num_experts_per_tok":9})", kBad,
                "at most the number of experts, 8"},
        BadCase{"MlpOnly", "qwen3_moe", R"({"mlp_only_layers":[4]})", kBad,
                "mlp_only_layers = 4: must lie in 0..3"},
        BadCase{"Theta", "llama", R"({"rope_theta":0})", kBad, "rope_theta = 0"},
        BadCase{"FactorMissing", "llama", R"({"rope_scaling":{"type":"linear"}})", kBad,
                "rope_scaling.factor is missing"},
        BadCase{"FactorZero", "llama", R"({"rope_scaling":{"type":"linear","factor":0}})", kBad,
                "rope_scaling.factor = 0"},
        BadCase{"Llama3Order", "llama",
                R"({"rope_scaling":{"rope_type":"llama3","factor":8,"low_freq_factor":4,
        "high_freq_factor":4}})",
                kBad, "must be above low_freq_factor = 4"},
        BadCase{"LongropeLengths", "phi3", R"({"rope_scaling":{"type":"longrope","short_factor":[1],
        "long_factor":[1,2]}})",
                kBad, "equal, nonzero length, got 1 and 2"},
        BadCase{"LongropeDims", "phi3", R"({"rope_scaling":{"type":"longrope","short_factor":[1],
        "long_factor":[1]}})",
                kBad, "16 rotary dimensions need 8"},
        BadCase{"LongropeValue", "phi3", R"({"rope_scaling":{"type":"longrope","short_factor":[-1],
        "long_factor":[1]}})",
                kBad, "short_factor has -1"},
        BadCase{"RopeContradiction", "llama",
                R"({"rope_theta":1e4,"rope_scaling":{"type":"linear","factor":2},
        "rope_parameters":{"rope_type":"linear","factor":4,"rope_theta":1e4}})",
                kBad, "rope_scaling and rope_parameters contradict"},
        BadCase{"ThetaContradiction", "llama",
                R"({"rope_theta":1e4,"rope_parameters":{"rope_type":"default","rope_theta":5e5}})",
                kBad, "rope_parameters.rope_theta = 500000 and rope_theta = 10000 contradict"},
        BadCase{"LocalThetaContradiction", "gemma3_text",
                R"({"rope_local_base_freq":1e4,
        "rope_parameters":{"sliding_attention":{"rope_type":"default","rope_theta":2e4}}})",
                kBad, "rope_theta = 20000 and rope_local_base_freq = 10000 contradict"},
        BadCase{"FactorWithoutType", "llama", R"({"rope_scaling":{"factor":2}})", kBad,
                "rope_scaling.factor = 2, but rope_scaling.rope_type is missing"},
        BadCase{"OriginalContradiction", "phi3", R"({"original_max_position_embeddings":64,
        "rope_scaling":{"type":"longrope","original_max_position_embeddings":128,"short_factor":[1],
        "long_factor":[1]}})",
                kBad, "contradict each other"}),
    [](const auto& param_info) { return param_info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Unsupported, HfConfigRefuses,
    ::testing::Values(
        BadCase{"ModelType", "gpt2", "{}", kNot, "model_type = \"gpt2\": supported types are"},
        BadCase{"Architecture", "llama", R"({"architectures":["LlamaForSequenceClassification"]})",
                kNot, "only LlamaForCausalLM"},
        BadCase{"Dynamic", "llama", R"({"rope_scaling":{"type":"dynamic","factor":2}})", kNot,
                "dynamic NTK"},
        BadCase{"Mrope", "qwen2",
                R"({"num_key_value_heads":2,"rope_scaling":{"type":"mrope","mrope_section":[1]}})",
                kNot, "mrope_section"},
        BadCase{"TypeContradiction", "llama",
                R"({"rope_scaling":{"type":"yarn","rope_type":"linear","factor":2}})", kNot,
                "contradict"},
        BadCase{"RopeKey", "llama", R"({"rope_scaling":{"type":"longrope","long_mscale":1.2}})",
                kNot, "long_mscale"},
        BadCase{"PhiYarnless", "phi3", R"({"rope_scaling":{"type":"linear","factor":2}})", kNot,
                "default and longrope only"},
        BadCase{"PartialRotary", "llama", R"({"partial_rotary_factor":0.5})", kNot,
                "partial_rotary_factor = 0.5"},
        BadCase{"ChunkedAttention", "llama", R"({"attention_chunk_size":8192})", kNot,
                "chunked attention"},
        BadCase{"Alibi", "llama", R"({"alibi":true})", kNot, "alibi = true"},
        BadCase{"MultiQuery", "llama", R"({"multi_query":true})", kNot, "multi_query"},
        BadCase{"LogitScale", "llama", R"({"logit_scale":0.5})", kNot, "logit_scale = 0.5"},
        BadCase{"Mla", "llama", R"({"kv_lora_rank":512})", kNot, "latent attention"},
        BadCase{"Quantized", "llama", R"({"quantization_config":{"quant_method":"hqq","bits":4}})",
                kNot, "quantization_config.quant_method = \"hqq\""},
        BadCase{"Activation", "llama", R"({"hidden_act":"relu2"})", kNot, "hidden_act = \"relu2\""},
        BadCase{"AttentionBias", "mistral", R"({"num_key_value_heads":2,"attention_bias":true})",
                kNot, "attention_bias = true"},
        BadCase{"MlpBias", "qwen3", R"({"num_key_value_heads":2,"mlp_bias":true})", kNot,
                "mlp_bias = true"},
        BadCase{"ScoreCap", "gemma3_text", R"({"attn_logit_softcapping":50.0})", kNot,
                "attn_logit_softcapping"},
        BadCase{"Bidirectional", "gemma3_text", R"({"use_bidirectional_attention":true})", kNot,
                "later tokens"},
        BadCase{"NotCausal", "llama", R"({"is_causal":false})", kNot, "is_causal = false"},
        BadCase{"LogitCapElsewhere", "llama", R"({"final_logit_softcapping":30.0})", kNot,
                "final_logit_softcapping"},
        BadCase{"WindowSwitch", "mistral", R"({"num_key_value_heads":2,"use_sliding_window":true})",
                kNot, "use_sliding_window"},
        BadCase{"LayerType", "qwen3",
                R"({"num_key_value_heads":2,"layer_types":["linear_attention","full_attention",
        "full_attention","full_attention"]})",
                kNot, "linear_attention"},
        BadCase{"LayerTypeElsewhere", "llama",
                R"({"layer_types":["sliding_attention","full_attention",
        "full_attention","full_attention"]})",
                kNot, "one kind of attention"},
        BadCase{"ExpertsElsewhere", "llama", R"({"num_local_experts":8})", kNot,
                "no mixture of experts"},
        BadCase{"SharedExperts", "qwen3_moe", R"({"shared_expert_intermediate_size":512})", kNot,
                "shared experts"},
        BadCase{"TextConfig", "llama", R"({"text_config":{"hidden_size":64}})", kNot,
                "text_config"}),
    [](const auto& param_info) { return param_info.param.name; });

TEST(HfConfig, NeutralValuesOfRefusedKeysPass) {
  const HfConfig config =
      parsed("llama", R"({"attention_chunk_size":null,"alibi":false,"logit_scale":1.0,
      "quantization_config":null,"pruned_heads":{},"n_shared_experts":0,"is_causal":true})");
  EXPECT_EQ(config.hidden_size, 64);
}

TEST(HfConfig, OldGemmaNeedsAnObjectPerLayerTypeInTheNewSpelling) {
  const auto config = parse_hf_config(
      R"({"model_type":"gemma3_text","rope_parameters":{"rope_type":"default","rope_theta":1e6}})");
  ASSERT_FALSE(config.has_value());
  EXPECT_THAT(config.error().message, HasSubstr("full_attention"));
}

TEST(HfConfig, BadJsonIsNamed) {
  EXPECT_EQ(parse_hf_config("{").error().code, ErrorCode::kCorruptData);
  EXPECT_THAT(parse_hf_config("[]").error().message, HasSubstr("must be an object"));
  EXPECT_THAT(parse_hf_config(R"({"hidden_size":1,"hidden_size":2})").error().message,
              HasSubstr("duplicate key"));
}

}  // namespace
}  // namespace trine
