// Loading: every refusal names the tensor or key, what was found and what was wanted.
#include <algorithm>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "format/gguf_writer.h"
#include "support/tiny_gguf.h"

namespace trine {
namespace {

using ::testing::AllOf;
using testing::FamilyCase;
using ::testing::HasSubstr;
using testing::load_family_case;
using testing::Runner;
using testing::TempDir;
using testing::TinyTensor;

class Load : public ::testing::Test {
 protected:
  Result<std::shared_ptr<const Model>> load(DType dtype = DType::kF32, bool misalign = false) {
    testing::write_model_dir(dir_.path(), golden_.config, golden_.tensors, dtype, misalign);
    return Model::load(dir_.path().string());
  }

  TinyTensor& tensor(std::string_view name) {
    const auto it = std::find_if(golden_.tensors.begin(), golden_.tensors.end(),
                                 [name](const TinyTensor& t) { return t.name == name; });
    EXPECT_NE(it, golden_.tensors.end()) << name;
    return *it;
  }

  void erase(std::string_view part) {
    std::erase_if(golden_.tensors,
                  [part](const TinyTensor& t) { return t.name.find(part) != std::string::npos; });
  }

  void add(std::string name, std::vector<std::int64_t> shape, float value) {
    std::size_t count = 1;
    for (const std::int64_t dim : shape) {
      count *= static_cast<std::size_t>(dim);
    }
    golden_.tensors.push_back(
        {std::move(name), std::move(shape), std::vector<float>(count, value)});
  }

  void set_key(const char* key, const nlohmann::ordered_json& value) {
    auto config = parse_json(golden_.config);
    (*config)[key] = value;
    golden_.config = config->dump();
  }

  void expect_refused(ErrorCode code, const ::testing::Matcher<std::string>& message) {
    const auto model = load();
    ASSERT_FALSE(model.has_value());
    EXPECT_EQ(model.error().code, code) << model.error().message;
    EXPECT_THAT(model.error().message, message);
  }

  std::vector<float> logits(const Result<std::shared_ptr<const Model>>& model) {
    EXPECT_TRUE(model.has_value()) << model.error().message;
    return model.has_value() ? Runner(*model).logits(std::span(golden_.tokens).first(20))
                             : std::vector<float>{};
  }

