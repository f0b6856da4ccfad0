// /v1/responses: items with events that are numbered.
#include "server/openai/answer_base.h"

namespace trine::server::openai {

namespace {

class ResponsesAnswer final : public AnswerBase {
 public:
  ResponsesAnswer(const ResponsesRequest& request, AnswerContext context)
      : AnswerBase(request, std::move(context), 1),
        wants_logprobs_(request.logprobs),
        parallel_(request.tools.parallel),
        repeated_(request.repeated) {
    const ToolChoice choice = request.tools.choice;
    const bool forced = choice == ToolChoice::kRequired || choice == ToolChoice::kNamed;
    if (choice != ToolChoice::kNone) {
      parser_.emplace(context_.tool_family, forced);
    }
  }

  void begin(std::vector<SseEvent>& out) override {
    for (const std::string_view type : {"response.created", "response.in_progress"}) {
      Json event;
      event["response"] = response("in_progress");
      emit(type, event, out);
    }
  }

  void fail(const ApiError& error, std::vector<SseEvent>& out) override {
    std::vector<SseEvent> dropped;
    AnswerBase::fail(error, dropped);
    // What was told so far stays part of the response.
    if (message_open_) {
      close_message("incomplete", out);
    } else if (!output_.empty() && output_.back()["status"] == "in_progress") {
      close_item("incomplete", out);
    }
    Json event;
    event["response"] = response("failed");
    event["response"]["error"] = Json{{"code", "server_error"}, {"message", error.message}};
    emit("response.failed", event, out);
  }

  std::string body() const override {
    Json out = response(length_ ? "incomplete" : "completed");
    out["usage"] = usage_items();
    add_warnings(out);
    return dump(out);
  }

 private:
  void emit(std::string_view type, const Json& fields, std::vector<SseEvent>& out) {
    if (!request_.stream) {
      return;
    }
    Json event;
    event["type"] = type;
    event["sequence_number"] = sequence_++;
    for (const auto& [key, value] : fields.items()) {
      event[key] = value;
    }
    out.push_back({.name = std::string(type), .data = dump(event)});
  }

  Json response(std::string_view status) const {
    Json out;
    out["id"] = "resp_" + context_.id;
    out["object"] = "response";
    out["created_at"] = context_.created_unix_s;
    out["status"] = status;
    out["error"] = nullptr;
    out["incomplete_details"] = nullptr;
    if (status == "incomplete") {
      out["incomplete_details"] = Json{{"reason", "max_output_tokens"}};
    }
    out["model"] = context_.model;
    out["output"] = output_;
    out.update(*repeated_);
    out["usage"] = nullptr;
    return out;
  }

  Json usage_items() const {
    const Usage sums = usage();
    Json out;
    out["input_tokens"] = sums.prompt;
    out["input_tokens_details"] = Json{{"cached_tokens", sums.cached}, {"cache_write_tokens", 0}};
    out["output_tokens"] = sums.generated;
    out["output_tokens_details"] = Json{{"reasoning_tokens", 0}};
    out["total_tokens"] = sums.prompt + sums.generated;
    return out;
  }

  // Where an event of the last item happens.
  Json place(bool content) const {
    Json out;
    out["item_id"] = output_.back()["id"];
    out["output_index"] = output_.size() - 1;
    if (content) {
      out["content_index"] = 0;
    }
    return out;
  }

  static Json text_part(std::string_view text, Json logprobs) {
    Json out;
    out["type"] = "output_text";
    out["text"] = text;
    out["annotations"] = Json::array();
    out["logprobs"] = std::move(logprobs);
    return out;
  }

  void open_message(std::vector<SseEvent>& out) {
    Json item;
    item["id"] = new_id("msg_");
    item["type"] = "message";
    item["status"] = "in_progress";
    item["role"] = "assistant";
    item["content"] = Json::array();
    output_.push_back(std::move(item));
    message_open_ = true;
    text_.clear();
    all_logprobs_ = Json::array();
    Json added;
    added["output_index"] = output_.size() - 1;
    added["item"] = output_.back();
    emit("response.output_item.added", added, out);
    Json part = place(true);
    part["part"] = text_part("", Json::array());
    emit("response.content_part.added", part, out);
  }

  void add_text(const std::string& text, std::vector<SseEvent>& out) {
    if (text.empty()) {
      return;
    }
    if (!message_open_) {
      open_message(out);
    }
    text_ += text;
    Json event = place(true);
    event["delta"] = text;
    event["logprobs"] = for_event(take_logprobs());
    emit("response.output_text.delta", event, out);
  }

