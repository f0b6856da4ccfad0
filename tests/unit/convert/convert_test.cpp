// Converted directories give the logits of the directory, and the tensors that an independent
// writer of the tests gives (tests/support/tiny_gguf.cpp).
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "convert/to_gguf.h"
#include "format/gguf.h"
#include "support/tiny_gguf.h"
#include "support/tiny_model.h"

namespace trine {
namespace {

namespace fs = std::filesystem;
using testing::FamilyCase;
using testing::load_family_case;
using testing::relative_error;
using testing::Runner;
using testing::TempDir;

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return !a.empty() && a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::vector<float> logits_of(const fs::path& path, const FamilyCase& golden) {
  const auto model = Model::load(path.string(), Model::LoadOptions{golden.max_context});
  EXPECT_TRUE(model.has_value()) << model.error().message;
  return model.has_value() ? Runner(*model).logits(golden.tokens, 512) : std::vector<float>{};
}

struct Converted {
  explicit Converted(const FamilyCase& golden, DType source = DType::kF32) {
    testing::write_model_dir(model(), golden.config, golden.tensors, source);
  }

  fs::path model() const { return dir.path() / "model"; }

  fs::path file() const { return dir.path() / "out.gguf"; }

  Result<ConvertReport> run(std::optional<DType> type = {}, std::int32_t max_context = 0) const {
    return convert_to_gguf({model().string(), file().string(), type, max_context, true, nullptr});
  }

