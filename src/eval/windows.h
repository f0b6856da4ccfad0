// Which tokens of a text are scored, and what the model has seen before each of them.
//
// Two perplexities are comparable only when this is the same, so it is spelled out as one line of
// text, the protocol, that stands beside every figure. Thread rule: values and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "engine/bundle.h"

namespace trine::eval {

// A text as one row of tokens.
struct TokenText {
  std::vector<std::int32_t> tokens;  // without the begin token that windows get
  std::optional<std::int32_t> bos;   // what the tokenizer puts before a text, if it does
  std::int32_t num_ids = 0;          // ids of tokenizer and model both; rows past it are padding
  std::int64_t documents = 0;
  std::string hash;  // SHA-256 of the tokens, lower-case hex
};

// Documents one after the other, each but the first behind the begin token where the tokenizer puts
// one before a text. `num_rows` is the least vocabulary of the models that will read it. Errors:
// invalid_argument for no tokens at all; corrupt_data for a token past the models' rows.
Result<TokenText> join_documents(const std::vector<std::vector<std::int32_t>>& documents,
                                 const text::Tokenizer& tokenizer, std::int32_t num_rows);

struct Window {
  std::int64_t first = 0;   // of the text's tokens
  std::int32_t length = 0;  // rows the model computes, the begin token among them
  // Rows [score_from, length) are scored by the token that follows each in the text; the rows
  // before are context only.
  std::int32_t score_from = 0;
};

struct WindowPlan {
  std::int32_t context = 0;
  std::int32_t stride = 0;  // 0: no overlap, the second half of each window is scored
  bool bos = false;
  std::vector<Window> windows;

  std::int64_t num_scored() const;
};

// With stride 0, windows of `context` rows stand side by side and the second half of each is
// scored, as llama.cpp does it; what is left at the end is not looked at. With a stride, windows
// begin every so many tokens and score what no earlier one did, up to the text's end, as in the
// Hugging Face guide. context 0: 2048, the model's or the text's, whatever is least. At most
// `max_windows` windows (0: all). Errors: invalid_argument with both numbers when the text is too
// short or the stride is longer than the context.
Result<WindowPlan> plan_windows(const TokenText& text, std::int32_t context,
                                std::int32_t model_context, std::int32_t stride,
                                std::int64_t max_windows);

// The tokens that window `w` gives to the model, and those that its scored rows are to predict.
std::vector<std::int32_t> window_tokens(const TokenText& text, const WindowPlan& plan,
                                        const Window& w);
std::int32_t target(const TokenText& text, const WindowPlan& plan, const Window& w,
                    std::int32_t row);

// "context=2048 stride=none scored=second-half bos=yes tokens=12288 windows=12 documents=1
// text=sha256:0123456789abcdef": all that decides which rows are scored.
std::string protocol(const TokenText& text, const WindowPlan& plan);

// Refuses models that do not share their vocabulary, naming the first token that differs.
Status check_same_vocabulary(const text::Tokenizer& model, const text::Tokenizer& reference,
                             std::string_view reference_name);

}  // namespace trine::eval
