#include "server/openai/answer.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "sched/scheduler.h"
#include "server/openai/parse.h"
#include "support/answer_events.h"

namespace trine::server::openai {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::ElementsAre;
using testing::event;
using testing::small_context;
using testing::with_logprobs;

Json json(const std::string& text) {
  Json out = Json::parse(text, nullptr, false);
  EXPECT_FALSE(out.is_discarded()) << text;
  return out;
}

// The events of a whole stream: data as JSON, but for [DONE].
std::vector<Json> stream(Answer& answer, const std::vector<AnswerEvent>& events,
                         std::vector<std::string>* names = nullptr) {
  std::vector<SseEvent> out;
  answer.begin(out);
  for (const AnswerEvent& each : events) {
    answer.add(each, out);
  }
  std::vector<Json> result;
  for (const SseEvent& each : out) {
    result.push_back(each.data == "[DONE]" ? Json("[DONE]") : json(each.data));
    if (names != nullptr) {
      names->push_back(each.name);
    }
  }
  return result;
}

Json whole(Answer& answer, const std::vector<AnswerEvent>& events) {
  std::vector<SseEvent> out;
  for (const AnswerEvent& each : events) {
    EXPECT_FALSE(answer.done());
    answer.add(each, out);
  }
  EXPECT_TRUE(out.empty());
  EXPECT_TRUE(answer.done());
  EXPECT_FALSE(answer.error().has_value());
  return json(answer.body());
}

constexpr std::string_view kMessages = R"("messages": [{"role": "user", "content": "Hi"}])";

std::unique_ptr<Answer> chat(std::string_view more, AnswerContext context = small_context()) {
  const auto request = parse_chat(fmt::format("{{{}{}}}", kMessages, more), {});
  EXPECT_TRUE(request.has_value()) << (request.has_value() ? "" : request.error().message);
  auto out = make_answer(*request, std::move(context));
  out->set_prompt(0, {0, 1, 5});
  return out;
}

std::unique_ptr<Answer> completion(std::string_view body) {
  const auto request = parse_completion(body, {});
  EXPECT_TRUE(request.has_value()) << (request.has_value() ? "" : request.error().message);
  return make_answer(*request, small_context());
}

TEST(ChatAnswer, Whole) {
  const auto answer = chat(R"(, "user": "u", "metadata": {"k": "v"})");
  AnswerEvent last = event(4, "", FinishReason::kStop);
  last.stats = RequestStats{};
  last.stats->cached_tokens = 2;
  const Json body = whole(*answer, {event(0, "a"), event(1, " b"), last});
  EXPECT_EQ(body["id"], "chatcmpl-1");
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_EQ(body["choices"].dump(),
            R"([{"index":0,"message":{"role":"assistant","content":"a b","refusal":null},)"
            R"("logprobs":null,"finish_reason":"stop"}])");
  EXPECT_EQ(body["usage"].dump(), R"({"prompt_tokens":3,"completion_tokens":3,"total_tokens":6,)"
                                  R"("prompt_tokens_details":{"cached_tokens":2}})");
  EXPECT_EQ(body["metadata"]["k"], "v");
  EXPECT_EQ(body["warnings"].size(), 1u);
}

TEST(ChatAnswer, Stream) {
  const auto answer =
      chat(R"(, "stream": true, "stream_options": {"include_usage": true}, "stop": "x")");
  AnswerEvent last = event(5, "", FinishReason::kStop);
  last.matched_stop = "x";
  const auto chunks = stream(*answer, {event(0, "a"), event(1, ""), last});
  ASSERT_EQ(chunks.size(), 5u);
  EXPECT_EQ(chunks[0]["choices"].dump(),
            R"([{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,)"
            R"("finish_reason":null}])");
  EXPECT_EQ(chunks[0]["object"], "chat.completion.chunk");
  EXPECT_TRUE(chunks[0]["usage"].is_null());
  EXPECT_EQ(chunks[1]["choices"][0]["delta"].dump(), R"({"content":"a"})");
  EXPECT_EQ(chunks[2]["choices"].dump(),
            R"([{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop","stop_reason":"x"}])");
  EXPECT_EQ(chunks[3]["choices"].dump(), "[]");
  EXPECT_EQ(chunks[3]["usage"]["total_tokens"], 6);
  EXPECT_EQ(chunks[4], "[DONE]");
}

