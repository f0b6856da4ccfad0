#include "server/openai/tool_json.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/json.h"

namespace trine::server::openai {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxDepth = 32;

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && is_space(text.front())) {
    text.remove_prefix(1);
  }
  while (!text.empty() && is_space(text.back())) {
    text.remove_suffix(1);
  }
  return text;
}

// The pieces of a valid JSON object or list between its commas: the model's own spelling of its
// numbers and texts is kept.
std::vector<std::string_view> pieces(std::string_view text) {
  text = trim(text);
  text = text.substr(1, text.size() - 2);
  std::vector<std::string_view> out;
  int depth = 0;
  bool in_string = false;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (c == '}' || c == ']') {
      --depth;
    } else if (c == ',' && depth == 0) {
      out.push_back(trim(text.substr(begin, i - begin)));
      begin = i + 1;
    }
  }
  if (const std::string_view last = trim(text.substr(begin)); !last.empty()) {
    out.push_back(last);
  }
  return out;
}

// The value of piece `"key" : value`.
std::string_view value_of(std::string_view piece) {
  std::size_t end = 1;
  while (piece[end] != '"') {
    end += piece[end] == '\\' ? 2u : 1u;
  }
  return trim(piece.substr(piece.find(':', end) + 1));
}

std::optional<ToolCallText> one_call(const Json& parsed, std::string_view text) {
  const auto name = parsed.find("name");
  if (name == parsed.end() || !name->is_string() || name->get_ref<const std::string&>().empty()) {
    return std::nullopt;
  }
  ToolCallText out{.name = name->get<std::string>(), .arguments = "{}"};
  const auto parts = pieces(text);
  std::size_t i = 0;
  for (const auto& [key, value] : parsed.items()) {
    const std::string_view part = parts[i++];
    if (key != "arguments" && key != "parameters") {
      continue;
    }
    if (value.is_object()) {
      out.arguments = value_of(part);
    } else if (value.is_string()) {
      auto inner = arguments_from_json(value.get_ref<const std::string&>());
      if (!inner) {
        return std::nullopt;
      }
      out.arguments = std::move(*inner);
    } else if (!value.is_null()) {
      return std::nullopt;
    }
  }
  return out;
}

// FunctionGemma's notation, read into JSON text.
class GemmaReader {
 public:
  explicit GemmaReader(std::string_view text) : text_(text) {}

  bool object(std::string& out, int depth) { return group('{', '}', true, out, depth); }

  bool at_end() {
    skip_space();
    return text_.empty();
  }

 private:
  static constexpr std::string_view kEscape = "<escape>";

  void skip_space() {
    while (!text_.empty() && is_space(text_.front())) {
      text_.remove_prefix(1);
    }
  }

  bool eat(std::string_view what) {
    if (!text_.starts_with(what)) {
      return false;
    }
    text_.remove_prefix(what.size());
    return true;
  }

  bool escaped(std::string& out) {
    if (!eat(kEscape)) {
      return false;
    }
    const std::size_t end = text_.find(kEscape);
    if (end == std::string_view::npos) {
      return false;
    }
    out += Json(std::string(text_.substr(0, end)))
               .dump(-1, ' ', false, Json::error_handler_t::replace);
    text_.remove_prefix(end + kEscape.size());
    return true;
  }

  bool key(std::string& out) {
    if (!escaped(out)) {
      const std::size_t end = text_.find_first_of(":,{}[]<");
      if (end == std::string_view::npos || end == 0 || text_[end] != ':') {
        return false;
      }
      out += Json(std::string(trim(text_.substr(0, end))))
                 .dump(-1, ' ', false, Json::error_handler_t::replace);
      text_.remove_prefix(end);
    }
    skip_space();
    out += ':';
    return eat(":");
  }

  bool value(std::string& out, int depth) {
    skip_space();
    if (text_.starts_with("{")) {
      return group('{', '}', true, out, depth + 1);
    }
    if (text_.starts_with("[")) {
      return group('[', ']', false, out, depth + 1);
    }
    if (text_.starts_with(kEscape)) {
      return escaped(out);
    }
    const std::string_view word = trim(text_.substr(0, text_.find_first_of(",{}[]<")));
    if (!parse_json(word).has_value()) {
      return false;
    }
    out += word;
    text_.remove_prefix(std::min(text_.find_first_of(",{}[]<"), text_.size()));
    return true;
  }

  bool group(char open, char close, bool keys, std::string& out, int depth) {
    if (depth > kMaxDepth || !eat(std::string_view(&open, 1))) {
      return false;
    }
    out += open;
    skip_space();
    bool first = true;
    while (!eat(std::string_view(&close, 1))) {
      if (!first) {
        if (!eat(",")) {
          return false;
        }
        out += ',';
        skip_space();
      }
      first = false;
      if ((keys && !key(out)) || !value(out, depth)) {
        return false;
      }
      skip_space();
    }
    out += close;
    return true;
  }

  std::string_view text_;
};

}  // namespace

std::optional<std::string> arguments_from_json(std::string_view text) {
  const auto parsed = parse_json(text, {.max_depth = kMaxDepth});
  if (!parsed.has_value() || !parsed->is_object()) {
    return std::nullopt;
  }
  return std::string(trim(text));
}

std::optional<std::vector<ToolCallText>> calls_from_json(std::string_view text) {
  const auto parsed = parse_json(text, {.max_depth = kMaxDepth + 2});
  if (!parsed.has_value()) {
    return std::nullopt;
  }
  std::vector<ToolCallText> out;
  const auto add = [&](const Json& value, std::string_view part) {
    auto call = value.is_object() ? one_call(value, part) : std::nullopt;
    if (!call) {
      return false;
    }
    out.push_back(std::move(*call));
    return true;
  };
  if (parsed->is_array()) {
    const auto parts = pieces(text);
    for (std::size_t i = 0; i < parsed->size(); ++i) {
      if (!add((*parsed)[i], parts[i])) {
        return std::nullopt;
      }
    }
  } else if (!add(*parsed, text)) {
    return std::nullopt;
  }
  return out.empty() ? std::nullopt : std::optional(std::move(out));
}

std::optional<ToolCallText> call_from_gemma(std::string_view text) {
  text = trim(text);
  constexpr std::string_view kCall = "call:";
  const std::size_t brace = text.find('{');
  if (!text.starts_with(kCall) || brace == std::string_view::npos || brace == kCall.size()) {
    return std::nullopt;
  }
  ToolCallText out{.name = std::string(trim(text.substr(kCall.size(), brace - kCall.size()))),
                   .arguments = {}};
  GemmaReader reader(text.substr(brace));
  if (out.name.empty() || !reader.object(out.arguments, 0) || !reader.at_end() ||
      !arguments_from_json(out.arguments)) {
    return std::nullopt;
  }
  return out;
}

}  // namespace trine::server::openai