  // Events have tokens and numbers only; the bytes are in the parts.
  static Json for_event(Json logprobs) {
    for (Json& each : logprobs) {
      each.erase("bytes");
      for (Json& top : each["top_logprobs"]) {
        top.erase("bytes");
      }
    }
    return logprobs;
  }

  Json take_logprobs() {
    for (const Json& each : waiting_logprobs_) {
      all_logprobs_.push_back(each);
    }
    return std::exchange(waiting_logprobs_, Json::array());
  }

  void close_message(std::string_view status, std::vector<SseEvent>& out) {
    if (!message_open_) {
      return;
    }
    message_open_ = false;
    take_logprobs();
    Json done = place(true);
    done["text"] = text_;
    done["logprobs"] = for_event(all_logprobs_);
    emit("response.output_text.done", done, out);
    Json part = place(true);
    part["part"] = text_part(text_, all_logprobs_);
    emit("response.content_part.done", part, out);
    Json& item = output_.back();
    item["content"].push_back(text_part(text_, all_logprobs_));
    close_item(status, out);
  }

  void close_item(std::string_view status, std::vector<SseEvent>& out) {
    output_.back()["status"] = status;
    Json event;
    event["output_index"] = output_.size() - 1;
    event["item"] = output_.back();
    emit("response.output_item.done", event, out);
  }

  void add_call_part(const ToolDelta& part, std::vector<SseEvent>& out) {
    if (!parallel_ && part.call > 0) {
      return;
    }
    if (part.kind == ToolDelta::Kind::kCallBegin) {
      close_message("completed", out);
      Json item;
      item["id"] = new_id("fc_");
      item["type"] = "function_call";
      item["status"] = "in_progress";
      item["call_id"] = new_id("call_");
      item["name"] = part.text;
      item["arguments"] = "";
      output_.push_back(std::move(item));
      Json added;
      added["output_index"] = output_.size() - 1;
      added["item"] = output_.back();
      emit("response.output_item.added", added, out);
    } else if (part.kind == ToolDelta::Kind::kArguments) {
      auto& arguments = output_.back()["arguments"].get_ref<std::string&>();
      arguments += part.text;
      Json event = place(false);
      event["delta"] = part.text;
      emit("response.function_call_arguments.delta", event, out);
    } else {
      Json event = place(false);
      event["arguments"] = output_.back()["arguments"];
      emit("response.function_call_arguments.done", event, out);
      close_item("completed", out);
    }
  }

  void take(std::int32_t /*choice*/, const AnswerEvent& event,
            std::vector<SseEvent>& out) override {
    if (wants_logprobs_ && event.token >= 0 && event.logprobs) {
      waiting_logprobs_.push_back(chat_logprob(texts_, event.token, *event.logprobs));
    }
    if (parser_) {
      std::vector<ToolDelta> parts;
      parser_->push(event.text, parts);
      if (event.finish) {
        parser_->finish(parts);
      }
      for (const ToolDelta& part : parts) {
        if (part.kind == ToolDelta::Kind::kContent) {
          add_text(part.text, out);
        } else {
          add_call_part(part, out);
        }
      }
    } else {
      add_text(event.text, out);
    }
    length_ = event.finish == FinishReason::kLength;
  }

  void close(std::vector<SseEvent>& out) override {
    if (output_.empty()) {
      open_message(out);
    }
    close_message(length_ ? "incomplete" : "completed", out);
    const std::string_view status = length_ ? "incomplete" : "completed";
    Json event;
    event["response"] = response(status);
    event["response"]["usage"] = usage_items();
    add_warnings(event["response"]);
    emit(length_ ? "response.incomplete" : "response.completed", event, out);
  }

  bool wants_logprobs_;
  bool parallel_;
  JsonPtr repeated_;
  std::optional<ToolCallParser> parser_;
  std::int64_t sequence_ = 0;
  Json output_ = Json::array();
  bool message_open_ = false;
  bool length_ = false;
  std::string text_;
  Json waiting_logprobs_ = Json::array();
  Json all_logprobs_ = Json::array();
};

}  // namespace

std::unique_ptr<Answer> make_answer(const ResponsesRequest& request, AnswerContext context) {
  return std::make_unique<ResponsesAnswer>(request, std::move(context));
}

}  // namespace trine::server::openai
