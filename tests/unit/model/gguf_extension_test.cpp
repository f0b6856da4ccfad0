// Matrices that no GGUF block type holds, in a GGUF file (docs/formats/gguf-extension.md): the same
// weights as a safetensors directory give the same bits.
#include <algorithm>
#include <cstring>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/half.h"
#include "compress/checkpoint_layout.h"
#include "format/gguf_writer.h"
#include "format/open.h"
#include "format/safetensors_writer.h"
#include "model/pack_weights.h"
#include "support/hash_weights.h"
#include "support/quantized_tensors.h"
#include "support/tiny_gguf.h"

namespace trine {
namespace {

using Json = nlohmann::ordered_json;
using Activations = Model::LoadOptions::Activations;
using testing::FamilyCase;
using testing::Runner;
using testing::TempDir;

// How a module of either spelling is quantized; nullopt: it stays.
using Choice = std::function<std::optional<QuantScheme>(std::string_view module)>;

bool is_table(std::string_view module) {
  return module.find("emb") != std::string_view::npos;  // embed_tokens, token_embd
}

bool is_down(std::string_view module) {
  return module.find("down") != std::string_view::npos;  // down_proj, ffn_down
}

// Layers alone; a router is small and stays.
bool in_layer(std::string_view module) {
  return (module.starts_with("blk.") || module.find(".layers.") != std::string_view::npos) &&
         !module.ends_with("mlp.gate") && !module.ends_with("gate_inp");
}

Choice uniform(const QuantScheme& scheme) {
  return [scheme](std::string_view module) {
    return in_layer(module) ? std::optional(scheme) : std::nullopt;
  };
}

// Every kind of matrix in a way of its own, the embedding included.
std::optional<QuantScheme> mixed(std::string_view module) {
  if (is_table(module)) {
    return QuantScheme{8, 0, GridKind::kSymmetric};
  }
  if (!in_layer(module)) {
    return std::nullopt;
  }
  return is_down(module) ? QuantScheme{3, 32, GridKind::kZeroPoint}
                         : QuantScheme{4, 64, GridKind::kSymmetric};
}

Json weights_json(const QuantScheme& scheme) {
  Json out = {{"num_bits", scheme.bits},
              {"type", "int"},
              {"symmetric", scheme.kind == GridKind::kSymmetric},
              {"strategy", scheme.group == 0 ? "channel" : "group"}};
  if (scheme.group != 0) {
    out["group_size"] = scheme.group;
  }
  return out;
}

struct Variant {
  bool shapes = true;            // NAME.weight_shape
  DType scales = DType::kF16;    // of NAME.weight_scale
  Json config = Json::object();  // in place of keys of the configuration
  bool with_key = true;
  bool int8_activations = false;  // signed bytes instead of packed words
};

struct QuantizedFile {
  test::TensorBag tensors;
  Json config;
};

std::vector<float> floats_of(const TensorInfo& tensor) {
  std::vector<float> out(static_cast<std::size_t>(tensor.num_elems()));
  std::memcpy(out.data(), tensor.data.data(), tensor.data.size());
  return out;
}

void add_layout(const std::string& module, const LayoutTensor& part, DType scales,
                test::TensorBag& out) {
  const std::string name = module + part.suffix;
  if (part.suffix != ".weight_scale" || part.dtype != DType::kF16 || scales == DType::kF16) {
    out.add(name, part.dtype, part.shape, part.data);
    return;
  }
  std::vector<std::uint16_t> halves(part.data.size() / 2);
  std::memcpy(halves.data(), part.data.data(), part.data.size());
  std::vector<float> wide(halves.size());
  std::transform(halves.begin(), halves.end(), wide.begin(), f16_to_f32);
  if (scales == DType::kF32) {
    out.add(name, scales, part.shape, wide);
    return;
  }
  std::transform(wide.begin(), wide.end(), halves.begin(), f32_to_bf16);
  out.add(name, scales, part.shape, halves);
}

// The file's tensors with the chosen matrices quantized in place of their floats.
QuantizedFile quantized(const Checkpoint& plain, const Choice& choice, const Variant& variant) {
  const auto team = ThreadTeam::create(1).value();
  QuantizedFile out;
  Json groups = Json::object();
  for (const TensorInfo& tensor : plain.tensors()) {
    const std::string module = tensor.name.substr(0, tensor.name.rfind('.'));
    const auto scheme = tensor.shape.size() > 1 ? choice(module) : std::nullopt;
    if (!scheme.has_value()) {
      out.tensors.add(tensor.name, tensor.dtype, tensor.shape, floats_of(tensor));
      continue;
    }
    // Experts that are one tensor become one matrix.
    const std::int64_t cols = tensor.shape.back();
    const QuantizedWeights q = round_to_nearest(*team, *scheme, {}, floats_of(tensor),
                                                tensor.num_elems() / cols, cols, {}, nullptr);
    for (const LayoutTensor& part : compressed_layout(q, variant.int8_activations)) {
      if (variant.shapes || part.suffix != ".weight_shape") {
        add_layout(module, part, variant.scales, out.tensors);
      }
    }
    Json& group = groups[scheme->text()];
    group["weights"] = weights_json(*scheme);
    if (variant.int8_activations) {
      group["input_activations"] = {
          {"num_bits", 8}, {"type", "int"}, {"strategy", "token"}, {"dynamic", true}};
    }
    group["targets"].push_back(module);
  }
  out.config = {{"quant_method", "compressed-tensors"},
                {"format", variant.int8_activations ? "int-quantized" : "pack-quantized"},
                {"config_groups", groups},
                {"ignore", Json::array({"lm_head", "output"})}};
  out.config.update(variant.config);
  return out;
}

std::vector<float> logits_of(const std::string& path, const FamilyCase& golden,
                             Activations activations) {
  const auto model = Model::load(path, Model::LoadOptions{golden.max_context, activations, 1});
  EXPECT_TRUE(model.has_value()) << model.error().message;
  return model.has_value() ? Runner(*model).logits(golden.tokens, 512) : std::vector<float>{};
}

void expect_same_bits(const std::vector<float>& got, const std::vector<float>& wanted) {
  ASSERT_FALSE(got.empty());
  ASSERT_EQ(got.size(), wanted.size());
  EXPECT_EQ(std::memcmp(got.data(), wanted.data(), got.size() * sizeof(float)), 0);
}

// A directory of config.json and safetensors.
void write_directory(const std::filesystem::path& dir, const FamilyCase& golden,
                     const Choice& choice, const Variant& variant = {}) {
  TempDir plain;
  testing::write_model_dir(plain.path(), golden.config, golden.tensors);
  const auto opened = open_checkpoint(plain.path().string()).value();
  const QuantizedFile file = quantized(opened.weights(), choice, variant);
  Json config = Json::parse(golden.config);
  config["quantization_config"] = file.config;
  testing::write_file(dir / "config.json", config.dump());
  ASSERT_TRUE(write_safetensors((dir / "model.safetensors").string(), file.tensors.tensors, {})
                  .has_value());
}

void write_extended(const std::filesystem::path& path, const FamilyCase& golden,
                    const Choice& choice, const Variant& variant,
                    testing::GgufStyle::Experts experts = testing::GgufStyle::Experts::kSingle) {
  TempDir plain;
  const auto plain_path = plain.path() / "plain.gguf";
  ASSERT_TRUE(testing::write_gguf_model(plain_path, golden, {DType::kF32, experts}).has_value());
  const auto opened = open_gguf(plain_path.string()).value();
  const QuantizedFile file = quantized(opened.checkpoint, choice, variant);
  std::vector<GgufMetadata::Pair> pairs(opened.metadata.pairs().begin(),
                                        opened.metadata.pairs().end());
  if (variant.with_key) {
    pairs.emplace_back("trine.quantization_config", file.config.dump());
  }
  const Status written = write_gguf(path.string(), pairs, file.tensors.tensors);
  ASSERT_TRUE(written.has_value()) << written.error().message;
}

struct Case {
  const char* name;
  const char* family;
  Choice choice;
};

class GgufExtension : public ::testing::TestWithParam<Case> {};

TEST_P(GgufExtension, HasTheBitsOfTheSafetensorsForm) {
  const FamilyCase golden = testing::load_family_case(GetParam().family);
  TempDir dir;
  write_directory(dir.path(), golden, GetParam().choice);
  const auto path = (dir.path() / "m.gguf").string();
  for (const Variant& variant : {Variant{}, Variant{.shapes = false, .scales = DType::kF32}}) {
    write_extended(path, golden, GetParam().choice, variant);
    for (const Activations activations : {Activations::kF32, Activations::kInt8}) {
      const std::vector<float> wanted = logits_of(dir.path().string(), golden, activations);
      const std::vector<float> got = logits_of(path, golden, activations);
      expect_same_bits(got, wanted);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, GgufExtension,
    ::testing::Values(Case{"W4Symmetric", "qwen2", uniform({4, 32, GridKind::kSymmetric})},
                      Case{"W4ZeroPoint", "qwen2", uniform({4, 64, GridKind::kZeroPoint})},
                      Case{"W3ZeroPoint", "qwen2", uniform({3, 32, GridKind::kZeroPoint})},
                      Case{"W2ZeroPoint", "qwen2", uniform({2, 16, GridKind::kZeroPoint})},
                      Case{"W8Row", "qwen2", uniform({8, 0, GridKind::kSymmetric})},
                      Case{"Stacked", "phi3", uniform({4, 32, GridKind::kZeroPoint})},
                      Case{"Experts", "qwen3-moe", uniform({4, 32, GridKind::kSymmetric})},
                      Case{"MixedTied", "qwen2", mixed}, Case{"Mixed", "phi3", mixed}),
    [](const auto& param_info) { return param_info.param.name; });

TEST(GgufExtensionFile, SignedBytesWithInt8Activations) {
  const FamilyCase golden = testing::load_family_case("qwen2");
  const Choice choice = uniform({8, 0, GridKind::kSymmetric});
  TempDir dir;
  const Variant variant{.int8_activations = true};
  write_directory(dir.path(), golden, choice, variant);
  const auto path = (dir.path() / "m.gguf").string();
  write_extended(path, golden, choice, variant);
  for (const Activations activations : {Activations::kF32, Activations::kInt8}) {
    expect_same_bits(logits_of(path, golden, activations),
                     logits_of(dir.path().string(), golden, activations));
  }
}

// Rows of queries and keys are in another order, so sums are, too.
TEST(GgufExtensionFile, PermutedRowsGiveTheSameModel) {
  const FamilyCase golden = testing::load_family_case("llama");
  const Choice choice = uniform({4, 32, GridKind::kZeroPoint});
  TempDir dir;
  write_directory(dir.path(), golden, choice);
  const auto path = (dir.path() / "m.gguf").string();
  write_extended(path, golden, choice, {});
  const auto wanted = logits_of(dir.path().string(), golden, Activations::kF32);
  EXPECT_LE(testing::relative_error(logits_of(path, golden, Activations::kF32), wanted), 1e-4);
}

TEST(GgufExtensionFile, EveryByteIsCounted) {
  const FamilyCase golden = testing::load_family_case("qwen2");
  TempDir dir;
  const auto path = (dir.path() / "m.gguf").string();
  write_extended(path, golden, uniform({4, 32, GridKind::kZeroPoint}), {});
  const auto opened = open_checkpoint(path).value();
  auto model = Model::load(path, {});
  ASSERT_TRUE(model.has_value()) << model.error().message;
  ModelConfig config = (*model)->config();
  const auto memory = weight_memory(opened, config, true);
  ASSERT_TRUE(memory.has_value()) << memory.error().message;
  ASSERT_EQ(memory->quantized.size(), 1U);
  EXPECT_EQ(memory->quantized[0].what, "compressed-tensors 4-bit, groups of 32, zero points");
  EXPECT_EQ(memory->quantized[0].num_matrices, 21);
}

struct BadCase {
  const char* name;
  Variant variant;
  ErrorCode code;
  const char* message;
};

class BadGgufExtension : public ::testing::TestWithParam<BadCase> {};

TEST_P(BadGgufExtension, IsRefusedByName) {
  const FamilyCase golden = testing::load_family_case("qwen2");
  TempDir dir;
  const auto path = (dir.path() / "m.gguf").string();
  write_extended(path, golden, uniform({4, 32, GridKind::kSymmetric}), GetParam().variant);
  const auto model = Model::load(path, {});
  ASSERT_FALSE(model.has_value());
  EXPECT_EQ(model.error().code, GetParam().code);
  EXPECT_NE(model.error().message.find(GetParam().message), std::string::npos)
      << model.error().message;
}

INSTANTIATE_TEST_SUITE_P(
    All, BadGgufExtension,
    ::testing::Values(
        BadCase{"NoKey",
                {.with_key = false},
                ErrorCode::kCorruptData,
                "belongs to a quantized model, but the metadata key trine.quantization_config is "
                "missing"},
        BadCase{"OtherMethod",
                {.config = {{"quant_method", "gptq"}, {"bits", 4}}},
                ErrorCode::kUnsupported,
                "trine.quantization_config: quant_method = \"gptq\": GGUF files hold "
                "compressed-tensors only"},
        BadCase{"OtherFormat",
                {.config = {{"format", "float-quantized"}}},
                ErrorCode::kUnsupported,
                "key trine.quantization_config: format = \"float-quantized\": GGUF files hold "
                "pack-quantized, int-quantized"},
        BadCase{"NoTarget",
                {.config = {{"config_groups", Json::object()}}},
                ErrorCode::kCorruptData,
                "matrix blk.0.attn_q is stored quantized, but no group of the configuration"}),
    [](const auto& param_info) { return param_info.param.name; });

TEST(GgufExtensionFile, EveryWayToStoreExpertsGivesTheSameBits) {
  const FamilyCase golden = testing::load_family_case("qwen3-moe");
  const Choice choice = uniform({4, 32, GridKind::kZeroPoint});
  TempDir dir;
  const auto path = (dir.path() / "m.gguf").string();
  using Experts = testing::GgufStyle::Experts;
  for (const Activations activations : {Activations::kF32, Activations::kInt8}) {
    write_extended(path, golden, choice, {}, Experts::kSingle);
    const std::vector<float> single = logits_of(path, golden, activations);
    for (const Experts experts : {Experts::kMerged, Experts::kGateUpMerged}) {
      write_extended(path, golden, choice, {}, experts);
      expect_same_bits(logits_of(path, golden, activations), single);
    }
  }
}

TEST(GgufExtensionFile, TheKeyMustBeJsonText) {
  const FamilyCase golden = testing::load_family_case("qwen2");
  TempDir dir;
  const auto path = (dir.path() / "m.gguf").string();
  write_extended(path, golden, uniform({4, 32, GridKind::kSymmetric}), {.with_key = false});
  const auto file = open_gguf(path).value();
  for (const GgufValue& value : {GgufValue(std::string("{\"a\"")), GgufValue(std::uint32_t{1})}) {
    std::vector<GgufMetadata::Pair> pairs(file.metadata.pairs().begin(),
                                          file.metadata.pairs().end());
    pairs.emplace_back("trine.quantization_config", value);
    const auto other = (dir.path() / "other.gguf").string();
    ASSERT_TRUE(write_gguf(other, pairs, file.checkpoint.tensors()).has_value());
    const auto model = Model::load(other, {});
    ASSERT_FALSE(model.has_value());
    EXPECT_EQ(model.error().code, ErrorCode::kCorruptData);
    EXPECT_NE(model.error().message.find("trine.quantization_config"), std::string::npos)
        << model.error().message;
  }
}

}  // namespace
}  // namespace trine
