// /v1/embeddings: one event for each input, and one body.
#include "server/openai/answer_base.h"

namespace trine::server::openai {

namespace {

class EmbeddingsAnswer final : public Answer {
 public:
  EmbeddingsAnswer(const EmbeddingsRequest& request, AnswerContext context)
      : request_(request),
        model_(std::move(context.model)),
        vectors_(request.inputs.size()),
        open_(request.inputs.size()) {}

  void set_prompt(std::int32_t /*prompt*/, std::vector<std::int32_t> tokens) override {
    prompt_tokens_ += static_cast<std::int64_t>(tokens.size());
  }

  void begin(std::vector<SseEvent>& /*out*/) override {}

  void add(const AnswerEvent& event, std::vector<SseEvent>& /*out*/) override {
    if (done() || !event.finish) {
      return;
    }
    if (event.finish == FinishReason::kError || event.finish == FinishReason::kCancelled) {
      end_with(ended_early(event));
      return;
    }
    vectors_[static_cast<std::size_t>(event.prompt)] = event.embedding;
    --open_;
  }

  void fail(const ApiError& error, std::vector<SseEvent>& /*out*/) override { end_with(error); }

  bool done() const override { return open_ == 0; }

  const std::optional<ApiError>& error() const override { return error_; }

  std::string body() const override {
    return embeddings_body(request_, model_, vectors_, prompt_tokens_);
  }

 private:
  void end_with(const ApiError& error) {
    error_ = error;
    open_ = 0;
  }

  const EmbeddingsRequest request_;
  const std::string model_;
  std::vector<std::vector<float>> vectors_;
  std::size_t open_;  // inputs without a vector
  std::int64_t prompt_tokens_ = 0;
  std::optional<ApiError> error_;
};

}  // namespace

std::unique_ptr<Answer> make_answer(const EmbeddingsRequest& request, AnswerContext context) {
  return std::make_unique<EmbeddingsAnswer>(request, std::move(context));
}

}  // namespace trine::server::openai
