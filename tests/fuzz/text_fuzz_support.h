// Small fixed tokenizers for the fuzzers: one of each kind, from the golden files.
#pragma once

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace trine::text {

inline std::vector<std::shared_ptr<const Tokenizer>> load_tokenizers(
    const std::vector<std::string>& names) {
  std::vector<std::shared_ptr<const Tokenizer>> out;
  for (const std::string& name : names) {
    std::ifstream in(
        std::string(TRINE_SOURCE_DIR) + "/tests/golden/tokenizers/" + name + ".tokenizer.json",
        std::ios::binary);
    const std::string json{std::istreambuf_iterator<char>(in), {}};
    auto tokenizer = Tokenizer::from_json(json, "");
    if (!tokenizer.has_value()) {
      std::abort();
    }
    out.push_back(std::move(*tokenizer));
  }
  return out;
}

}  // namespace trine::text