TEST(ChatAnswer, LogprobsAndBytes) {
  const std::vector<AnswerEvent> events = {
      with_logprobs(event(2, ""), -0.5, {{2, -0.5}, {0, -std::numeric_limits<double>::infinity()}}),
      with_logprobs(event(3, "é"), -0.25), with_logprobs(event(4, "", FinishReason::kStop), -1.0)};
  const Json body = whole(*chat(R"(, "logprobs": true, "top_logprobs": 2)"), events);
  EXPECT_EQ(
      body["choices"][0]["logprobs"].dump(),
      R"({"content":[{"token":"\\xc3","logprob":-0.5,"bytes":[195],"top_logprobs":[)"
      R"({"token":"\\xc3","logprob":-0.5,"bytes":[195]},)"
      R"({"token":"a","logprob":-9999.0,"bytes":[97]}]},)"
      R"({"token":"\\xa9","logprob":-0.25,"bytes":[169],"top_logprobs":[]},)"
      R"({"token":"<s>","logprob":-1.0,"bytes":[60,115,62],"top_logprobs":[]}],"refusal":null})");
  // A stream tells the same tokens, also the one whose text is held back.
  Json told = Json::array();
  const auto chunks =
      stream(*chat(R"(, "logprobs": true, "top_logprobs": 2, "stream": true)"), events);
  EXPECT_EQ(chunks[1]["choices"][0]["delta"].dump(), R"({"content":""})");
  for (const Json& chunk : chunks) {
    if (chunk.is_object() && chunk["choices"][0]["logprobs"].is_object()) {
      for (const Json& each : chunk["choices"][0]["logprobs"]["content"]) {
        told.push_back(each);
      }
    }
  }
  EXPECT_EQ(told, body["choices"][0]["logprobs"]["content"]);
  const Json ids =
      whole(*chat(R"(, "logprobs": true, "return_tokens_as_token_ids": true)"), events);
  EXPECT_EQ(ids["choices"][0]["logprobs"]["content"][0]["token"], "token_id:2");
}

TEST(ChatAnswer, ChoicesMayComeInAnyOrder) {
  const auto of = [](std::int32_t answer, AnswerEvent event) {
    event.answer = answer;
    return event;
  };
  const Json body = whole(*chat(R"(, "n": 2)"), {of(1, event(0, "a")), of(0, event(5, "c")),
                                                 of(1, event(1, " b", FinishReason::kLength)),
                                                 of(0, event(4, "", FinishReason::kStop))});
  EXPECT_EQ(body["choices"][0]["message"]["content"], "c");
  EXPECT_EQ(body["choices"][1]["message"]["content"], "a b");
  EXPECT_EQ(body["choices"][1]["finish_reason"], "length");
}

constexpr std::string_view kTool =
    R"(, "tools": [{"type": "function", "function": {"name": "f"}}])";

std::vector<AnswerEvent> call_events() {
  std::vector<AnswerEvent> out;
  const std::string text = R"(Ok <tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>)"
                           R"(<tool_call>{"name": "f", "arguments": {}}</tool_call>)";
  for (std::size_t i = 0; i < text.size(); i += 3) {
    out.push_back(event(0, text.substr(i, 3)));
  }
  out.push_back(event(4, "", FinishReason::kStop));
  return out;
}

AnswerContext hermes() {
  AnswerContext out = small_context();
  out.tool_family = ToolFamily::kHermes;
  return out;
}

