// The vocabularies of the two packaged models: ids equal to a `tokenizers` object made from the
// same arrays (tools/golden/tokenizers.py). Skipped where the models have not been pulled.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "format/gguf.h"
#include "text/tokenizer.h"

namespace trine::text {
namespace {

using Ids = std::vector<std::int32_t>;

nlohmann::ordered_json golden_file(const std::string& name) {
  std::ifstream in(std::string(TRINE_SOURCE_DIR) + "/tests/golden/tokenizers/" + name,
                   std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  auto json = parse_json(text);
  EXPECT_TRUE(json.has_value()) << name;
  return json.has_value() ? std::move(*json) : nlohmann::ordered_json();
}

Ids unpack(const std::string& text) {
  std::istringstream in(text);
  Ids out;
  for (std::int32_t id = 0; in >> id;) {
    out.push_back(id);
  }
  return out;
}

template <typename T>
void read_array(const GgufMetadata& metadata, const char* key, std::vector<T>& out) {
  if (metadata.has(key)) {
    const auto values = metadata.get_array<T>(key);
    ASSERT_TRUE(values.has_value()) << values.error().message;
    out = **values;
  }
}

GgufTokenizerData read_data(const GgufMetadata& metadata) {
  GgufTokenizerData data;
  data.model = metadata.get_string("tokenizer.ggml.model").value();
  data.pre = metadata.get_string("tokenizer.ggml.pre").value();
  read_array(metadata, "tokenizer.ggml.tokens", data.tokens);
  read_array(metadata, "tokenizer.ggml.scores", data.scores);
  read_array(metadata, "tokenizer.ggml.token_type", data.kinds);
  read_array(metadata, "tokenizer.ggml.merges", data.merges);
  data.bos = static_cast<std::int32_t>(metadata.get_int("tokenizer.ggml.bos_token_id").value());
  data.eos = static_cast<std::int32_t>(metadata.get_int("tokenizer.ggml.eos_token_id").value());
  data.unk = static_cast<std::int32_t>(metadata.get_int("tokenizer.ggml.unknown_token_id").value());
  data.add_bos = metadata.get_bool("tokenizer.ggml.add_bos_token").value();
  data.add_space_prefix = metadata.get_bool("tokenizer.ggml.add_space_prefix").value();
  return data;
}

// The first .gguf file in the model's directory of the store, or nothing.
std::string model_file(const std::string& name) {
  const char* home = std::getenv("TRINE_HOME");
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* user = std::getenv("HOME");
  std::filesystem::path root =
      user == nullptr ? "" : std::filesystem::path(user) / ".cache" / "trine";
  if (home != nullptr && *home != '\0') {
    root = home;
  } else if (cache != nullptr && *cache != '\0') {
    root = std::filesystem::path(cache) / "trine";
  }
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(root / "models" / name, error)) {
    if (entry.path().extension() == ".gguf") {
      return entry.path().string();
    }
  }
  return "";
}

class PackagedModel : public testing::TestWithParam<const char*> {};

TEST_P(PackagedModel, TokenizesAsTheReference) {
  const std::string name = GetParam();
  const std::string path = model_file(name);
  if (path.empty()) {
    GTEST_SKIP() << name << " is not under TRINE_HOME (trine pull " << name << ")";
  }
  const auto file = open_gguf(path);
  ASSERT_TRUE(file.has_value()) << file.error().message;
  const auto tokenizer = Tokenizer::from_gguf(read_data(file->metadata));
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;

  const auto corpus = golden_file("corpus.json");
  const auto golden = golden_file(name + ".golden.json");
  ASSERT_EQ(golden["plain"].size(), corpus.size());
  for (std::size_t i = 0; i < corpus.size(); ++i) {
    const std::string text = corpus[i].get<std::string>();
    SCOPED_TRACE("line " + std::to_string(i) + ": " + corpus[i].dump());
    const Ids expected = unpack(golden["plain"][i].get<std::string>());
    EXPECT_EQ((*tokenizer)->encode(text, {false, false}).value(), expected);
    const std::string decoded =
        golden["decoded"][i].is_null() ? text : golden["decoded"][i].get<std::string>();
    EXPECT_EQ((*tokenizer)->decode(unpack(golden["special"][i].get<std::string>()), true).value(),
              decoded);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, PackagedModel, testing::Values("smollm2-135m", "gemma3-270m"), [](const auto& param_info) {
      return std::string(param_info.param).substr(0, std::string(param_info.param).find('-'));
    });

}  // namespace
}  // namespace trine::text
