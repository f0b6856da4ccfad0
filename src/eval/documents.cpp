#include "eval/documents.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/json.h"

namespace trine::eval {
namespace {

using Json = nlohmann::ordered_json;

Result<Document> parse_line(std::string_view line) {
  const auto value = parse_json(line);
  if (!value.has_value()) {
    return fail(ErrorCode::kInvalidArgument, "{}", value.error().message);
  }
  const bool has_text = value->is_object() && value->contains("text");
  const bool has_messages = value->is_object() && value->contains("messages");
  if (has_text == has_messages) {
    return fail(ErrorCode::kInvalidArgument, "an object with \"text\" or \"messages\" is expected");
  }
  const Json& field = (*value)[has_text ? "text" : "messages"];
  Document out;
  if (has_text) {
    if (!field.is_string()) {
      return fail(ErrorCode::kInvalidArgument, "\"text\" is {}, a string is expected",
                  field.type_name());
    }
    out.text = field.get<std::string>();
    return out;
  }
  if (!field.is_array() || field.empty()) {
    return fail(ErrorCode::kInvalidArgument, "\"messages\" is {}, a list of messages is expected",
                field.is_array() ? "empty" : field.type_name());
  }
  out.messages = field.dump();
  return out;
}

}  // namespace

Result<std::vector<Document>> parse_documents(std::string_view content, const std::string& name) {
  std::vector<Document> out;
  if (!name.ends_with(".jsonl")) {
    out.push_back({.text = std::string(content), .messages = {}});
    return out;
  }
  std::int64_t number = 0;
  while (!content.empty()) {
    const std::size_t end = std::min(content.find('\n'), content.size());
    const std::string_view line = content.substr(0, end);
    content.remove_prefix(std::min(end + 1, content.size()));
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) {
      continue;
    }
    auto document = parse_line(line);
    if (!document.has_value()) {
      return fail(ErrorCode::kInvalidArgument, "{}:{}: {}", name, number, document.error().message);
    }
    document->line = number;
    out.push_back(*std::move(document));
  }
  return out;
}

Result<std::vector<std::int32_t>> encode_messages(std::string_view messages,
                                                  bool add_generation_prompt, const ModelText& text,
                                                  const ModelConfig& config) {
  TRINE_TRY_ASSIGN(const auto tokenizer, text.tokenizer());
  TRINE_TRY_ASSIGN(const auto chat, text.chat_template(false));
  TRINE_TRY_ASSIGN(const Json list, parse_json(messages));
  const bool has_system = !list.empty() && list[0].is_object() && list[0].contains("role") &&
                          list[0]["role"] == "system";
  if (has_system && !chat->caps().system_role) {
    return fail(ErrorCode::kUnsupported,
                "the model's chat template has no place for a system prompt; leave it out");
  }
  text::ChatTemplateInput input;
  input.messages = &list;
  input.add_generation_prompt = add_generation_prompt;
  input.bos_token = text.bos_token();
  input.eos_token = text.eos_token();
  input.now_unix_s = 0;  // figures do not depend on the day
  TRINE_TRY_ASSIGN(const std::vector<text::TextPart> parts, chat->render(input));
  return encode_conversation(*tokenizer, parts, config);
}

Result<std::vector<std::vector<std::int32_t>>> encode_documents(
    const std::vector<Document>& documents, const std::string& name, const ModelText& text,
    const ModelConfig& config) {
  TRINE_TRY_ASSIGN(const auto tokenizer, text.tokenizer());
  std::vector<std::vector<std::int32_t>> out;
  for (const Document& document : documents) {
    auto ids = document.messages.empty()
                   ? tokenizer->encode(document.text, text::EncodeOptions{.add_special = false})
                   : encode_messages(document.messages, false, text, config);
    if (!ids.has_value()) {
      return tl::unexpected(std::move(ids).error().with_context(
          documents.size() == 1 ? name : fmt::format("{}:{}", name, document.line)));
    }
    if (!document.messages.empty() && tokenizer->bos().has_value() && !ids->empty() &&
        ids->front() == *tokenizer->bos()) {
      ids->erase(ids->begin());
    }
    out.push_back(*std::move(ids));
  }
  return out;
}

}  // namespace trine::eval