TEST(ChatAnswer, ToolCallsWholeAndStreamed) {
  const Json body = whole(*chat(kTool, hermes()), call_events());
  const Json& message = body["choices"][0]["message"];
  EXPECT_EQ(message["content"], "Ok");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "tool_calls");
  ASSERT_EQ(message["tool_calls"].size(), 2u);
  EXPECT_EQ(message["tool_calls"][0]["function"].dump(),
            R"({"name":"f","arguments":"{\"x\": 1}"})");
  EXPECT_NE(message["tool_calls"][0]["id"], message["tool_calls"][1]["id"]);
  // A client that adds the deltas up has the same calls.
  Json calls = Json::array();
  std::string content;
  for (const Json& chunk :
       stream(*chat(std::string(kTool) + R"(, "stream": true)", hermes()), call_events())) {
    if (!chunk.is_object()) {
      continue;
    }
    const Json& delta = chunk["choices"][0]["delta"];
    content += delta.value("content", "");
    for (const Json& part : delta.value("tool_calls", Json::array())) {
      const auto index = part["index"].get<std::size_t>();
      if (part.contains("id")) {
        ASSERT_EQ(index, calls.size());
        calls.push_back(part);
        calls.back().erase("index");
      } else {
        auto& arguments = calls[index]["function"]["arguments"].get_ref<std::string&>();
        arguments += part["function"]["arguments"].get<std::string>();
      }
    }
  }
  EXPECT_EQ(content, "Ok");
  EXPECT_EQ(calls, message["tool_calls"]);
  const Json one = whole(*chat(std::string(kTool) + R"(, "parallel_tool_calls": false)", hermes()),
                         call_events());
  EXPECT_EQ(one["choices"][0]["message"]["tool_calls"].size(), 1u);
}

TEST(ChatAnswer, ForcedCallsBeginInside) {
  const auto answer = chat(std::string(kTool) + R"(, "tool_choice": "required")", hermes());
  const Json body = whole(
      *answer, {event(0, R"({"name": "f", "arguments": {}})"), event(4, "", FinishReason::kStop)});
  EXPECT_TRUE(body["choices"][0]["message"]["content"].is_null());
  EXPECT_EQ(body["choices"][0]["message"]["tool_calls"].size(), 1u);
}

TEST(ChatAnswer, EchoOfTheContinuedMessage) {
  const auto answer = chat(R"(, "continue_final_message": true, "echo": true)");
  const Json body = whole(*answer, {event(0, " there", FinishReason::kLength)});
  EXPECT_EQ(body["choices"][0]["message"]["content"], "Hi there");
}

TEST(Answers, ErrorsEndThem) {
  AnswerEvent broken = event(-1, "", FinishReason::kError);
  broken.error = Error{ErrorCode::kInternal, "logits are not finite"};
  const auto answer = chat("");
  std::vector<SseEvent> out;
  answer->add(event(0, "a"), out);
  answer->add(broken, out);
  EXPECT_TRUE(answer->done());
  ASSERT_TRUE(answer->error().has_value());
  EXPECT_EQ(answer->error()->status, 500);
  EXPECT_TRUE(out.empty());
  const auto streamed = chat(R"(, "stream": true)");
  const auto chunks = stream(*streamed, {event(0, "a"), broken});
  ASSERT_EQ(chunks.size(), 4u);
  EXPECT_EQ(chunks[2]["error"]["message"], "logits are not finite");
  EXPECT_EQ(chunks[3], "[DONE]");
  EXPECT_EQ(streamed->error()->status, 500);
}

TEST(CompletionAnswer, EchoWithLogprobsAsEvaluationsReadIt) {
  const auto answer =
      completion(R"({"prompt": [[4, 0, 2, 3]], "max_tokens": 1, "echo": true, "logprobs": 1})");
  std::vector<sampling::Logprobs> prompt(4);
  prompt[1] = {-0.5, {{0, -0.5}}};
  prompt[2] = {-2.0, {{0, -0.125}}};
  prompt[3] = {-0.75, {{3, -0.75}}};
  answer->set_prompt(0, {4, 0, 2, 3});
  AnswerEvent first = with_logprobs(event(1, " b", FinishReason::kLength), -1.5, {{1, -1.5}});
  first.prompt_logprobs = prompt;
  const Json body = whole(*answer, {first});
  const Json& choice = body["choices"][0];
  EXPECT_EQ(choice["text"], "aé b");
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_EQ(choice["logprobs"].dump(),
            R"({"tokens":["<s>","a","bytes:\\xc3","bytes:\\xa9"," b"],)"
            R"("token_logprobs":[null,-0.5,-2.0,-0.75,-1.5],)"
            R"("top_logprobs":[null,{"a":-0.5},{"a":-0.125,"bytes:\\xc3":-2.0},)"
            R"({"bytes:\\xa9":-0.75},{" b":-1.5}],"text_offset":[0,0,1,1,2]})");
  EXPECT_EQ(body["usage"]["prompt_tokens"], 4);
}