  FamilyCase golden_ = load_family_case("llama");
  TempDir dir_;
};

TEST_F(Load, WrongShape) {
  TinyTensor& v = tensor("model.layers.1.self_attn.v_proj.weight");
  std::swap(v.shape[0], v.shape[1]);
  expect_refused(ErrorCode::kCorruptData, AllOf(HasSubstr("model.layers.1.self_attn.v_proj.weight"),
                                                HasSubstr("[64, 32]"), HasSubstr("[32, 64]")));
}

TEST_F(Load, WrongNormLength) {
  TinyTensor& norm = tensor("model.norm.weight");
  norm.shape[0] = 63;
  norm.values.resize(63);
  expect_refused(ErrorCode::kCorruptData,
                 AllOf(HasSubstr("model.norm.weight"), HasSubstr("[63]"), HasSubstr("[64]")));
}

TEST_F(Load, MissingTensorsAreNamed) {
  erase("layers.2.mlp.up_proj");
  erase("model.norm");
  expect_refused(ErrorCode::kCorruptData, AllOf(HasSubstr("2 tensors of the model are missing"),
                                                HasSubstr("model.layers.2.mlp.up_proj.weight"),
                                                HasSubstr("model.norm.weight")));
}

TEST_F(Load, AHopelessFileStopsEarly) {
  set_key("num_hidden_layers", 1024);
  expect_refused(ErrorCode::kCorruptData,
                 AllOf(HasSubstr("at least 72"), HasSubstr("model.layers.3."), HasSubstr("more")));
}

TEST_F(Load, TensorsLeftOverAreNamed) {
  set_key("num_hidden_layers", 2);
  expect_refused(ErrorCode::kUnsupported,
                 AllOf(HasSubstr("9 tensors are not part of the configured model"),
                       HasSubstr("model.layers.2.")));
}

TEST_F(Load, AZeroBiasOfNobodyIsIgnoredAndAnotherIsNot) {
  add("model.layers.0.self_attn.q_proj.bias", {64}, 0.0F);
  EXPECT_TRUE(load().has_value());
  golden_.tensors.back().values[5] = 1.0F;
  expect_refused(ErrorCode::kUnsupported, HasSubstr("model.layers.0.self_attn.q_proj.bias"));
}

TEST_F(Load, StoredFrequenciesAreIgnored) {
  add("model.layers.0.self_attn.rotary_emb.inv_freq", {8}, 7.0F);
  EXPECT_TRUE(load().has_value());
}

TEST_F(Load, MissingBiasesOfAFamilyThatHasThem) {
  golden_ = load_family_case("qwen2");
  erase("layers.1.self_attn.k_proj.bias");
  expect_refused(ErrorCode::kCorruptData, HasSubstr("model.layers.1.self_attn.k_proj.bias"));
}

TEST_F(Load, IntegerWeightsAreRefused) {
  testing::write_model_dir(dir_.path(), golden_.config, golden_.tensors);
  std::string bytes = testing::read_file(dir_.path() / "model.safetensors");
  const std::size_t at = bytes.find("F32", bytes.find("model.layers.0.mlp.down_proj.weight"));
  bytes.replace(at, 3, "I32");
  testing::write_file(dir_.path() / "model.safetensors", bytes);
  const auto model = Model::load(dir_.path().string());
  ASSERT_FALSE(model.has_value());
  EXPECT_EQ(model.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(model.error().message,
              AllOf(HasSubstr("model.layers.0.mlp.down_proj.weight"), HasSubstr("I32")));
}

TEST_F(Load, EightBitFloatsWithoutScalesAreRefused) {
  TinyTensor& down = tensor("model.layers.0.mlp.down_proj.weight");
  // One byte per weight: write a quarter of the values as F32 and relabel.
  down.shape = {64, 24};
  down.values.resize(64 * 24);
  testing::write_model_dir(dir_.path(), golden_.config, golden_.tensors);
  std::string bytes = testing::read_file(dir_.path() / "model.safetensors");
  const std::size_t at = bytes.find("\"F32\"", bytes.find("model.layers.0.mlp.down_proj.weight"));
  const std::size_t shape = bytes.find("[64,24]", at);
  bytes.replace(shape, 7, "[64,96]");
  bytes.replace(at, 5, "\"F8_E4M3\"");
  std::uint64_t size = 0;
  std::memcpy(&size, bytes.data(), sizeof(size));
  size += 4;
  std::memcpy(bytes.data(), &size, sizeof(size));
  testing::write_file(dir_.path() / "model.safetensors", bytes);
  const auto model = Model::load(dir_.path().string());
  ASSERT_FALSE(model.has_value());
  EXPECT_EQ(model.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(model.error().message, AllOf(HasSubstr("F8_E4M3"), HasSubstr("scales")));
}

TEST_F(Load, ConfigErrorsNameTheFile) {
  set_key("num_attention_heads", 0);
  expect_refused(ErrorCode::kCorruptData,
                 AllOf(HasSubstr("config.json"), HasSubstr("num_attention_heads = 0")));
}

TEST_F(Load, NoConfigBesideTheWeights) {
  testing::write_model_dir(dir_.path(), golden_.config, golden_.tensors);
  std::filesystem::remove(dir_.path() / "config.json");
  const auto model = Model::load(dir_.path().string());
  ASSERT_FALSE(model.has_value());
  EXPECT_EQ(model.error().code, ErrorCode::kCorruptData);
  EXPECT_THAT(model.error().message, HasSubstr("config.json"));
}

TEST_F(Load, NoSuchPath) {
  const auto model = Model::load((dir_.path() / "nothing").string());
  ASSERT_FALSE(model.has_value());
  EXPECT_EQ(model.error().code, ErrorCode::kNotFound);
}

TEST_F(Load, MaxContextMustFitTheFile) {
  testing::write_model_dir(dir_.path(), golden_.config, golden_.tensors);
  const auto lower = Model::load(dir_.path().string(), Model::LoadOptions{100});
  ASSERT_TRUE(lower.has_value());
  EXPECT_EQ((*lower)->config().context_length, 100);
  const auto higher = Model::load(dir_.path().string(), Model::LoadOptions{513});
  ASSERT_FALSE(higher.has_value());
  EXPECT_EQ(higher.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(higher.error().message, AllOf(HasSubstr("513"), HasSubstr("512")));
}

TEST_F(Load, OddAddressesGiveTheSameBits) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    EXPECT_EQ(logits(load(dtype, false)), logits(load(dtype, true)));
  }
}

TEST_F(Load, ASingleFileFindsTheConfigBesideIt) {
  testing::write_model_dir(dir_.path(), golden_.config, golden_.tensors);
  EXPECT_TRUE(Model::load((dir_.path() / "model.safetensors").string()).has_value());
}

TEST_F(Load, TiedEmbeddingsWithACopyOfTheTable) {
  golden_ = load_family_case("llama-bias-tied");
  const std::vector<float> tied = logits(load());
  TinyTensor head = tensor("model.embed_tokens.weight");
  head.name = "lm_head.weight";
  golden_.tensors.push_back(head);
  const auto copy = load();
  EXPECT_EQ(logits(copy), tied);
  EXPECT_TRUE((*copy)->config().tied_embeddings);
  // Another matrix wins over the flag.
  golden_.tensors.back().values[3] += 1.0F;
  const auto other = load();
  EXPECT_NE(logits(other), tied);
  EXPECT_FALSE((*other)->config().tied_embeddings);
}

TEST_F(Load, FusedExpertsGiveTheBitsOfSingleOnes) {
  golden_ = load_family_case("qwen3-moe");
  const std::vector<float> single = logits(load());
  const FamilyCase before = golden_;
  erase(".experts.");
  for (int layer = 0; layer < 3; ++layer) {
    TinyTensor gate_up{
        fmt::format("model.layers.{}.mlp.experts.gate_up_proj", layer), {6, 64, 64}, {}};
    TinyTensor down{fmt::format("model.layers.{}.mlp.experts.down_proj", layer), {6, 64, 32}, {}};
    for (int expert = 0; expert < 6; ++expert) {
      for (const char* leaf : {"gate_proj", "up_proj", "down_proj"}) {
        const std::string name =
            fmt::format("model.layers.{}.mlp.experts.{}.{}.weight", layer, expert, leaf);
        for (const TinyTensor& part : before.tensors) {
          if (part.name == name) {
            std::vector<float>& into =
                std::string_view(leaf) == "down_proj" ? down.values : gate_up.values;
            into.insert(into.end(), part.values.begin(), part.values.end());
          }
        }
      }
    }
    golden_.tensors.push_back(std::move(gate_up));
    golden_.tensors.push_back(std::move(down));
  }
  EXPECT_EQ(logits(load()), single);
}

// The text part of a multimodal Gemma-3 file, in both spellings of its tensor names, with image
// tensors beside it.
TEST_F(Load, NestedGemma) {
  golden_ = load_family_case("gemma3");
  const std::vector<float> plain = logits(load());
  auto text = parse_json(golden_.config);
  text->erase("architectures");
  nlohmann::ordered_json outer;
  outer["model_type"] = "gemma3";
  outer["architectures"] = {"Gemma3ForConditionalGeneration"};
  outer["text_config"] = *text;
  outer["vision_config"] = {{"hidden_size", 1152}};
  outer["eos_token_id"] = {1, 106};
  golden_.config = outer.dump();
  const FamilyCase flat = golden_;
  for (const char* prefix : {"model.language_model.", "language_model.model."}) {
    golden_ = flat;
    for (TinyTensor& t : golden_.tensors) {
      t.name = prefix + t.name.substr(std::string_view("model.").size());
    }
    add("vision_tower.encoder.weight", {2, 2}, 1.0F);
    add("multi_modal_projector.mm_soft_emb_norm.weight", {4}, 1.0F);
    const auto model = load();
    EXPECT_EQ(logits(model), plain) << prefix;
    EXPECT_EQ((*model)->config().eos_ids, (std::vector<std::int32_t>{1, 106}));
  }
}

// GGUF: one key changed or one tensor gone.
struct GgufBadCase {
  const char* name;
  const char* family;
  const char* key;
  GgufValue value;
  const char* part;
};

class GgufRefuses : public ::testing::TestWithParam<GgufBadCase> {};

TEST_P(GgufRefuses, WithTheKeyAndTheValue) {
  const GgufBadCase& bad = GetParam();
  TempDir dir;
  const auto path = (dir.path() / "m.gguf").string();
  ASSERT_TRUE(testing::write_gguf_model(path, load_family_case(bad.family)).has_value());
  const auto file = open_gguf(path);
  ASSERT_TRUE(file.has_value());
  std::vector<GgufMetadata::Pair> pairs(file->metadata.pairs().begin(),
                                        file->metadata.pairs().end());
  std::erase_if(pairs, [&](const auto& pair) { return pair.first == bad.key; });
  pairs.emplace_back(bad.key, bad.value);
  const auto out = (dir.path() / "bad.gguf").string();
  ASSERT_TRUE(write_gguf(out, pairs, file->checkpoint.tensors()).has_value());
  const auto model = Model::load(out);
  ASSERT_FALSE(model.has_value());
  EXPECT_THAT(model.error().message, AllOf(HasSubstr(bad.key), HasSubstr(bad.part)));
}

INSTANTIATE_TEST_SUITE_P(
    All, GgufRefuses,
    ::testing::Values(
        GgufBadCase{"Architecture", "llama", "general.architecture", std::string("gpt2"), "gpt2"},
        GgufBadCase{"ZeroHeads", "llama", "llama.attention.head_count", std::uint32_t{0},
                    "must lie in 1.."},
        GgufBadCase{"KvHeads", "llama", "llama.attention.head_count_kv", std::uint32_t{3},
                    "must divide"},
        GgufBadCase{"HugeLayers", "llama", "llama.block_count", std::uint32_t{4000000000U},
                    "must lie in 1..1024"},
        GgufBadCase{"WrongType", "llama", "llama.block_count", std::string("3"), "string"},
        GgufBadCase{"ValueLength", "llama", "llama.attention.value_length", std::uint32_t{8},
                    "must equal"},
        GgufBadCase{"VocabSize", "llama", "llama.vocab_size", std::uint32_t{130}, "131 rows"},
        GgufBadCase{"OddRotary", "llama", "llama.rope.dimension_count", std::uint32_t{7}, "even"},
        GgufBadCase{"ScalingType", "llama", "llama.rope.scaling.type", std::string("ntk"), "ntk"},
        GgufBadCase{"Window", "llama", "llama.attention.sliding_window", std::uint32_t{16}, "16"},
        GgufBadCase{"SharedExperts", "mixtral", "llama.expert_shared_count", std::uint32_t{1},
                    "shared experts"},
        GgufBadCase{"Gating", "mixtral", "llama.expert_gating_func", std::uint32_t{2}, "softmax"},
        GgufBadCase{"ExpertsUsed", "mixtral", "llama.expert_used_count", std::uint32_t{5},
                    "must lie in 1..4"},
        GgufBadCase{"ExpertScale", "mixtral", "llama.expert_weights_scale", 2.5F, "2.5"},
        GgufBadCase{"Softcap", "gemma3", "gemma3.attn_logit_softcapping", 50.0F,
                    "a cap on attention scores"},
        GgufBadCase{"YarnLog", "llama-yarn", "llama.rope.scaling.yarn_log_multiplier", 0.1F, "0.1"},
        GgufBadCase{"Causal", "llama", "llama.attention.causal", false, "later tokens"},
        GgufBadCase{"DifferingLayers", "llama", "llama.attention.head_count_kv",
                    GgufArray(std::vector<std::int32_t>{2, 2, 1}), "layers that differ"},
        GgufBadCase{"PatternLength", "gemma3", "gemma3.attention.sliding_window_pattern",
                    GgufArray(std::vector<bool>{true}), "6"}),
    [](const auto& param_info) { return param_info.param.name; });

// A tiny file with some keys changed.
Result<std::shared_ptr<const Model>> load_changed(const std::string& family,
                                                  const std::vector<GgufMetadata::Pair>& changes) {
  TempDir dir;
  const auto path = (dir.path() / "m.gguf").string();
  TRINE_TRY(testing::write_gguf_model(path, load_family_case(family)));
  TRINE_TRY_ASSIGN(const GgufFile file, open_gguf(path));
  std::vector<GgufMetadata::Pair> pairs(file.metadata.pairs().begin(), file.metadata.pairs().end());
  for (const auto& change : changes) {
    std::erase_if(pairs, [&](const auto& pair) { return pair.first == change.first; });
    pairs.push_back(change);
  }
  const auto out = (dir.path() / "changed.gguf").string();
  TRINE_TRY(write_gguf(out, pairs, file.checkpoint.tensors()));
  return Model::load(out);
}

// Without a type llama.cpp scales linearly; a factor that is read and dropped would be garbage past
// the trained context.
TEST(GgufLoad, AScalingFactorWithoutATypeIsLinear) {
  const auto model = load_changed("llama", {{"llama.rope.scaling.factor", 8.0F}});
  ASSERT_TRUE(model.has_value()) << model.error().message;
  EXPECT_EQ((*model)->config().ropes[0].scaling, RopeConfig::Scaling::kLinear);
  EXPECT_EQ((*model)->config().ropes[0].factor, 8.0);
  const auto none = load_changed("llama", {{"llama.rope.scaling.factor", 8.0F},
                                           {"llama.rope.scaling.type", std::string("none")}});
  ASSERT_TRUE(none.has_value()) << none.error().message;
  EXPECT_EQ((*none)->config().ropes[0].scaling, RopeConfig::Scaling::kNone);
}

// The window is without effect, but local layers still have frequencies of their own.
TEST(GgufLoad, GemmaLayersStayLocalWhenTheWindowHoldsTheWholeContext) {
  const auto usual = load_changed("gemma3", {});
  ASSERT_TRUE(usual.has_value()) << usual.error().message;
  const auto context = static_cast<std::uint32_t>((*usual)->config().context_length);
  const auto model = load_changed("gemma3", {{"gemma3.attention.sliding_window", context}});
  ASSERT_TRUE(model.has_value()) << model.error().message;
  for (std::size_t i = 0; i < (*usual)->config().layers.size(); ++i) {
    EXPECT_EQ((*model)->config().layers[i].rope_idx, (*usual)->config().layers[i].rope_idx) << i;
  }
}

TEST(GgufLoad, MissingTensorIsNamed) {
  TempDir dir;
  const auto path = (dir.path() / "m.gguf").string();
  ASSERT_TRUE(testing::write_gguf_model(path, load_family_case("qwen3")).has_value());
  const auto file = open_gguf(path);
  ASSERT_TRUE(file.has_value());
  std::vector<TensorInfo> tensors(file->checkpoint.tensors().begin(),
                                  file->checkpoint.tensors().end());
  std::erase_if(tensors, [](const TensorInfo& t) { return t.name == "blk.1.attn_k_norm.weight"; });
  const auto out = (dir.path() / "bad.gguf").string();
  ASSERT_TRUE(write_gguf(out, file->metadata.pairs(), tensors).has_value());
  const auto model = Model::load(out);
  ASSERT_FALSE(model.has_value());
  EXPECT_THAT(model.error().message, HasSubstr("blk.1.attn_k_norm.weight"));
}

}  // namespace
}  // namespace trine
