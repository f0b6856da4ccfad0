#include "eval/windows.h"

#include <algorithm>

#include "base/check.h"
#include "hub/files.h"

namespace trine::eval {
namespace {

constexpr std::int32_t kDefaultContext = 2048;
constexpr std::size_t kShownHash = 16;  // hex digits: enough to tell texts apart

std::int32_t bos_rows(const WindowPlan& plan) {
  return plan.bos ? 1 : 0;
}

}  // namespace

Result<TokenText> join_documents(const std::vector<std::vector<std::int32_t>>& documents,
                                 const text::Tokenizer& tokenizer, std::int32_t num_rows) {
  TokenText out;
  out.num_ids = std::min(tokenizer.vocab_size(), num_rows);
  // What the tokenizer makes of an empty text tells whether it adds a begin token.
  TRINE_TRY_ASSIGN(const std::vector<std::int32_t> empty,
                   tokenizer.encode("", text::EncodeOptions{}));
  if (!empty.empty() && tokenizer.bos().has_value() && empty.front() == *tokenizer.bos()) {
    out.bos = empty.front();
  }
  for (const std::vector<std::int32_t>& ids : documents) {
    const auto past =
        std::find_if(ids.begin(), ids.end(), [&](std::int32_t id) { return id >= out.num_ids; });
    if (past != ids.end()) {
      return fail(ErrorCode::kCorruptData, "token {} of the text is past the model's {} rows",
                  *past, num_rows);
    }
    if (ids.empty()) {
      continue;
    }
    if (!out.tokens.empty() && out.bos.has_value()) {
      out.tokens.push_back(*out.bos);
    }
    out.tokens.insert(out.tokens.end(), ids.begin(), ids.end());
    ++out.documents;
  }
  if (out.tokens.empty()) {
    return fail(ErrorCode::kInvalidArgument, "the text has no tokens");
  }
  hub::Sha256 hash;
  hash.update({reinterpret_cast<const char*>(out.tokens.data()), out.tokens.size() * 4});
  out.hash = hash.finish();
  return out;
}

std::int64_t WindowPlan::num_scored() const {
  std::int64_t out = 0;
  for (const Window& w : windows) {
    out += w.length - w.score_from;
  }
  return out;
}

Result<WindowPlan> plan_windows(const TokenText& text, std::int32_t context,
                                std::int32_t model_context, std::int32_t stride,
                                std::int64_t max_windows) {
  constexpr std::int32_t kShortest = 4;  // rows of which a second half can be told
  WindowPlan out;
  out.bos = text.bos.has_value();
  const auto num_tokens = static_cast<std::int64_t>(text.tokens.size());
  // The last token is only predicted: a text of n tokens gives n - 1 rows, and the begin token's.
  const std::int64_t rows = num_tokens - 1 + bos_rows(out);
  out.context = context > 0 ? context
                            : static_cast<std::int32_t>(
                                  std::min<std::int64_t>({kDefaultContext, model_context, rows}));
  out.stride = stride;
  if (out.context > model_context) {
    return fail(ErrorCode::kInvalidArgument, "windows of {} tokens, the model's context is {}",
                out.context, model_context);
  }
  if (out.context < kShortest || rows < out.context) {
    return fail(ErrorCode::kInvalidArgument,
                "the text has {} tokens, a window of {} tokens needs {} and at least {}; give a "
                "longer text or a smaller --ctx",
                num_tokens, out.context, out.context + 1 - bos_rows(out), kShortest);
  }
  if (stride > out.context - bos_rows(out)) {
    return fail(ErrorCode::kInvalidArgument,
                "--stride {} is longer than the {} tokens of a window; some tokens would not be "
                "scored",
                stride, out.context - bos_rows(out));
  }
  const std::int64_t fresh = out.context - bos_rows(out);  // text tokens that a window reads
  const std::int64_t step = stride > 0 ? stride : fresh;
  std::int64_t scored_upto = 0;  // targets before this text position have been scored
  for (std::int64_t first = 0;
       max_windows == 0 || static_cast<std::int64_t>(out.windows.size()) < max_windows;
       first += step) {
    const std::int64_t end = std::min(first + fresh, num_tokens - 1);  // tokens read: [first, end)
    Window w{.first = first, .length = static_cast<std::int32_t>(end - first) + bos_rows(out)};
    if (stride == 0) {
      if (end - first < fresh) {
        break;
      }
      w.score_from = out.context / 2;
    } else {
      // Row r predicts the text's token first + r + 1 - bos_rows.
      w.score_from = static_cast<std::int32_t>(
          std::max<std::int64_t>(0, scored_upto - first - 1 + bos_rows(out)));
      if (w.score_from >= w.length) {
        break;
      }
    }
    scored_upto = end + 1;
    out.windows.push_back(w);
    if (end == num_tokens - 1) {
      break;
    }
  }
  return out;
}

std::vector<std::int32_t> window_tokens(const TokenText& text, const WindowPlan& plan,
                                        const Window& w) {
  std::vector<std::int32_t> out;
  out.reserve(static_cast<std::size_t>(w.length));
  if (plan.bos) {
    out.push_back(*text.bos);
  }
  const auto begin = text.tokens.begin() + w.first;
  out.insert(out.end(), begin, begin + (w.length - bos_rows(plan)));
  return out;
}

std::int32_t target(const TokenText& text, const WindowPlan& plan, const Window& w,
                    std::int32_t row) {
  TRINE_DCHECK(row >= w.score_from && row < w.length);
  return text.tokens[static_cast<std::size_t>(w.first + row + 1 - bos_rows(plan))];
}

std::string protocol(const TokenText& text, const WindowPlan& plan) {
  return fmt::format(
      "context={} stride={} scored={} bos={} tokens={} windows={} documents={} text=sha256:{}",
      plan.context, plan.stride == 0 ? std::string("none") : fmt::format("{}", plan.stride),
      plan.stride == 0 ? "second-half" : "new-tokens", plan.bos ? "yes" : "no", plan.num_scored(),
      plan.windows.size(), text.documents, text.hash.substr(0, kShownHash));
}

Status check_same_vocabulary(const text::Tokenizer& model, const text::Tokenizer& reference,
                             std::string_view reference_name) {
  if (model.vocab_size() != reference.vocab_size()) {
    return fail(ErrorCode::kInvalidArgument,
                "{}: its vocabulary has {} tokens, the model's has {}; models of different "
                "vocabularies cannot be compared token by token",
                reference_name, reference.vocab_size(), model.vocab_size());
  }
  for (std::int32_t id = 0; id < model.vocab_size(); ++id) {
    if (model.piece(id) != reference.piece(id)) {
      return fail(ErrorCode::kInvalidArgument,
                  "{}: token {} is '{}', the model's is '{}'; models of different "
                  "vocabularies cannot be compared token by token",
                  reference_name, id, reference.piece(id), model.piece(id));
    }
  }
  return {};
}

}  // namespace trine::eval