  TempDir dir;
};

class ConvertFamily : public ::testing::TestWithParam<std::string> {};

std::vector<std::string> sayable_cases() {
  std::vector<std::string> names = testing::family_case_names();
  std::erase_if(names, [](const std::string& name) {
    return !testing::gguf_can_say(load_family_case(name));
  });
  return names;
}

// Nothing of a matrix or an angle is rounded on the way: the same bits. Rows of queries and keys
// that change places change the order of a sum, and factors of YaRN and LongRoPE are rounded to
// float32.
bool exact(const std::string& name) {
  return !name.starts_with("llama") && !name.starts_with("mi") && !name.starts_with("phi3-") &&
         name != "qwen3";
}

TEST_P(ConvertFamily, HasTheLogitsOfTheDirectory) {
  const FamilyCase golden = load_family_case(GetParam());
  for (const DType source : {DType::kF32, DType::kF16, DType::kBF16}) {
    SCOPED_TRACE(dtype_info(source).name);
    const Converted made(golden, source);
    const std::vector<float> expected = logits_of(made.model(), golden);
    for (const std::optional<DType> type : {std::optional<DType>(), std::optional(DType::kF32)}) {
      const auto report = made.run(type);
      ASSERT_TRUE(report.has_value()) << report.error().message;
      EXPECT_EQ(report->type, type.value_or(source));
      const std::vector<float> logits = logits_of(made.file(), golden);
      if (exact(golden.name)) {
        EXPECT_TRUE(same_bits(logits, expected));
      }
      ASSERT_EQ(logits.size(), expected.size());
      EXPECT_LE(relative_error(logits, expected), 2e-5);
    }
  }
}

// "rope_freqs.weight" comes from another formula in each.
TEST_P(ConvertFamily, HasTheTensorsOfAnIndependentWriter) {
  const FamilyCase golden = load_family_case(GetParam());
  const Converted made(golden);
  ASSERT_TRUE(made.run().has_value());
  const fs::path twin = made.dir.path() / "twin.gguf";
  ASSERT_TRUE(testing::write_gguf_model(twin, golden).has_value());
  const auto ours = open_gguf(made.file().string());
  const auto theirs = open_gguf(twin.string());
  ASSERT_TRUE(ours.has_value() && theirs.has_value());
  EXPECT_EQ(ours->checkpoint.tensors().size(), theirs->checkpoint.tensors().size());
  for (const TensorInfo& wanted : theirs->checkpoint.tensors()) {
    const TensorInfo* found = ours->checkpoint.find(wanted.name);
    ASSERT_NE(found, nullptr) << wanted.name;
    EXPECT_EQ(found->shape, wanted.shape) << wanted.name;
    ASSERT_EQ(found->data.size(), wanted.data.size()) << wanted.name;
    if (wanted.name == "rope_freqs.weight") {
      std::vector<float> a(wanted.data.size() / 4);
      std::vector<float> b(a.size());
      std::memcpy(a.data(), found->data.data(), found->data.size());
      std::memcpy(b.data(), wanted.data.data(), wanted.data.size());
      EXPECT_LE(relative_error(a, b), 1e-6);
    } else {
      EXPECT_EQ(std::memcmp(found->data.data(), wanted.data.data(), wanted.data.size()), 0)
          << wanted.name;
    }
  }
  for (const auto& [key, value] : theirs->metadata.pairs()) {
    // Left out where it says the default.
    if (!ours->metadata.has(key)) {
      EXPECT_TRUE(key.ends_with("attn_factor") || key.ends_with("rope.scaling.factor") ||
                  key.ends_with("attention.scale") || key.ends_with("final_logit_softcapping"))
          << key;
    } else {
      EXPECT_TRUE(*ours->metadata.find(key) == value) << key;
    }
  }
}

std::string test_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, ConvertFamily, ::testing::ValuesIn(sayable_cases()), test_name);

TEST(Convert, RefusesWhatAGgufFileCannotSay) {
  const std::map<std::string, std::string> cases{
      {"mistral", "layer 0 sees 24 tokens of a context of 512.*--ctx 24"},
      {"qwen2-window", "layer 1 sees 20 tokens"},
      {"qwen3-moe-sparse", "--ctx 20|layer 0 has no experts"},
      {"llama-yarn-mscale", "truncate = false"},
  };
  for (const auto& [name, pattern] : cases) {
    const Converted made(load_family_case(name));
    const auto report = made.run();
    ASSERT_FALSE(report.has_value()) << name;
    EXPECT_EQ(report.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(report.error().message, ::testing::ContainsRegex(pattern));
    EXPECT_FALSE(fs::exists(made.file()));
  }
}

TEST(Convert, ASmallerContextThanTheWindowCanBeSaid) {
  FamilyCase golden = load_family_case("mistral");
  golden.max_context = 24;
  golden.tokens.resize(24);
  const Converted made(golden);
  ASSERT_TRUE(made.run({}, 24).has_value());
  const auto model = Model::load(made.file().string());
  ASSERT_TRUE(model.has_value()) << model.error().message;
  EXPECT_EQ((*model)->config().context_length, 24);
  EXPECT_LE(relative_error(logits_of(made.file(), golden), logits_of(made.model(), golden)), 1e-5);
}

// Fused matrices of other families are taken apart, and the experts of one tensor too.
TEST(Convert, TakesFusedMatricesApart) {
  FamilyCase golden = load_family_case("llama");
  const Converted apart(golden);
  ASSERT_TRUE(apart.run().has_value());
  std::map<std::string, testing::TinyTensor> fused;
  std::vector<testing::TinyTensor> tensors;
  for (const testing::TinyTensor& tensor : golden.tensors) {
    std::string name = tensor.name;
    for (const auto& [part, whole] : {std::pair("q_proj", "qkv_proj"),
                                      {"k_proj", "qkv_proj"},
                                      {"v_proj", "qkv_proj"},
                                      {"gate_proj", "gate_up_proj"},
                                      {"up_proj", "gate_up_proj"}}) {
      if (const std::size_t at = name.find(std::string(".") + part); at != std::string::npos) {
        name.replace(at + 1, std::strlen(part), whole);
        break;
      }
    }
    if (name == tensor.name) {
      tensors.push_back(tensor);
      continue;
    }
    testing::TinyTensor& whole = fused[name];
    if (whole.name.empty()) {
      whole = tensor;
      whole.name = name;
    } else {
      whole.shape[0] += tensor.shape[0];
      whole.values.insert(whole.values.end(), tensor.values.begin(), tensor.values.end());
    }
  }
  for (auto& [name, tensor] : fused) {
    tensors.push_back(tensor);
  }
  golden.tensors = std::move(tensors);
  const Converted together(golden);
  ASSERT_TRUE(together.run().has_value());
  EXPECT_EQ(testing::read_file(apart.file()), testing::read_file(together.file()));
}

// Rows past the vocabulary are padding, and a GGUF file has none.
TEST(Convert, LeavesPaddingOut) {
  FamilyCase golden = load_family_case("qwen3");
  const Converted plain(golden);
  ASSERT_TRUE(plain.run().has_value());
  for (testing::TinyTensor& tensor : golden.tensors) {
    if (tensor.shape[0] == 131 && tensor.shape.size() == 2) {
      tensor.shape[0] = 136;
      tensor.values.resize(136 * 64, 7.0F);
    }
  }
  const Converted padded(golden);
  ASSERT_TRUE(padded.run().has_value());
  EXPECT_EQ(testing::read_file(plain.file()), testing::read_file(padded.file()));
}

TEST(Convert, ThePlanKnowsWhereAModuleGoes) {
  const Converted made(load_family_case("llama"));
  const auto parts = open_decoder(made.model().string(), 0);
  ASSERT_TRUE(parts.has_value());
  const auto plan = plan_gguf(*parts);
  ASSERT_TRUE(plan.has_value()) << plan.error().message;
  const auto places = gguf_places(*plan, "model.layers.2.self_attn.k_proj.weight");
  ASSERT_EQ(places.size(), 1U);
  EXPECT_EQ(places[0].tensor->name, "blk.2.attn_k.weight");
  EXPECT_EQ(places[0].first_row, 0);
  const std::vector<std::int64_t> order = row_order(*places[0].tensor);
  ASSERT_EQ(order.size(), 32U);  // two heads of 16
  EXPECT_EQ(std::vector(order.begin(), order.begin() + 6),
            (std::vector<std::int64_t>{0, 8, 1, 9, 2, 10}));
  EXPECT_EQ(std::vector(order.begin() + 16, order.begin() + 19),
            (std::vector<std::int64_t>{16, 24, 17}));
  // Rows of any encoding change places alike.
  std::vector<std::byte> rows(32 * 3);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i] = static_cast<std::byte>(i);
  }
  std::vector<std::byte> out(rows.size());
  arrange_rows(*places[0].tensor, 3, rows, out);
  EXPECT_EQ(out[0], std::byte{0});
  EXPECT_EQ(out[3], std::byte{24});
  EXPECT_EQ(out[5], std::byte{26});
  EXPECT_EQ(out[6], std::byte{3});
  EXPECT_TRUE(
      row_order(*gguf_places(*plan, "model.layers.2.self_attn.v_proj.weight")[0].tensor).empty());
  EXPECT_EQ(gguf_places(*plan, "lm_head.weight")[0].tensor->name, "output.weight");
  EXPECT_TRUE(gguf_places(*plan, "nosuch").empty());
}

