#include "support/fake_model.h"

#include <cstring>
#include <utility>

#include "base/rng.h"

namespace trine::testing {

namespace {

class FakeWorkspace : public Model::Workspace {
 public:
  std::vector<std::int32_t> history;
};

std::byte* slot(const KvSequence& sequence, std::int32_t position) {
  const KvGeometry& geometry = sequence.pool().geometry();
  return sequence.page_data()[static_cast<std::size_t>(position / kPageTokens)] +
         geometry.key_offset(0, 0) + position % kPageTokens * geometry.element_bytes();
}

}  // namespace

FakeModel::FakeModel(Options options) : options_(std::move(options)) {
  config_.family = "fake";
  config_.vocab_size = options_.vocab_size;
  config_.context_length = options_.context_length;
  config_.num_layers = 1;
  config_.eos_ids = options_.eos_ids;
  if (options_.window > 0) {
    LayerConfig layer;
    layer.window = options_.window;
    config_.layers.push_back(layer);
  }
}

KvGeometry FakeModel::kv_geometry(DType kv_dtype) const {
  return {.num_layers = 1, .num_kv_heads = 1, .head_dim_k = 1, .head_dim_v = 1, .dtype = kv_dtype};
}

std::unique_ptr<Model::Workspace> FakeModel::make_workspace() const {
  auto workspace = std::make_unique<FakeWorkspace>();
  workspace->history.reserve(static_cast<std::size_t>(options_.context_length));
  return workspace;
}

void FakeModel::append_row(std::span<const std::int32_t> history, std::vector<float>& out) const {
  std::uint64_t hash = 0;
  for (const std::int32_t seen : history) {
    hash = (hash ^ static_cast<std::uint64_t>(seen)) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 29;
  }
  const std::size_t row = out.size();
  for (std::int32_t v = 0; v < config_.vocab_size; ++v) {
    const auto block = philox(hash, 0, RngPurpose::kTest, static_cast<std::uint32_t>(v));
    out.push_back(static_cast<float>(4.0 * uniform_open(block, 0)));
  }
  if (options_.script) {
    if (const auto token_wanted = options_.script(history)) {
      out[row + static_cast<std::size_t>(*token_wanted)] = 40.0f;
    }
  }
}

Status FakeModel::forward(ops::Context&, std::span<const Span> spans, Workspace& workspace,
                          std::vector<float>& logits, LayerObserver* observer) const {
  auto& history = static_cast<FakeWorkspace&>(workspace).history;
  logits.clear();
  ++num_steps;
  for (const Span& span : spans) {
    const std::int32_t first = span.sequence->length();
    const auto count = static_cast<std::int32_t>(span.tokens.size());
    num_tokens_run += count;
    if (first + count > config_.context_length) {
      return fail(ErrorCode::kExhausted, "fake: {} tokens, context {}", first + count,
                  config_.context_length);
    }
    history.clear();
    for (std::int32_t position = 0; position < first; ++position) {
      std::uint16_t token = 0;
      std::memcpy(&token, slot(*span.sequence, position), sizeof(token));
      history.push_back(token);
    }
    for (std::int32_t i = 0; i < count; ++i) {
      const auto token = static_cast<std::uint16_t>(span.tokens[static_cast<std::size_t>(i)]);
      std::memcpy(slot(*span.sequence, first + i), &token, sizeof(token));
      history.push_back(token);
      if (span.shown != Span::Shown::kNone && observer != nullptr) {
        std::vector<float> shown;
        if (span.shown == Span::Shown::kLogits) {
          append_row(history, shown);
        }
        const float hidden[] = {static_cast<float>(token), static_cast<float>(history.size())};
        observer->on_rows(static_cast<std::size_t>(&span - spans.data()), i, 1, hidden, shown);
      }
      if (span.logits == Span::Logits::kAll ||
          (span.logits == Span::Logits::kLast && i == count - 1)) {
        append_row(history, logits);
      }
    }
  }
  if (options_.spoil) {
    options_.spoil(spans, logits);
  }
  return {};
}

}  // namespace trine::testing
