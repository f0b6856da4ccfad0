// Any tokenizer.json (and, after a zero byte, tokenizer_config.json) loads or gives an error; what
// loads encodes and decodes a probe text without a crash, and the ids are inside the vocabulary.
// The same for its way into a GGUF file, and what that makes loads.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fuzz_support.h"
#include "text/tokenizer.h"
#include "text/tokenizer_to_gguf.h"

namespace {

constexpr std::string_view kProbe =
    " It's a tes\xcc\x81t, 123 \xe4\xb8\xad\xf0\x9f\x98\x80\n\n  <s>a b</s>";

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const std::size_t cut = all.find('\0');
  const auto config = cut == std::string_view::npos ? std::string_view() : all.substr(cut + 1);
  const auto tokenizer = trine::text::Tokenizer::from_json(all.substr(0, cut), config);
  if (!tokenizer.has_value()) {
    trine::require_printable(tokenizer.error());
    return 0;
  }
  const auto gguf =
      trine::text::gguf_tokenizer(all.substr(0, cut), config, (*tokenizer)->vocab_size());
  if (!gguf.has_value()) {
    trine::require_printable(gguf.error());
  } else if (!trine::text::Tokenizer::from_gguf(gguf->data).has_value()) {
    __builtin_trap();
  }
  for (const bool special : {false, true}) {
    const auto ids = (*tokenizer)->encode(kProbe, {special, special});
    if (!ids.has_value()) {
      trine::require_printable(ids.error());
      continue;
    }
    for (const auto id : *ids) {
      if (id < 0 || id >= (*tokenizer)->vocab_size()) {
        __builtin_trap();
      }
    }
    if (!(*tokenizer)->decode(*ids, special).has_value()) {
      __builtin_trap();
    }
  }
  return 0;
}