TEST(CompletionAnswer, SeveralPromptsAndAnswers) {
  const auto answer = completion(R"({"prompt": ["a", "c"], "n": 2})");
  answer->set_prompt(0, {0});
  answer->set_prompt(1, {5});
  std::vector<AnswerEvent> events;
  for (const std::int32_t prompt : {1, 0}) {
    for (const std::int32_t n : {1, 0}) {
      AnswerEvent e = event(0, fmt::format("{}{}", prompt, n), FinishReason::kLength);
      e.prompt = prompt;
      e.answer = n;
      events.push_back(e);
    }
  }
  const Json body = whole(*answer, events);
  ASSERT_EQ(body["choices"].size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(body["choices"][i]["index"], i);
    EXPECT_EQ(body["choices"][i]["text"], fmt::format("{}{}", i / 2, i % 2));
  }
  EXPECT_EQ(body["usage"].dump(), R"({"prompt_tokens":2,"completion_tokens":4,"total_tokens":6,)"
                                  R"("prompt_tokens_details":{"cached_tokens":0}})");
}

TEST(Answers, StreamsGiveTheIdsOfThePromptToo) {
  const auto talk = chat(R"(, "stream": true, "return_token_ids": true)");
  const std::vector<Json> chunks =
      stream(*talk, {event(3, "a"), event(4, "b", FinishReason::kLength)});
  ASSERT_GE(chunks.size(), 3U);
  EXPECT_EQ(chunks[0]["prompt_token_ids"], Json({0, 1, 5}));
  EXPECT_FALSE(chunks[1].contains("prompt_token_ids"));

  const auto answer =
      completion(R"({"prompt": ["a", "b"], "stream": true, "return_token_ids": true})");
  answer->set_prompt(0, {7});
  answer->set_prompt(1, {8, 9});
  const auto of_second = [](AnswerEvent one) {
    one.prompt = 1;
    return one;
  };
  const std::vector<Json> parts =
      stream(*answer, {of_second(event(3, "a")), event(4, "b"), of_second(event(3, "c"))});
  ASSERT_GE(parts.size(), 3U);
  EXPECT_EQ(parts[0]["choices"][0]["prompt_token_ids"], Json({8, 9}));
  EXPECT_EQ(parts[1]["choices"][0]["prompt_token_ids"], Json({7}));
  EXPECT_FALSE(parts[2]["choices"][0].contains("prompt_token_ids"));
}

TEST(CompletionAnswer, BestOfGivesTheLikeliest) {
  const auto answer = completion(R"({"prompt": "a", "best_of": 3, "n": 2})");
  answer->set_prompt(0, {0});
  std::vector<AnswerEvent> events;
  const double means[] = {-3.0, -1.0, -2.0};
  for (std::int32_t n = 0; n < 3; ++n) {
    AnswerEvent e = with_logprobs(event(0, std::to_string(n), FinishReason::kLength), means[n]);
    e.answer = n;
    events.push_back(e);
  }
  const Json body = whole(*answer, events);
  ASSERT_EQ(body["choices"].size(), 2u);
  EXPECT_EQ(body["choices"][0]["text"], "1");
  EXPECT_EQ(body["choices"][1]["text"], "2");
  EXPECT_TRUE(body["choices"][0]["logprobs"].is_null());
  EXPECT_EQ(body["usage"]["completion_tokens"], 3);
}

TEST(CompletionAnswer, PromptOnly) {
  const auto answer = completion(R"({"prompt": "ac", "max_tokens": 0, "echo": true})");
  answer->set_prompt(0, {0, 5});
  const Json body = whole(*answer, {event(-1, "", FinishReason::kLength)});
  EXPECT_EQ(body["choices"][0]["text"], "ac");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(body["usage"]["completion_tokens"], 0);
}

