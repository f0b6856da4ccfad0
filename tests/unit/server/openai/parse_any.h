// Every body parser under one name, and the smallest body that each takes.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "server/openai/parse.h"
#include "server/openai/schema.h"

namespace trine::server::openai {

template <typename T>
ApiStatus status_of(const ApiResult<T>& result) {
  return result.has_value() ? ApiStatus() : tl::unexpected(result.error());
}

inline ApiStatus parse_any(Shape shape, std::string_view body, const Limits& limits = {}) {
  switch (shape) {
    case Shape::kCompletions:
      return status_of(parse_completion(body, limits));
    case Shape::kChat:
      return status_of(parse_chat(body, limits));
    case Shape::kResponses:
      return status_of(parse_responses(body, limits));
    case Shape::kEmbeddings:
      return status_of(parse_embeddings(body, limits));
    case Shape::kTokenize:
      return status_of(parse_tokenize(body, limits));
    case Shape::kDetokenize:
      return status_of(parse_detokenize(body, limits));
    default:
      return status_of(parse_apply_template(body, limits));
  }
}

// Where an object of a shape stands: the body's endpoint and the body with a hole for it.
struct Place {
  Shape endpoint;
  nlohmann::ordered_json body;
  nlohmann::ordered_json::json_pointer hole;
  nlohmann::ordered_json smallest;  // object of the shape
};

inline Place place_of(Shape shape) {
  using Json = nlohmann::ordered_json;
  using Pointer = Json::json_pointer;
  const auto parse = [](const char* text) { return Json::parse(text); };
  const Json chat = parse(R"({"messages": [{"role": "user", "content": "a"}]})");
  const Json call = parse(R"({"messages": [{"role": "assistant", "tool_calls":
    [{"function": {"name": "f"}}]}]})");
  Json tools = chat;
  tools["tools"] = parse(R"([{"type": "function", "function": {"name": "f"}}])");
  switch (shape) {
    case Shape::kCompletions:
      return {shape, Json::object(), Pointer(), parse(R"({"prompt": "a"})")};
    case Shape::kChat:
    case Shape::kApplyTemplate:
      return {shape, Json::object(), Pointer(), chat};
    case Shape::kResponses:
    case Shape::kEmbeddings:
      return {shape, Json::object(), Pointer(), parse(R"({"input": "a"})")};
    case Shape::kTokenize:
      return {shape, Json::object(), Pointer(), parse(R"({"prompt": "a"})")};
    case Shape::kDetokenize:
      return {shape, Json::object(), Pointer(), parse(R"({"tokens": [1]})")};
    case Shape::kMessage:
      return {Shape::kChat, chat, Pointer("/messages/0"), chat["messages"][0]};
    case Shape::kContentPart: {
      Json body = chat;
      body["messages"][0]["content"] = parse(R"([{"type": "text", "text": "a"}])");
      return {Shape::kChat, body, Pointer("/messages/0/content/0"),
              body["messages"][0]["content"][0]};
    }
    case Shape::kToolCall:
      return {Shape::kChat, call, Pointer("/messages/0/tool_calls/0"),
              call["messages"][0]["tool_calls"][0]};
    case Shape::kToolCallFunction:
      return {Shape::kChat, call, Pointer("/messages/0/tool_calls/0/function"),
              call["messages"][0]["tool_calls"][0]["function"]};
    case Shape::kTool:
      return {Shape::kChat, tools, Pointer("/tools/0"), tools["tools"][0]};
    case Shape::kFunction:
      return {Shape::kChat, tools, Pointer("/tools/0/function"), tools["tools"][0]["function"]};
    case Shape::kStreamOptions: {
      Json body = chat;
      body["stream"] = true;
      return {Shape::kChat, body, Pointer("/stream_options"), Json::object()};
    }
    case Shape::kResponseFormat:
      return {Shape::kChat, chat, Pointer("/response_format"), parse(R"({"type": "text"})")};
    case Shape::kJsonSchema: {
      Json body = chat;
      body["response_format"] = parse(R"({"type": "json_schema"})");
      return {Shape::kChat, body, Pointer("/response_format/json_schema"),
              parse(R"({"schema": {"type": "object"}})")};
    }
    case Shape::kStructuredOutputs:
      return {Shape::kChat, chat, Pointer("/structured_outputs"), Json::object()};
    case Shape::kSpeculative:
      return {Shape::kChat, chat, Pointer("/speculative"), Json::object()};
    case Shape::kResponsesItem:
      return {Shape::kResponses, parse(R"({"input": [{}]})"), Pointer("/input/0"),
              parse(R"({"role": "user", "content": "a"})")};
    case Shape::kResponsesTool:
      return {Shape::kResponses, parse(R"({"input": "a", "tools": [{}]})"), Pointer("/tools/0"),
              parse(R"({"type": "function", "name": "f"})")};
    case Shape::kResponsesText:
      return {Shape::kResponses, parse(R"({"input": "a"})"), Pointer("/text"), Json::object()};
  }
  return {shape, Json::object(), Pointer(), Json::object()};
}

}  // namespace trine::server::openai
