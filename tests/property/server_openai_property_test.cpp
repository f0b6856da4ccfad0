// Tool calls do not depend on how the text is cut, and a streamed answer adds up to the whole one.
#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <rapidcheck/gtest.h>

#include "server/openai/parse.h"
#include "server/openai/tool_json.h"
#include "support/answer_events.h"
#include "support/tool_call_text.h"

namespace trine::server::openai {
namespace {

using Json = nlohmann::ordered_json;

// Texts made of what calls are made of, whole and broken.
std::string draw_text() {
  static const std::vector<std::string> kPieces = {"<tool_call>",
                                                   "</tool_call>",
                                                   "<tool_",
                                                   "[TOOL_CALLS]",
                                                   "[ARGS]",
                                                   "[CALL_ID]",
                                                   "<|tool_call|>",
                                                   "<|/tool_call|>",
                                                   "functools",
                                                   "<start_function_call>",
                                                   "<end_function_call>",
                                                   "<escape>",
                                                   "call:f{",
                                                   "<|python_tag|>",
                                                   "```json\n",
                                                   "```",
                                                   "{",
                                                   "}",
                                                   "[",
                                                   "]",
                                                   "\"",
                                                   "\\",
                                                   ",",
                                                   ";",
                                                   " ",
                                                   "\n",
                                                   "f",
                                                   "é",
                                                   "😀",
                                                   "name",
                                                   R"({"name": "f", "arguments": {"a": [1, "}"]}})",
                                                   R"({"name": "f", "parameters": {}})",
                                                   R"([{"name": "f", "arguments": {}}])",
                                                   "f[ARGS]{}",
                                                   "call:f{a:<escape>x<escape>}"};
  const auto picks = *rc::gen::container<std::vector<std::size_t>>(
      rc::gen::inRange<std::size_t>(0, kPieces.size()));
  std::string out;
  for (const std::size_t pick : picks) {
    out += kPieces[pick];
  }
  return out;
}

std::vector<std::size_t> draw_cuts(std::size_t size) {
  auto cuts =
      *rc::gen::container<std::vector<std::size_t>>(rc::gen::inRange<std::size_t>(0, size + 1));
  std::sort(cuts.begin(), cuts.end());
  return cuts;
}

RC_GTEST_PROP(ToolCallsProperty, AnyCutGivesTheSame, ()) {
  const auto family = static_cast<ToolFamily>(*rc::gen::inRange(0, 7));
  const bool begun = *rc::gen::arbitrary<bool>();
  const std::string text = draw_text();
  const auto whole = testing::parse_cut(family, text, {}, begun);
  RC_ASSERT(testing::parse_cut(family, text, draw_cuts(text.size()), begun) == whole);
  RC_ASSERT(!whole.calls.empty() || whole.content == text);
  for (const auto& call : whole.calls) {
    RC_ASSERT(call.ended);
    RC_ASSERT(arguments_from_json(call.arguments).has_value());
  }
}

// Adds chunks up as a client does.
Json add_up(const std::vector<SseEvent>& events) {
  std::vector<Json> choices(2, Json{{"content", ""}, {"calls", Json::array()}});
  for (const SseEvent& event : events) {
    if (event.data == "[DONE]") {
      continue;
    }
    const Json chunk = Json::parse(event.data);
    for (const Json& choice : chunk["choices"]) {
      Json& sum = choices[choice["index"].get<std::size_t>()];
      const Json& delta = choice["delta"];
      sum["content"] = sum["content"].get<std::string>() + delta.value("content", "");
      for (const Json& part : delta.value("tool_calls", Json::array())) {
        if (part.contains("id")) {
          sum["calls"].push_back(Json{{"name", part["function"]["name"]}, {"arguments", ""}});
        }
        auto& arguments = sum["calls"].back()["arguments"].get_ref<std::string&>();
        arguments += part["function"].value("arguments", "");
      }
      if (!choice["finish_reason"].is_null()) {
        sum["finish"] = choice["finish_reason"];
      }
    }
  }
  return choices;
}

Json of_body(const Json& body) {
  Json out = Json::array();
  for (const Json& choice : body["choices"]) {
    const Json& message = choice["message"];
    Json sum{{"content", message["content"].is_null() ? Json("") : message["content"]},
             {"calls", Json::array()}};
    for (const Json& call : message.value("tool_calls", Json::array())) {
      sum["calls"].push_back(call["function"]);
    }
    sum["finish"] = choice["finish_reason"];
    out.push_back(std::move(sum));
  }
  return out;
}

RC_GTEST_PROP(AnswerProperty, StreamsAddUpToTheWhole, ()) {
  std::vector<AnswerEvent> events;
  for (std::int32_t answer = 0; answer < 2; ++answer) {
    const std::string text = draw_text();
    std::size_t from = 0;
    for (std::size_t cut : draw_cuts(text.size())) {
      // The engine's pieces end where characters end.
      while (cut < text.size() && (static_cast<unsigned char>(text[cut]) & 0xc0u) == 0x80u) {
        ++cut;
      }
      events.push_back(testing::event(0, text.substr(from, cut - from)));
      events.back().answer = answer;
      from = cut;
    }
    const auto finish = *rc::gen::element<FinishReason>(FinishReason::kStop, FinishReason::kLength);
    events.push_back(testing::event(4, text.substr(from), finish));
    events.back().answer = answer;
  }
  const std::string tools = *rc::gen::element<std::string>(
      "", R"(, "tools": [{"type": "function", "function": {"name": "f"}}])");
  const auto run = [&](std::string_view more, std::vector<SseEvent>& out) {
    const auto request = parse_chat(
        fmt::format(R"({{"messages": [{{"role": "user", "content": "Hi"}}], "n": 2{}{}}})", tools,
                    more),
        {});
    AnswerContext context = testing::small_context();
    context.tool_family = ToolFamily::kHermes;
    auto answer = make_answer(*request, std::move(context));
    answer->set_prompt(0, {0});
    answer->begin(out);
    for (const AnswerEvent& event : events) {
      answer->add(event, out);
    }
    return answer;
  };
  std::vector<SseEvent> streamed;
  std::vector<SseEvent> none;
  run(R"(, "stream": true)", streamed);
  const auto whole = run("", none);
  RC_ASSERT(add_up(streamed).dump() == of_body(Json::parse(whole->body())).dump());
}

}  // namespace
}  // namespace trine::server::openai
