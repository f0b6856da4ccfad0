#include "eval/logit_source.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "eval/row_metrics.h"

namespace trine::eval {
namespace {

constexpr std::int32_t kReadStep = 512;  // tokens of a step that wants no logits

std::int32_t pages_for(std::int32_t tokens) {
  return (tokens + kPageTokens - 1) / kPageTokens;
}

}  // namespace

Result<std::unique_ptr<ModelSource>> ModelSource::create(std::shared_ptr<const Model> model,
                                                         ops::Context& ops,
                                                         const Options& options) {
  TRINE_TRY_ASSIGN(auto pool, PagePool::create(model->kv_geometry(options.kv_dtype),
                                               pages_for(options.context)));
  return std::unique_ptr<ModelSource>(
      new ModelSource(std::move(model), ops, options, std::move(pool)));
}

ModelSource::ModelSource(std::shared_ptr<const Model> model, ops::Context& ops,
                         const Options& options, std::unique_ptr<PagePool> pool)
    : model_(std::move(model)),
      ops_(&ops),
      options_(options),
      pool_(std::move(pool)),
      workspace_(model_->make_workspace()),
      sequence_(*pool_) {
  if (options_.prefill != nullptr) {
    prefill_workspace_ = options_.prefill->make_workspace();
  }
}

Status ModelSource::begin(const TokenText& text, const WindowPlan& plan, const Window& window) {
  tokens_ = window_tokens(text, plan, window);
  sequence_.truncate(0);
  if (options_.prefill != nullptr) {
    return read(*options_.prefill, *prefill_workspace_, sequence_, tokens_, window.score_from);
  }
  return read(*model_, *workspace_, sequence_, tokens_, window.score_from);
}

Status ModelSource::next(std::int32_t count, std::vector<float>& logits) {
  const auto tokens = std::span<const std::int32_t>(tokens_).subspan(
      static_cast<std::size_t>(sequence_.length()), static_cast<std::size_t>(count));
  return step(sequence_, tokens, logits);
}

Status ModelSource::read(const Model& model, Model::Workspace& workspace, KvSequence& sequence,
                         std::span<const std::int32_t> tokens, std::int32_t upto) {
  std::vector<float> none;
  while (sequence.length() < upto) {
    const std::int32_t count = std::min(kReadStep, upto - sequence.length());
    TRINE_TRY(sequence.reserve(sequence.length() + count));
    Span span;
    span.sequence = &sequence;
    span.tokens = tokens.subspan(static_cast<std::size_t>(sequence.length()),
                                 static_cast<std::size_t>(count));
    span.logits = Span::Logits::kNone;
    TRINE_TRY(model.forward(*ops_, std::span<const Span>(&span, 1), workspace, none));
    sequence.commit(count);
  }
  return {};
}

Status ModelSource::step(KvSequence& sequence, std::span<const std::int32_t> tokens,
                         std::vector<float>& logits) {
  const auto count = static_cast<std::int32_t>(tokens.size());
  TRINE_TRY(sequence.reserve(sequence.length() + count));
  Span span;
  span.sequence = &sequence;
  span.tokens = tokens;
  span.logits = Span::Logits::kAll;
  TRINE_TRY(model_->forward(*ops_, std::span<const Span>(&span, 1), *workspace_, logits));
  sequence.commit(count);
  drop_padding(logits);
  return {};
}

void ModelSource::drop_padding(std::vector<float>& logits) const {
  const auto columns = static_cast<std::size_t>(model_->config().vocab_size);
  const auto kept = static_cast<std::size_t>(options_.num_ids);
  TRINE_CHECK(kept <= columns && logits.size() % columns == 0);
  const std::size_t rows = logits.size() / columns;
  if (kept == columns) {
    return;
  }
  for (std::size_t r = 1; r < rows; ++r) {
    std::memmove(logits.data() + r * kept, logits.data() + r * columns, kept * sizeof(float));
  }
  logits.resize(rows * kept);
}

Status ModelSource::read_prompt(KvSequence& sequence, std::span<const std::int32_t> prompt) {
  TRINE_CHECK(!prompt.empty());
  const auto upto = static_cast<std::int32_t>(prompt.size()) - 1;
  if (options_.prefill != nullptr) {
    return read(*options_.prefill, *prefill_workspace_, sequence, prompt, upto);
  }
  return read(*model_, *workspace_, sequence, prompt, upto);
}

Result<std::vector<std::vector<std::int32_t>>> ModelSource::continue_greedily(
    const std::vector<std::vector<std::int32_t>>& prompts, std::int32_t num_tokens) {
  // All prompts in one step: decoding is bound by reading the weights.
  std::int32_t pages = 0;
  for (const auto& prompt : prompts) {
    pages += pages_for(static_cast<std::int32_t>(prompt.size()) + num_tokens);
  }
  TRINE_TRY_ASSIGN(const auto pool,
                   PagePool::create(model_->kv_geometry(options_.kv_dtype), pages));
  std::vector<KvSequence> sequences;
  std::vector<std::vector<std::int32_t>> out(prompts.size());
  std::vector<std::int32_t> last(prompts.size());
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    sequences.emplace_back(*pool);
    TRINE_TRY(read_prompt(sequences.back(), prompts[i]));
    last[i] = prompts[i].back();
  }
  std::vector<Span> spans(prompts.size());
  std::vector<float> logits;
  const auto width = static_cast<std::size_t>(options_.num_ids);
  for (std::int32_t t = 0; t < num_tokens && !prompts.empty(); ++t) {
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      TRINE_TRY(sequences[i].reserve(sequences[i].length() + 1));
      spans[i].sequence = &sequences[i];
      spans[i].tokens = std::span<const std::int32_t>(&last[i], 1);
      spans[i].logits = Span::Logits::kLast;
    }
    TRINE_TRY(model_->forward(*ops_, spans, *workspace_, logits));
    drop_padding(logits);
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      sequences[i].commit(1);
      last[i] = best_id(std::span<const float>(logits).subspan(i * width, width));
      out[i].push_back(last[i]);
    }
  }
  return out;
}

