// Any template text either renders or gives an error within small limits; what the user sent stays
// marked as the user's.
#include <cstddef>
#include <cstdint>

#include <nlohmann/json.hpp>

#include "fuzz_support.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/from_json.h"
#include "text/jinja/parser.h"

namespace {

constexpr const char* kVariables = R"({
  "messages": [{"role": "user", "content": "\u2603\u2603 hi \u2603"}, {"role": "tool", "content": ["\u2603", 1, 2.5, null]}],
  "s": "a\u2603b c\nd", "n": 3, "f": -2.5, "l": [3, 1, 2], "d": {"k": "\u2603", "z": [true, {"y": "x"}]}, "t": true, "nil": null})";

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace trine::text::jinja;
  static const auto json = nlohmann::ordered_json::parse(kVariables);
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  const auto ast = parse_template(source);
  if (!ast.has_value()) {
    trine::require_printable(ast.error());
    return 0;
  }
  Heap heap({.steps = 50'000,
             .heap_bytes = std::size_t{4} << 20,
             .output_bytes = std::size_t{1} << 18,
             .depth = 200,
             .range = 1000});
  Variables variables;
  for (const auto& [name, value] : json.items()) {
    auto converted = from_json(heap, value);
    if (!converted.has_value()) {
      __builtin_trap();
    }
    variables.emplace_back(name, *converted);
  }
  const auto text = evaluate(**ast, heap, variables);
  if (!text.has_value()) {
    trine::require_printable(text.error());
    return 0;
  }
  // Runs cover the text, alternate, and every snowman is the user's unless the template has one
  // itself.
  const Str& out = **text;
  std::size_t end = 0;
  for (std::size_t i = 0; i < out.runs.size(); ++i) {
    if (out.runs[i].end <= end || (i > 0 && out.runs[i].user == out.runs[i - 1].user)) {
      __builtin_trap();
    }
    end = out.runs[i].end;
  }
  if (end != out.text.size()) {
    __builtin_trap();
  }
  // A template can write one with an escape or a format, so only plain templates are held to it.
  if (source.find("\xE2\x98\x83") == std::string_view::npos &&
      source.find('\\') == std::string_view::npos && source.find("%") == std::string_view::npos) {
    for (std::size_t at = out.text.find("\xE2\x98\x83"); at != std::string::npos;
         at = out.text.find("\xE2\x98\x83", at + 1)) {
      if (!out.user_at(at)) {
        __builtin_trap();
      }
    }
  }
  return 0;
}