TEST(Convert, ThePlanCountsTheRowsOfExperts) {
  const Converted made(load_family_case("mixtral"));
  const auto parts = open_decoder(made.model().string(), 0);
  ASSERT_TRUE(parts.has_value());
  const auto plan = plan_gguf(*parts);
  ASSERT_TRUE(plan.has_value());
  const auto places = gguf_places(*plan, "model.layers.1.block_sparse_moe.experts.3.w2.weight");
  ASSERT_EQ(places.size(), 1U);
  EXPECT_EQ(places[0].tensor->name, "blk.1.ffn_down_exps.weight");
  EXPECT_EQ(places[0].tensor->shape, (std::vector<std::int64_t>{4, 64, 96}));
  EXPECT_EQ(places[0].first_row, 3 * 64);
}

TEST(Convert, RefusesSourcesAndOutputsByName) {
  const FamilyCase golden = load_family_case("qwen2");
  const Converted made(golden);
  ASSERT_TRUE(made.run().has_value());
  const std::string before = testing::read_file(made.file());
  const auto expect = [](const ConvertRequest& request, ErrorCode code, const char* pattern) {
    const auto report = convert_to_gguf(request);
    ASSERT_FALSE(report.has_value()) << pattern;
    EXPECT_EQ(report.error().code, code) << report.error().message;
    EXPECT_THAT(report.error().message, ::testing::ContainsRegex(pattern));
  };
  const std::string other = (made.dir.path() / "other.gguf").string();
  expect({made.model().string(), made.file().string(), {}, 0, false, nullptr},
         ErrorCode::kInvalidArgument, "out.gguf exists; --force");
  expect({made.model().string(), made.dir.path().string(), {}, 0, true, nullptr},
         ErrorCode::kInvalidArgument, "is a directory");
  expect({made.file().string(), other, {}, 0, false, nullptr}, ErrorCode::kInvalidArgument,
         "is a GGUF file already");
  expect({(made.dir.path() / "nosuch").string(), other, {}, 0, false, nullptr},
         ErrorCode::kNotFound, "nosuch");
  auto config = *parse_json(golden.config);
  config["quantization_config"] = {{"quant_method", "gptq"}, {"bits", 4}};
  testing::write_file(made.model() / "config.json", config.dump());
  expect({made.model().string(), other, {}, 0, false, nullptr}, ErrorCode::kUnsupported, "quantiz");
  EXPECT_FALSE(fs::exists(other));
  EXPECT_EQ(testing::read_file(made.file()), before);
}

