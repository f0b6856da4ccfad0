// Any ids: the stream never ends inside a character and concatenates to the whole decode.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "text/unicode.h"
#include "text_fuzz_support.h"

namespace tt = trine::text;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto tokenizers =
      tt::load_tokenizers({"gpt2", "llama2", "llama2-metaspace", "unigram-bytes", "gemma"});
  if (size < 1) {
    return 0;
  }
  const auto& tokenizer = tokenizers[data[0] / 2 % tokenizers.size()];
  const bool skip_special = data[0] % 2 == 1;
  std::vector<std::int32_t> ids;
  for (std::size_t i = 1; i + 1 < size; i += 2) {
    ids.push_back((data[i] * 256 + data[i + 1]) % tokenizer->vocab_size());
  }
  tt::StreamDecoder decoder(tokenizer, skip_special);
  std::string streamed;
  for (const auto id : ids) {
    const std::string text = decoder.push(id).value();
    if (tt::find_invalid_utf8(text).has_value()) {
      __builtin_trap();
    }
    streamed += text;
  }
  streamed += decoder.finish();
  if (streamed != tokenizer->decode(ids, skip_special).value()) {
    __builtin_trap();
  }
  return 0;
}
