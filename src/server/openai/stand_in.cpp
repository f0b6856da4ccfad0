#include <nlohmann/json.hpp>

#include "server/openai/answer.h"

namespace trine::server::openai {
using Json = nlohmann::ordered_json;

AnswerEvent own(const TokenEvent& e, std::int32_t prompt) {
  AnswerEvent o;
  o.prompt = prompt;
  o.answer = e.answer;
  o.token = e.token;
  o.text = std::string(e.text);
  if (e.logprobs != nullptr) {
    o.logprobs = *e.logprobs;
  }
  o.finish = e.finish;
  o.matched_stop = std::string(e.matched_stop);
  if (e.error != nullptr) {
    o.error = *e.error;
  }
  if (e.stats != nullptr) {
    o.stats = *e.stats;
  }
  return o;
}

std::string sse_frame(const SseEvent& e) {
  return "data: " + e.data + "\n\n";
}

std::string_view sse_ping() {
  return ": ping\n\n";
}

namespace {
class Simple final : public Answer {
 public:
  Simple(bool chat, AnswerContext c, bool usage, std::int32_t n, std::size_t prompts)
      : chat_(chat),
        usage_(usage),
        c_(std::move(c)),
        open_(n * static_cast<std::int32_t>(prompts)) {}

  void set_prompt(std::int32_t, std::vector<std::int32_t>, PromptLogprobs) override {}

  void begin(std::vector<SseEvent>&) override {}

  void add(const AnswerEvent& e, std::vector<SseEvent>& out) override {
    text_ += e.text;
    if (e.error) {
      error_ = api_error(*e.error);
    }
    Json ch;
    if (chat_) {
      ch["delta"] = {{"content", e.text}};
    } else {
      ch["text"] = e.text;
    }
    ch["index"] = e.answer;
    ch["finish_reason"] = nullptr;
    if (e.finish) {
      ch["finish_reason"] = finish_reason_name(*e.finish);
      finish_ = finish_reason_name(*e.finish);
      --open_;
    }
    if (e.stats) {
      prompt_ += e.stats->prompt_tokens;
      gen_ += e.stats->generated_tokens;
    }
    Json b;
    b["id"] = c_.id;
    b["model"] = c_.model;
    b["choices"] = Json::array({ch});
    out.push_back({"", b.dump()});
    if (done()) {
      if (usage_) {
        b["choices"] = Json::array();
        b["usage"] = usage();
        out.push_back({"", b.dump()});
      }
      out.push_back({"", "[DONE]"});
    }
  }

  Json usage() const {
    return {
        {"prompt_tokens", prompt_}, {"completion_tokens", gen_}, {"total_tokens", prompt_ + gen_}};
  }

  void fail(const ApiError& e, std::vector<SseEvent>& out) override {
    out.push_back({"", error_body(e)});
    out.push_back({"", "[DONE]"});
    open_ = 0;
  }

  bool done() const override { return open_ == 0; }

  const std::optional<ApiError>& error() const override { return error_; }

  std::string body() const override {
    Json ch;
    if (chat_) {
      ch["message"] = {{"role", "assistant"}, {"content", text_}};
    } else {
      ch["text"] = text_;
    }
    ch["index"] = 0;
    ch["finish_reason"] = finish_;
    Json b;
    b["id"] = c_.id;
    b["model"] = c_.model;
    b["choices"] = Json::array({ch});
    b["usage"] = usage();
    return b.dump();
  }

 private:
  bool chat_;
  bool usage_;
  AnswerContext c_;
  std::int32_t open_;
  std::string text_;
  std::string finish_;
  std::optional<ApiError> error_;
  std::int32_t prompt_ = 0, gen_ = 0;
};
}  // namespace

std::unique_ptr<Answer> make_answer(const CompletionRequest& r, AnswerContext c) {
  return std::make_unique<Simple>(false, std::move(c), r.include_usage, r.generation.n,
                                  r.prompts.size());
}

std::unique_ptr<Answer> make_answer(const ChatRequest& r, AnswerContext c) {
  return std::make_unique<Simple>(true, std::move(c), r.include_usage, r.generation.n, 1);
}

std::unique_ptr<Answer> make_answer(const ResponsesRequest& r, AnswerContext c) {
  return std::make_unique<Simple>(true, std::move(c), r.include_usage, r.generation.n, 1);
}

std::string tokenize_body(const TokenizeRequest&, std::span<const std::int32_t> t, std::int32_t m,
                          const text::Tokenizer&) {
  return Json{
      {"count", t.size()}, {"max_model_len", m}, {"tokens", std::vector<int>(t.begin(), t.end())}}
      .dump();
}

std::string detokenize_body(const DetokenizeRequest&, std::string_view text) {
  return Json{{"prompt", text}}.dump();
}

std::string apply_template_body(const ApplyTemplateRequest&, std::string_view p) {
  return Json{{"prompt", p}}.dump();
}

std::string models_body(std::span<const ModelCard> ms) {
  Json l = Json::array();
  for (auto& m : ms) {
    l.push_back({{"id", m.id}, {"object", "model"}, {"max_model_len", m.max_model_len}});
  }
  return Json{{"object", "list"}, {"data", l}}.dump();
}

std::string model_body(const ModelCard& m) {
  return Json{{"id", m.id}, {"object", "model"}}.dump();
}

std::string tokenizer_info_body(const text::Tokenizer&, std::string_view b, std::string_view e,
                                std::string_view t) {
  return Json{{"bos_token", b}, {"eos_token", e}, {"chat_template", t}}.dump();
}
}  // namespace trine::server::openai
