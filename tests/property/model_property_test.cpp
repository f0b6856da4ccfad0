// Damaged model files: loading gives a model or an error, never a crash or unbounded memory; what
// loads runs.
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "base/check.h"
#include "base/log.h"
#include "support/tiny_gguf.h"

namespace trine {
namespace {

using testing::FamilyCase;
using testing::TempDir;

// Overwrites, cuts and repeats bytes; most of the damage in the first `header` bytes, where the
// structure is.
std::string damaged(std::string bytes, std::size_t header) {
  const int edits = *rc::gen::inRange(1, 5);
  for (int i = 0; i < edits; ++i) {
    const auto limit =
        static_cast<int>(*rc::gen::weightedElement<std::size_t>({{9, header}, {1, bytes.size()}}));
    if (limit <= 0 || bytes.empty()) {
      break;
    }
    const auto at = static_cast<std::size_t>(*rc::gen::inRange(0, limit)) % bytes.size();
    switch (*rc::gen::inRange(0, 4)) {
      case 0:
        bytes[at] = static_cast<char>(*rc::gen::inRange(0, 256));
        break;
      case 1:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << *rc::gen::inRange(0, 8)));
        break;
      case 2:
        bytes[at] = "0123456789-.eE\"{}[],:tfn"[static_cast<std::size_t>(*rc::gen::inRange(0, 24))];
        break;
      default:
        if (*rc::gen::inRange(0, 8) == 0) {
          bytes.resize(at);
        } else {
          bytes.insert(at, bytes.substr(at, static_cast<std::size_t>(*rc::gen::inRange(1, 9))));
        }
    }
  }
  return bytes;
}

// Three tokens through whatever loaded; small models only, so that a lucky edit cannot make the
// test slow.
void run_if_small(const Result<std::shared_ptr<const Model>>& model) {
  if (!model.has_value()) {
    RC_ASSERT(!model.error().message.empty());
    return;
  }
  const ModelConfig& config = (*model)->config();
  RC_ASSERT(config.num_layers < 100);
  testing::Runner runner(*model, 1, DType::kF32, 4);
  KvSequence sequence(*runner.pool);
  const std::vector<std::int32_t> tokens{0, 1, 2};
  const Span span{&sequence, tokens, {}, Span::Logits::kAll};
  std::vector<float> logits;
  const Status status = runner.step({&span, 1}, logits);
  RC_ASSERT(status.has_value() || !status.error().message.empty());
}

class DamagedModel : public ::testing::Test {
 protected:
  DamagedModel() { log::set_level(log::Level::kOff); }

  ~DamagedModel() override { log::set_level(log::Level::kWarn); }
};

RC_GTEST_FIXTURE_PROP(DamagedModel, GgufFile, ()) {
  static const std::vector<std::string> files = [] {
    std::vector<std::string> out;
    for (const char* name : {"llama-llama3", "mixtral", "gemma3", "phi3-partial"}) {
      TempDir dir;
      TRINE_CHECK(testing::write_gguf_model(dir.path() / "m.gguf", testing::load_family_case(name))
                      .has_value());
      out.push_back(testing::read_file(dir.path() / "m.gguf"));
    }
    return out;
  }();
  const std::string& file = files[*rc::gen::inRange<std::size_t>(0, files.size())];
  TempDir dir;
  testing::write_file(dir.path() / "m.gguf", damaged(file, 3000));
  run_if_small(Model::load((dir.path() / "m.gguf").string()));
}

RC_GTEST_FIXTURE_PROP(DamagedModel, HfDirectory, ()) {
  static const std::vector<FamilyCase> cases = [] {
    std::vector<FamilyCase> out;
    for (const char* name :
         {"llama-yarn", "qwen3-moe-sparse", "gemma3-scaled", "phi3-longrope-long"}) {
      out.push_back(testing::load_family_case(name));
    }
    return out;
  }();
  const FamilyCase& golden = cases[*rc::gen::inRange<std::size_t>(0, cases.size())];
  const bool damage_config = *rc::gen::arbitrary<bool>();
  const std::string& config = *rc::gen::arbitrary<bool>() ? golden.config : golden.config_v5;
  TempDir dir;
  testing::write_model_dir(dir.path(), damage_config ? damaged(config, config.size()) : config,
                           golden.tensors, DType::kF16);
  if (!damage_config) {
    const auto path = dir.path() / "model.safetensors";
    testing::write_file(path, damaged(testing::read_file(path), 3000));
  }
  run_if_small(Model::load(dir.path().string()));
}

}  // namespace
}  // namespace trine
