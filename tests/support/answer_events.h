// Events as an engine gives them, for answers without an engine.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/openai/answer.h"
#include "support/fake_tokenizer.h"

namespace trine::testing {

// Token 0 "a", 1 " b", 2 and 3 the halves of "é", 4 "<s>" (control), 5 "c".
inline std::shared_ptr<const text::Tokenizer> small_tokenizer() {
  return std::make_shared<FakeTokenizer>(
      std::vector<std::string>{"a", " b", "\xc3", "\xa9", "<s>", "c"},
      std::vector<std::int32_t>{4});
}

inline server::openai::AnswerEvent event(std::int32_t token, std::string_view text,
                                         std::optional<FinishReason> finish = std::nullopt) {
  server::openai::AnswerEvent out;
  out.token = token;
  out.text = text;
  out.finish = finish;
  return out;
}

inline server::openai::AnswerEvent with_logprobs(server::openai::AnswerEvent event, double chosen,
                                                 std::vector<sampling::TokenLogprob> top = {}) {
  event.logprobs = sampling::Logprobs{chosen, std::move(top)};
  return event;
}

inline server::openai::AnswerContext small_context() {
  server::openai::AnswerContext out;
  out.id = "1";
  out.model = "m";
  out.created_unix_s = 1700000000;
  out.tokenizer = small_tokenizer();
  out.id_seed = 5;
  return out;
}

}  // namespace trine::testing