// A failure on the way leaves the old file and nothing else.
TEST(Convert, ValuesThatTheTypeCannotHoldAreRefused) {
  FamilyCase golden = load_family_case("qwen2");
  const auto down = std::find_if(golden.tensors.begin(), golden.tensors.end(), [](const auto& t) {
    return t.name == "model.layers.1.mlp.down_proj.weight";
  });
  down->values[96 + 5] = 70000.0F;
  const Converted large(golden);
  const auto failed = large.run(DType::kF16);
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code, ErrorCode::kCorruptData);
  EXPECT_THAT(failed.error().message,
              ::testing::ContainsRegex("down_proj.weight: the value 70000 for row 1, column 5 of "
                                       "blk.1.ffn_down.weight cannot be held in F16"));
  EXPECT_EQ(std::distance(fs::directory_iterator(large.dir.path()), fs::directory_iterator()), 1);
  EXPECT_TRUE(large.run(DType::kBF16).has_value());
  EXPECT_TRUE(large.run(DType::kQ8_0).has_value());
  down->values[96 + 5] = std::nanf("");
  const Converted nan(golden);
  EXPECT_THAT(nan.run(DType::kQ8_0).error().message,
              ::testing::HasSubstr("cannot be held in Q8_0"));
  EXPECT_TRUE(nan.run(DType::kF16).has_value());
}

TEST(Convert, SmallTensorsStayFloatAndOddRowsBecomeHalves) {
  const FamilyCase golden = load_family_case("qwen3-moe");  // experts of 32, width 64
  const Converted made(golden);
  const auto report = made.run(DType::kQ8_0);
  ASSERT_TRUE(report.has_value()) << report.error().message;
  const auto file = open_gguf(made.file().string());
  ASSERT_TRUE(file.has_value());
  for (const TensorInfo& tensor : file->checkpoint.tensors()) {
    const bool small =
        tensor.shape.size() == 1 || tensor.name.find("ffn_gate_inp") != std::string::npos;
    EXPECT_EQ(tensor.dtype, small ? DType::kF32 : DType::kQ8_0) << tensor.name;
  }
  EXPECT_EQ(file->metadata.get_uint("general.file_type").value(), 7U);
  EXPECT_EQ(file->metadata.get_uint("general.quantization_version").value(), 2U);
  // Heads of 20: rows of 80 are no whole blocks.
  const Converted odd(load_family_case("mistral"));
  ASSERT_TRUE(odd.run(DType::kQ8_0, 24).has_value());
  const auto halves = open_gguf(odd.file().string());
  ASSERT_TRUE(halves.has_value());
  EXPECT_EQ(halves->checkpoint.find("blk.0.attn_output.weight")->dtype, DType::kF16);
  EXPECT_EQ(halves->checkpoint.find("blk.0.attn_q.weight")->dtype, DType::kQ8_0);
}

TEST(Convert, AnErrorOfTheCallerEndsTheWork) {
  const Converted made(load_family_case("qwen2"));
  ConvertRequest request{made.model().string(), made.file().string(), {}, 0, false, nullptr};
  request.progress = [](std::uint64_t done, std::uint64_t total) -> Status {
    EXPECT_LE(done, total);
    return fail(ErrorCode::kCancelled, "stop");
  };
  EXPECT_EQ(convert_to_gguf(request).error().code, ErrorCode::kCancelled);
  EXPECT_EQ(std::distance(fs::directory_iterator(made.dir.path()), fs::directory_iterator()), 1);
  std::uint64_t last = 0;
  std::uint64_t whole = 0;
  request.progress = [&](std::uint64_t done, std::uint64_t total) -> Status {
    EXPECT_GT(done, last);
    last = done;
    whole = total;
    return {};
  };
  ASSERT_TRUE(convert_to_gguf(request).has_value());
  EXPECT_EQ(last, whole);
}

TEST(Convert, NotesWhatLlamaCppDoesDifferently) {
  const auto notes = [](const char* name) {
    const Converted made(load_family_case(name));
    const auto report = made.run();
    EXPECT_TRUE(report.has_value()) << name << report.error().message;
    std::string all;
    for (const std::string& note : report.value_or(ConvertReport{}).notes) {
      all += note + "\n";
    }
    return all;
  };
  EXPECT_THAT(notes("phi3"), ::testing::HasSubstr("ignores the sliding window of 30 tokens"));
  EXPECT_THAT(notes("gemma3"), ::testing::HasSubstr("scales attention scores of gemma3"));
  EXPECT_THAT(notes("llama"), ::testing::HasSubstr("no tokenizer.json"));
  EXPECT_THAT(notes("llama"), ::testing::Not(::testing::HasSubstr("llama.cpp")));
}

}  // namespace
}  // namespace trine
