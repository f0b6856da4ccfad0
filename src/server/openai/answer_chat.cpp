// /v1/chat/completions.
#include "server/openai/answer_base.h"
#include "server/openai/prompt.h"

namespace trine::server::openai {

namespace {

constexpr std::string_view kPrefix = "chatcmpl-";
constexpr std::string_view kChunk = "chat.completion.chunk";

class ChatAnswer final : public AnswerBase {
 public:
  ChatAnswer(const ChatRequest& request, AnswerContext context)
      : AnswerBase(request, std::move(context), 1),
        wants_logprobs_(request.logprobs),
        parallel_(request.tools.parallel) {
    const ToolChoice choice = request.tools.choice;
    const bool forced = choice == ToolChoice::kRequired || choice == ToolChoice::kNamed;
    if (request.echo) {
      continued_ = final_text(*request.conversation.messages);
    }
    for (std::int32_t i = 0; i < num_choices(); ++i) {
      Choice& made = choices_.emplace_back();
      made.content = continued_;
      if (choice != ToolChoice::kNone) {
        made.parser.emplace(context_.tool_family, forced);
      }
    }
  }

  void begin(std::vector<SseEvent>& out) override {
    for (std::int32_t i = 0; i < num_choices(); ++i) {
      Json delta;
      delta["role"] = "assistant";
      delta["content"] = continued_;
      emit(i, std::move(delta), std::nullopt, out, i == 0);
    }
  }

  std::string body() const override {
    Json choices = Json::array();
    for (const Choice& choice : choices_) {
      Json message;
      message["role"] = "assistant";
      message["content"] = choice.content;
      message["refusal"] = nullptr;
      if (!choice.calls.empty()) {
        message["tool_calls"] = choice.calls;
        if (choice.content.empty()) {
          message["content"] = nullptr;
        }
      }
      Json one;
      one["index"] = choices.size();
      one["message"] = std::move(message);
      one["logprobs"] = nullptr;
      if (wants_logprobs_) {
        one["logprobs"] = Json{{"content", choice.logprobs}, {"refusal", nullptr}};
      }
      one["finish_reason"] = finish_of(choice);
      if (!choice.matched.empty()) {
        one["stop_reason"] = choice.matched;
      }
      if (request_.return_token_ids) {
        one["token_ids"] = choice.ids;
      }
      choices.push_back(std::move(one));
    }
    Json out = head(kPrefix, "chat.completion");
    out["choices"] = std::move(choices);
    out["usage"] = usage_json();
    if (request_.metadata != nullptr) {
      out["metadata"] = *request_.metadata;
    }
    if (request_.return_token_ids) {
      out["prompt_token_ids"] = prompts_.front().tokens;
    }
    add_warnings(out);
    return dump(out);
  }

 private:
  struct Choice {
    std::string content;
    Json calls = Json::array();
    Json logprobs = Json::array();  // of a stream: what is not sent yet
    std::vector<std::int32_t> ids;  // the same
    std::optional<ToolCallParser> parser;
    std::optional<FinishReason> finish;
    std::string matched;
  };

  static std::string_view finish_of(const Choice& choice) {
    if (choice.finish == FinishReason::kStop && !choice.calls.empty()) {
      return "tool_calls";
    }
    return finish_name(choice.finish.value_or(FinishReason::kStop));
  }

  // A chunk of one choice, with the log-probabilities and ids that wait for one.
  void emit(std::int32_t index, Json delta, std::optional<std::string_view> finish,
            std::vector<SseEvent>& out, bool first = false) {
    Choice& choice = choices_[static_cast<std::size_t>(index)];
    Json one;
    one["index"] = index;
    one["delta"] = std::move(delta);
    one["logprobs"] = nullptr;
    if (wants_logprobs_ && !choice.logprobs.empty()) {
      Json logprobs;
      logprobs["content"] = std::exchange(choice.logprobs, Json::array());
      logprobs["refusal"] = nullptr;
      one["logprobs"] = std::move(logprobs);
    }
    one["finish_reason"] = nullptr;
    if (finish) {
      one["finish_reason"] = *finish;
      if (!choice.matched.empty()) {
        one["stop_reason"] = choice.matched;
      }
    }
    if (request_.return_token_ids) {
      one["token_ids"] = std::exchange(choice.ids, {});
    }
    Json event = chunk(kPrefix, kChunk, Json::array({one}));
    if (first && request_.return_token_ids) {
      event["prompt_token_ids"] = prompts_.front().tokens;
    }
    out.push_back({.name = "", .data = dump(event)});
  }