TEST(CompletionAnswer, Stream) {
  const auto answer = completion(
      R"({"prompt": "a", "echo": true, "stream": true, "logprobs": 0,
          "stream_options": {"continuous_usage_stats": true}})");
  answer->set_prompt(0, {0});
  AnswerEvent first = with_logprobs(event(2, ""), -1.0);
  first.prompt_logprobs.resize(1);
  const auto chunks =
      stream(*answer, {first, with_logprobs(event(3, "é", FinishReason::kLength), -2.0)});
  ASSERT_EQ(chunks.size(), 5u);
  EXPECT_EQ(chunks[0]["choices"][0]["text"], "a");
  EXPECT_EQ(chunks[0]["choices"][0]["logprobs"]["tokens"].dump(), R"(["a"])");
  EXPECT_EQ(chunks[1]["choices"][0]["logprobs"]["text_offset"].dump(), "[1]");
  EXPECT_EQ(chunks[1]["usage"]["completion_tokens"], 1);
  EXPECT_EQ(chunks[2]["choices"][0]["text"], "é");
  EXPECT_EQ(chunks[2]["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(chunks[3]["usage"]["completion_tokens"], 2);
}

std::unique_ptr<Answer> responses(std::string_view more, AnswerContext context = hermes()) {
  const auto request = parse_responses(fmt::format(R"({{"input": "Hi"{}}})", more), {});
  EXPECT_TRUE(request.has_value()) << (request.has_value() ? "" : request.error().message);
  auto out = make_answer(*request, std::move(context));
  out->set_prompt(0, {0});
  return out;
}

constexpr std::string_view kFlatTool = R"(, "tools": [{"type": "function", "name": "f"}])";

TEST(ResponsesAnswer, EventsInOrderWithNumbers) {
  std::vector<std::string> names;
  const auto answer = responses(std::string(kFlatTool) + R"(, "stream": true)");
  const auto events = stream(*answer, call_events(), &names);
  for (std::size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i]["sequence_number"], i);
    EXPECT_EQ(events[i]["type"], names[i]);
  }
  names.erase(std::unique(names.begin(), names.end()), names.end());
  EXPECT_THAT(
      names,
      ElementsAre("response.created", "response.in_progress", "response.output_item.added",
                  "response.content_part.added", "response.output_text.delta",
                  "response.output_text.done", "response.content_part.done",
                  "response.output_item.done", "response.output_item.added",
                  "response.function_call_arguments.delta", "response.function_call_arguments.done",
                  "response.output_item.done", "response.output_item.added",
                  "response.function_call_arguments.delta", "response.function_call_arguments.done",
                  "response.output_item.done", "response.completed"));
  // The last event holds what the whole answer is.
  Json last = events.back()["response"];
  const Json body = whole(*responses(kFlatTool), call_events());
  EXPECT_EQ(last, body);
  ASSERT_EQ(body["output"].size(), 3u);
  EXPECT_EQ(body["output"][0]["content"][0]["text"], "Ok");
  EXPECT_EQ(body["output"][1]["arguments"], R"({"x": 1})");
  EXPECT_EQ(body["status"], "completed");
}

