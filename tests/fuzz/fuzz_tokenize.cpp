// Text of any bytes: encoding works or says why not; byte-level and byte-fallback tokenizers give
// the text back; user text never becomes a control token, however it is cut into parts.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "text/unicode.h"
#include "text_fuzz_support.h"

namespace tt = trine::text;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto exact =
      tt::load_tokenizers({"gpt2", "llama3", "o200k", "smollm", "deepseek", "llama2", "gemma"});
  static const auto others =
      tt::load_tokenizers({"qwen2", "unigram", "unigram-map", "gpt2-prefix", "llama2-metaspace"});
  if (size < 2) {
    return 0;
  }
  const std::string text(reinterpret_cast<const char*>(data + 2), size - 2);
  const bool valid = !tt::find_invalid_utf8(text).has_value();
  for (const auto* list : {&exact, &others}) {
    const auto& tokenizer = (*list)[data[0] % list->size()];
    const auto ids = tokenizer->encode(text, {false, false});
    if (ids.has_value() != valid) {
      __builtin_trap();
    }
    if (!valid) {
      continue;
    }
    // The last two write a space as U+2581, so a U+2581 of the text comes back as a space.
    const bool escapes =
        data[0] % list->size() >= 5 && text.find("\xe2\x96\x81") != std::string::npos;
    if (list == &exact && !escapes && tokenizer->decode(*ids, false).value() != text) {
      __builtin_trap();
    }
    std::size_t cut = data[1] % (text.size() + 1);
    while (cut < text.size() && (static_cast<unsigned char>(text[cut]) & 0xc0U) == 0x80U) {
      ++cut;
    }
    const std::vector<tt::TextPart> parts{{text.substr(0, cut), true}, {text.substr(cut), true}};
    const auto part_ids = tokenizer->encode_parts(parts, false).value();
    if (part_ids != *ids) {
      __builtin_trap();
    }
    for (const auto id : part_ids) {
      if (tokenizer->kind(id) == tt::TokenKind::kControl) {
        __builtin_trap();
      }
    }
    if (!tokenizer->encode(text, {true, true}).has_value()) {
      __builtin_trap();
    }
  }
  return 0;
}
