// Prints what the answers of every endpoint look like, one JSON object a line, for
// openai_shapes_test.py, which holds them against the models of OpenAI's own client:
// {"model": name in the test's table, "body": ..}.
#include <cstdio>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "server/openai/parse.h"
#include "support/answer_events.h"

namespace {

using namespace trine;
using namespace trine::server::openai;
using Json = nlohmann::ordered_json;
using testing::event;
using testing::with_logprobs;

void print(std::string_view model, const Json& body) {
  const std::string line = Json{{"model", model}, {"body", body}}.dump();
  std::puts(line.c_str());
}

std::vector<AnswerEvent> text_events(FinishReason finish) {
  AnswerEvent last = with_logprobs(event(1, " b", finish), -0.5, {{1, -0.5}, {0, -1.0}});
  last.stats = RequestStats{};
  last.stats->cached_tokens = 1;
  if (finish == FinishReason::kStop) {
    last.matched_stop = "x";
  }
  return {with_logprobs(event(2, ""), -0.25, {{2, -0.25}}),
          with_logprobs(event(3, "é"), -2.0, {{0, -0.1}}), last};
}

std::vector<AnswerEvent> call_events() {
  return {event(0, R"(Wait. <tool_call>{"name": "f", "argu)"),
          event(0, R"(ments": {"a": 1}}</tool_call>)"),
          event(0, R"(<tool_call>{"name": "f", "arguments": {}}</tool_call>)"),
          event(4, "", FinishReason::kStop)};
}

template <typename Request>
void run(const ApiResult<Request>& request, std::string_view whole, std::string_view chunk,
         const std::vector<AnswerEvent>& events) {
  if (!request.has_value()) {
    std::fprintf(stderr, "%s\n", request.error().message.c_str());
    std::exit(1);
  }
  AnswerContext context = testing::small_context();
  context.tool_family = ToolFamily::kHermes;
  context.system_fingerprint = "trine-test";
  auto answer = make_answer(*request, std::move(context));
  answer->set_prompt(0, {0, 1});
  std::vector<SseEvent> out;
  answer->begin(out);
  for (std::int32_t i = 0; i < request->generation.n; ++i) {
    for (const AnswerEvent& each_in : events) {
      AnswerEvent each = each_in;
      each.answer = i;
      if (i == 0 && &each_in == events.data()) {
        each.prompt_logprobs.resize(2);
      }
      answer->add(each, out);
    }
  }
  if (!request->stream) {
    print(whole, Json::parse(answer->body()));
    return;
  }
  for (const SseEvent& each : out) {
    if (each.data != "[DONE]") {
      print(chunk, Json::parse(each.data));
    }
  }
}

void run_chat() {
  const std::string tools =
      R"(, "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}])";
  for (const std::string stream :
       {"", R"(, "stream": true, "stream_options": {"include_usage": true})"}) {
    const auto parse = [&](const std::string& more) {
      return parse_chat(R"({"messages": [{"role": "user", "content": "Hi"}])" + more + stream + "}",
                        {});
    };
    constexpr std::string_view kWhole = "chat";
    constexpr std::string_view kChunk = "chat_chunk";
    run(parse(""), kWhole, kChunk, text_events(FinishReason::kStop));
    run(parse(R"(, "logprobs": true, "top_logprobs": 2, "n": 2, "user": "u", "metadata": {"k": "v"},
              "return_token_ids": true)"),
        kWhole, kChunk, text_events(FinishReason::kLength));
    run(parse(tools), kWhole, kChunk, call_events());
  }
}

void run_completions() {
  for (const std::string stream :
       {"", R"(, "stream": true, "stream_options": {"include_usage": true})"}) {
    const auto parse = [&](const std::string& more) {
      return parse_completion(R"({"prompt": "a b")" + more + stream + "}", {});
    };
    run(parse(""), "completion", "completion_chunk", text_events(FinishReason::kStop));
    run(parse(R"(, "logprobs": 2, "echo": true, "n": 2)"), "completion", "completion_chunk",
        text_events(FinishReason::kLength));
  }
}

void run_responses() {
  for (const std::string stream : {"", R"(, "stream": true)"}) {
    const auto parse = [&](const std::string& more) {
      return parse_responses(R"({"input": "Hi")" + more + stream + "}", {});
    };
    constexpr std::string_view kWhole = "response";
    constexpr std::string_view kEvent = "response_event";
    run(parse(""), kWhole, kEvent, text_events(FinishReason::kStop));
    run(parse(R"(, "instructions": "Be brief", "max_output_tokens": 3, "top_logprobs": 1,
              "include": ["message.output_text.logprobs"], "metadata": {"k": "v"}, "user": "u",
              "text": {"format": {"type": "json_schema", "name": "n",
                                  "schema": {"type": "object"}}})"),
        kWhole, kEvent, text_events(FinishReason::kLength));
    for (const std::string choice :
         {R"("auto")", R"("none")", R"({"type": "function", "name": "f"})"}) {
      run(parse(R"(, "tools": [{"type": "function", "name": "f", "description": "d",
                "parameters": {"type": "object"}, "strict": true}], "tool_choice": )" +
                choice),
          kWhole, kEvent, call_events());
    }
    AnswerEvent broken = event(-1, "", FinishReason::kError);
    broken.error = Error{ErrorCode::kInternal, "logits are not finite"};
    if (!stream.empty()) {
      run(parse(""), kWhole, kEvent, {event(0, "a"), broken});
    }
  }
}

}  // namespace

int main() {
  run_chat();
  run_completions();
  run_responses();
  EmbeddingsRequest request;
  const std::vector<std::vector<float>> vectors = {{3.0f, 4.0f}, {1.0f, 0.0f}};
  print("embeddings", Json::parse(embeddings_body(request, "m", vectors, 3)));
  request.base64 = true;
  print("embeddings_base64", Json::parse(embeddings_body(request, "m", vectors, 3)));
  const ModelCard card{"m", 1700000000, 4096};
  print("models", Json::parse(models_body(std::vector<ModelCard>{card})));
  print("model", Json::parse(model_body(card)));
  print("error", Json::parse(error_body(bad_field("n", "is 0"))));
  return 0;
}