  void add_content(std::int32_t index, const std::string& text, std::vector<SseEvent>& out) {
    if (text.empty()) {
      return;
    }
    if (request_.stream) {
      Json delta;
      delta["content"] = text;
      emit(index, std::move(delta), std::nullopt, out);
    } else {
      choices_[static_cast<std::size_t>(index)].content += text;
    }
  }

  void add_call_part(std::int32_t index, const ToolDelta& part, std::vector<SseEvent>& out) {
    Choice& choice = choices_[static_cast<std::size_t>(index)];
    if (part.kind == ToolDelta::Kind::kCallEnd || (!parallel_ && part.call > 0)) {
      return;
    }
    const bool begins = part.kind == ToolDelta::Kind::kCallBegin;
    if (begins) {
      Json call;
      call["id"] = new_id("call_");
      call["type"] = "function";
      call["function"]["name"] = part.text;
      call["function"]["arguments"] = "";
      choice.calls.push_back(std::move(call));
    } else {
      auto& arguments = choice.calls.back()["function"]["arguments"].get_ref<std::string&>();
      arguments += part.text;
    }
    if (!request_.stream) {
      return;
    }
    Json call;
    call["index"] = part.call;
    if (begins) {
      call.update(choice.calls.back());
    } else {
      call["function"]["arguments"] = part.text;
    }
    Json delta;
    delta["tool_calls"] = Json::array({call});
    emit(index, std::move(delta), std::nullopt, out);
  }

  void take(std::int32_t index, const AnswerEvent& event, std::vector<SseEvent>& out) override {
    Choice& choice = choices_[static_cast<std::size_t>(index)];
    if (event.token >= 0) {
      choice.ids.push_back(event.token);
      if (wants_logprobs_ && event.logprobs) {
        choice.logprobs.push_back(chat_logprob(texts_, event.token, *event.logprobs));
      }
    }
    const std::size_t before = out.size();
    if (choice.parser) {
      std::vector<ToolDelta> parts;
      choice.parser->push(event.text, parts);
      if (event.finish) {
        choice.parser->finish(parts);
      }
      for (const ToolDelta& part : parts) {
        if (part.kind == ToolDelta::Kind::kContent) {
          add_content(index, part.text, out);
        } else {
          add_call_part(index, part, out);
        }
      }
    } else {
      add_content(index, event.text, out);
    }
    choice.finish = event.finish;
    choice.matched = event.matched_stop;
    if (!request_.stream) {
      return;
    }
    if (event.finish) {
      emit(index, Json::object(), finish_of(choice), out);
    } else if (out.size() == before && !choice.logprobs.empty()) {
      // A token whose text is held back is told at once.
      Json delta;
      delta["content"] = "";
      emit(index, std::move(delta), std::nullopt, out);
    }
  }

  void close(std::vector<SseEvent>& out) override {
    if (!request_.stream) {
      return;
    }
    if (request_.include_usage) {
      Json last = chunk(kPrefix, kChunk, Json::array());
      last["usage"] = usage_json();
      out.push_back({.name = "", .data = dump(last)});
    }
    out.push_back({.name = "", .data = "[DONE]"});
  }

  bool wants_logprobs_;
  bool parallel_;
  std::string continued_;
  std::vector<Choice> choices_;
};

}  // namespace

std::unique_ptr<Answer> make_answer(const ChatRequest& request, AnswerContext context) {
  return std::make_unique<ChatAnswer>(request, std::move(context));
}

}  // namespace trine::server::openai