TEST(ResponsesAnswer, IncompleteAndFailed) {
  const Json body =
      whole(*responses(R"(, "max_output_tokens": 1)"), {event(0, "a", FinishReason::kLength)});
  EXPECT_EQ(body["status"], "incomplete");
  EXPECT_EQ(body["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(body["output"][0]["status"], "incomplete");
  EXPECT_EQ(body["usage"]["output_tokens"], 1);
  AnswerEvent broken = event(-1, "", FinishReason::kError);
  broken.error = Error{ErrorCode::kUnavailable, "too slow"};
  const auto events = stream(*responses(R"(, "stream": true)"), {broken});
  EXPECT_EQ(events.back()["type"], "response.failed");
  EXPECT_EQ(events.back()["response"]["error"]["message"], "too slow");
  EXPECT_EQ(events.back()["response"]["status"], "failed");
  // What was written before stays, and is marked as broken off.
  const auto late = stream(*responses(R"(, "stream": true)"), {event(0, "a"), broken});
  EXPECT_EQ(late[late.size() - 2]["type"], "response.output_item.done");
  EXPECT_EQ(late.back()["response"]["output"][0]["status"], "incomplete");
  EXPECT_EQ(late.back()["response"]["output"][0]["content"][0]["text"], "a");
}

TEST(ResponsesAnswer, AnEmptyAnswerHasAnEmptyMessage) {
  const Json body = whole(*responses(""), {event(4, "", FinishReason::kStop)});
  ASSERT_EQ(body["output"].size(), 1u);
  EXPECT_EQ(body["output"][0]["content"][0]["text"], "");
}

TEST(SmallBodies, Embeddings) {
  EmbeddingsRequest request;
  const std::vector<std::vector<float>> vectors = {{3.0f, 4.0f}};
  EXPECT_EQ(json(embeddings_body(request, "m", vectors, 3)).dump(),
            R"({"object":"list","data":[{"object":"embedding","index":0,)"
            R"("embedding":[0.6000000238418579,0.800000011920929]}],"model":"m",)"
            R"("usage":{"prompt_tokens":3,"total_tokens":3}})");
  request.base64 = true;
  request.normalize = false;
  // python3: base64.b64encode(struct.pack("<2f", 3, 4))
  EXPECT_EQ(json(embeddings_body(request, "m", vectors, 3))["data"][0]["embedding"],
            "AABAQAAAgEA=");
}

TEST(EmbeddingsAnswer, AVectorForEachInputOrOneError) {
  EmbeddingsRequest request;
  request.inputs.resize(2);
  const auto answer = make_answer(request, testing::small_context());
  answer->set_prompt(0, {0, 1});
  answer->set_prompt(1, {5});
  std::vector<SseEvent> out;
  AnswerEvent event;
  event.finish = FinishReason::kStop;
  event.prompt = 1;
  event.embedding = {0.0f, 2.0f};
  answer->add(event, out);
  EXPECT_FALSE(answer->done());
  event.prompt = 0;
  event.embedding = {-1.0f, 0.0f};
  answer->add(event, out);
  ASSERT_TRUE(answer->done());
  EXPECT_FALSE(answer->error().has_value());
  const Json body = json(answer->body());
  EXPECT_EQ(body["data"][0]["embedding"].dump(), "[-1.0,0.0]");
  EXPECT_EQ(body["data"][1]["embedding"].dump(), "[0.0,1.0]");
  EXPECT_EQ(body["usage"]["prompt_tokens"], 3);

  const auto broken = make_answer(request, testing::small_context());
  event.finish = FinishReason::kError;
  event.error = Error(ErrorCode::kInternal, "not finite");
  broken->add(event, out);
  ASSERT_TRUE(broken->done());
  EXPECT_EQ(broken->error()->status, 500);
  EXPECT_TRUE(out.empty());
}

TEST(SmallBodies, TokensModelsAndFrames) {
  TokenizeRequest request;
  request.with_token_strs = true;
  const auto tokenizer = testing::small_tokenizer();
  const std::vector<std::int32_t> ids = {0, 2};
  EXPECT_EQ(json(tokenize_body(request, ids, 8, *tokenizer)).dump(),
            R"({"count":2,"max_model_len":8,"tokens":[0,2],"token_strs":["a","�"]})");
  const std::vector<ModelCard> cards = {{"m", 1, 8}};
  EXPECT_EQ(json(models_body(cards))["data"][0].dump(),
            R"({"id":"m","object":"model","created":1,"owned_by":"trine","max_model_len":8})");
  EXPECT_EQ(sse_frame({"", "x"}), "data: x\n\n");
  EXPECT_EQ(sse_frame({"n", "x"}), "event: n\ndata: x\n\n");
}

TEST(ApiErrors, StatusAndShape) {
  const std::pair<ErrorCode, int> all[] = {
      {ErrorCode::kInvalidArgument, 400}, {ErrorCode::kCorruptData, 400},
      {ErrorCode::kUnsupported, 400},     {ErrorCode::kNotFound, 404},
      {ErrorCode::kExhausted, 400},       {ErrorCode::kUnavailable, 503},
      {ErrorCode::kCancelled, 499},       {ErrorCode::kInternal, 500}};
  for (const auto& [code, status] : all) {
    EXPECT_EQ(http_status(code), status);
    EXPECT_EQ(api_error(Error{code, "x"}).status, status);
  }
  EXPECT_EQ(
      error_body(bad_field("n", "is 0")),
      R"({"error":{"message":"n is 0","type":"invalid_request_error","param":"n","code":null}})");
  const ApiError full = queue_full({.num_waiting = 2,
                                    .max_waiting = 2,
                                    .waiting_tokens = 9,
                                    .max_waiting_tokens = 10,
                                    .retry_after_s = 1.2});
  EXPECT_EQ(full.status, 429);
  EXPECT_EQ(full.retry_after_s, 2);
  EXPECT_EQ(model_not_found("x").status, 404);
  EXPECT_EQ(model_not_found("x").code, "model_not_found");
}

}  // namespace
}  // namespace trine::server::openai