Result<std::vector<std::int32_t>> ModelSource::agreement(
    const std::vector<std::vector<std::int32_t>>& prompts,
    const std::vector<std::vector<std::int32_t>>& continuations) {
  TRINE_CHECK(prompts.size() == continuations.size());
  const auto width = static_cast<std::size_t>(options_.num_ids);
  std::vector<std::int32_t> out;
  std::vector<float> logits;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    // Rows of one step equal those of decoding token by token, so one step over what the other
    // model said tells where this one would have left it.
    std::vector<std::int32_t> tokens = {prompts[i].back()};
    tokens.insert(tokens.end(), continuations[i].begin(), continuations[i].end());
    tokens.pop_back();
    sequence_.truncate(0);
    TRINE_TRY(read_prompt(sequence_, prompts[i]));
    TRINE_TRY(step(sequence_, tokens, logits));
    std::int32_t same = 0;
    for (const std::int32_t token : continuations[i]) {
      if (best_id(std::span<const float>(logits).subspan(static_cast<std::size_t>(same) * width,
                                                         width)) != token) {
        break;
      }
      ++same;
    }
    out.push_back(same);
  }
  return out;
}

Status check_shares_cache(const Model& model, const Model& prefill, DType kv_dtype) {
  const KvGeometry a = model.kv_geometry(kv_dtype);
  const KvGeometry b = prefill.kv_geometry(kv_dtype);
  const auto differs = [](std::string_view what, auto prefill_value, auto model_value) {
    return fail(ErrorCode::kInvalidArgument,
                "--prefill: its {} is {}, the model's is {}; a model can go on only with keys and "
                "values of its own shape",
                what, prefill_value, model_value);
  };
  if (a.num_layers != b.num_layers) {
    return differs("number of layers", b.num_layers, a.num_layers);
  }
  if (a.num_kv_heads != b.num_kv_heads) {
    return differs("number of key/value heads", b.num_kv_heads, a.num_kv_heads);
  }
  if (a.head_dim_k != b.head_dim_k || a.head_dim_v != b.head_dim_v) {
    return differs("head width", b.head_dim_k, a.head_dim_k);
  }
  const ModelConfig& mine = model.config();
  const ModelConfig& other = prefill.config();
  if (mine.family != other.family) {
    return differs("family", other.family, mine.family);
  }
  if (mine.vocab_size != other.vocab_size) {
    return differs("number of vocabulary rows", other.vocab_size, mine.vocab_size);
  }
  if (mine.context_length > other.context_length) {
    return differs("context", other.context_length, mine.context_length);
  }
  if (mine.ropes.size() != other.ropes.size()) {
    return differs("number of rotary embeddings", other.ropes.size(), mine.ropes.size());
  }
  for (std::size_t i = 0; i < mine.ropes.size(); ++i) {
    if (rope_inverse_frequencies(mine.ropes[i], mine.context_length) !=
        rope_inverse_frequencies(other.ropes[i], other.context_length)) {
      return differs("rotary base", other.ropes[i].base, mine.ropes[i].base);
    }
  }
  if (mine.rope_layout != other.rope_layout) {
    return differs("order of rotated pairs",
                   other.rope_layout == ops::RopeLayout::kHalf ? "halves" : "neighbours",
                   mine.rope_layout == ops::RopeLayout::kHalf ? "halves" : "neighbours");
  }
  return {};
}

}  // namespace trine::eval
