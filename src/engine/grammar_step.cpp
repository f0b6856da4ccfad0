// What a grammar does to the draw of one token.
#include <algorithm>

#include "engine/engine_impl.h"

namespace trine {

namespace {

void clear_bit(std::span<std::uint64_t> words, std::int32_t id) {
  if (id >= 0 && static_cast<std::size_t>(id) / 64 < words.size()) {
    words[static_cast<std::size_t>(id) / 64] &= ~(std::uint64_t{1} << (id % 64));
  }
}

}  // namespace

// Which tokens end an answer is the request's to say, and where they may is the grammar's: the
// vocabulary's own end tokens are taken out of the mask and those of the request put in.
Result<sampling::AllowedTokens> Engine::Impl::allowed_tokens(const Request& request,
                                                             const Answer& answer) {
  if (!answer.matcher) {
    return sampling::AllowedTokens();
  }
  const grammar::TokenTrie& vocabulary = answer.matcher->grammar().vocabulary();
  const std::size_t rows = (static_cast<std::size_t>(vocab_size) + 63) / 64;
  allowed.assign(std::max(rows, vocabulary.mask_words()), 0);
  const auto position = answer.num_tokens();
  const Status masked = answer.matcher->mask(std::span(allowed).first(vocabulary.mask_words()));
  if (!masked.has_value()) {
    return fail(masked.error().code, "grammar: position {}: {}", position, masked.error().message);
  }
  // A tokenizer may have more ids than the model has rows.
  allowed.resize(rows);
  if (vocab_size % 64 != 0) {
    allowed.back() &= (std::uint64_t{1} << (vocab_size % 64)) - 1;
  }
  for (const std::int32_t id : vocabulary.stop_ids()) {
    clear_bit(allowed, id);
  }
  const bool may_end = answer.matcher->is_accepting() &&
                       answer.history.num_output() >= request.params.sampling.min_tokens;
  for (const std::int32_t id : request.stop_ids) {
    clear_bit(allowed, id);
    if (may_end) {
      allowed[static_cast<std::size_t>(id) / 64] |= std::uint64_t{1} << (id % 64);
    }
  }
  if (std::all_of(allowed.begin(), allowed.end(), [](std::uint64_t word) { return word == 0; })) {
    return fail(ErrorCode::kUnsupported,
                "grammar: position {}: a dead end, no token of the vocabulary goes on with this "
                "text{}",
                position,
                answer.matcher->is_accepting()
                    ? ", which may end here, but min_tokens or ignore_eos forbid the end"
                    : "");
  }
  return sampling::AllowedTokens(allowed);
}

}  // namespace trine
