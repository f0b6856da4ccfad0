// What a tool call parser makes of a text cut at given places.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/openai/tool_calls.h"

namespace trine::testing {

struct ParsedText {
  struct Call {
    std::string name;
    std::string arguments;
    bool ended = false;
    bool operator==(const Call&) const = default;
  };

  std::string content;
  std::vector<Call> calls;
  bool operator==(const ParsedText&) const = default;
};

inline void collect(const std::vector<server::openai::ToolDelta>& deltas, ParsedText& out) {
  using Kind = server::openai::ToolDelta::Kind;
  for (const auto& delta : deltas) {
    const auto call = static_cast<std::size_t>(delta.call);
    switch (delta.kind) {
      case Kind::kContent:
        out.content += delta.text;
        break;
      case Kind::kCallBegin:
        out.calls.resize(call + 1);
        out.calls[call].name = delta.text;
        break;
      case Kind::kArguments:
        out.calls.at(call).arguments += delta.text;
        break;
      case Kind::kCallEnd:
        out.calls.at(call).ended = true;
        break;
    }
  }
}

// `cuts`: ascending places in the text.
inline ParsedText parse_cut(server::openai::ToolFamily family, std::string_view text,
                            const std::vector<std::size_t>& cuts, bool begun = false) {
  server::openai::ToolCallParser parser(family, begun);
  std::vector<server::openai::ToolDelta> deltas;
  std::size_t from = 0;
  for (const std::size_t cut : cuts) {
    parser.push(text.substr(from, cut - from), deltas);
    from = cut;
  }
  parser.push(text.substr(from), deltas);
  parser.finish(deltas);
  ParsedText out;
  collect(deltas, out);
  return out;
}

}  // namespace trine::testing
