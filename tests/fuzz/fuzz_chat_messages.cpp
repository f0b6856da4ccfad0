// Any JSON conversation through fixed templates: no crash, and the joined parts hold no control
// token in a user part's place: what is not from the user is a fixed vocabulary of template texts.
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "fuzz_support.h"
#include "text/chat_template.h"

namespace {

using trine::text::ChatTemplate;

constexpr std::array<const char*, 4> kTemplates = {
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] "
    "+ '<|im_end|>' + '\\n' "
    "}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
    "{% if tools %}{% for tool in tools %}{{ tool | tojson(indent=2) }}\\n{% endfor %}{% endif "
    "%}{% for m in messages "
    "%}[{{ m.role|upper }}]{% if m.content is string %}{{ m.content|trim|replace('a', "
    "'<a>')|indent(2) }}{% else %}{% for "
    "p in m.content %}{{ p.text or p.type }}{% endfor %}{% endif %}{% for c in m.tool_calls %}{{ "
    "c.function.name }}({% for "
    "k, v in c.function.arguments|items %}{{ k }}={{ v }}{{ ', ' if not loop.last }}{% endfor "
    "%}){% endfor %}{% endfor %}",
    "{% set ns = namespace(last='', n=0) %}{% for m in messages|reverse %}{% set ns.last = "
    "m.content ~ ns.last %}{% if "
    "m.role == 'user' and m.content.split('</think>')|length > 1 %}{% set ns.n = ns.n + 1 %}{{ "
    "m.content.split('</think>')[-1].lstrip('\\n') }}{% endif %}{% endfor %}{{ ns.last[::-1]|title "
    "}}{{ ns.n }}",
    "{% macro show(x, d) %}{% if x is mapping %}{% for k, v in x|dictsort %}{{ k }}:{{ show(v, d + "
    "1) }}{% endfor %}{% "
    "elif x is string %}{{ '%s' % x }}{% elif x is iterable %}{{ x|map('string')|join(',') }}{% "
    "else %}{{ x }}{% endif "
    "%}{% endmacro %}{{ show(messages[0], 0) }}{{ messages|tojson }}{{ messages }}{{ show(tools, "
    "0) }}"};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto templates = [] {
    std::array<std::shared_ptr<const ChatTemplate>, kTemplates.size()> out;
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = ChatTemplate::parse(kTemplates[i]).value();
    }
    return out;
  }();
  const auto json = trine::parse_json({reinterpret_cast<const char*>(data), size});
  if (!json.has_value()) {
    trine::require_printable(json.error());
    return 0;
  }
  trine::text::ChatTemplateInput input;
  input.messages = &*json;
  nlohmann::ordered_json tools;
  if (json->is_object()) {
    input.messages = json->contains("messages") ? &(*json)["messages"] : nullptr;
    tools = json->value("tools", nlohmann::ordered_json());
    input.tools = &tools;
  }
  for (std::size_t i = 0; i < templates.size(); ++i) {
    const auto parts = templates[i]->render(input);
    if (!parts.has_value()) {
      trine::require_printable(parts.error());
      continue;
    }
    for (std::size_t k = 0; k < parts->size(); ++k) {
      const auto& part = (*parts)[k];
      if (part.text.empty() || (k > 0 && part.from_user == (*parts)[k - 1].from_user)) {
        __builtin_trap();
      }
      // '$' is in no template: wherever it shows, the user sent it.
      if (!part.from_user && part.text.find('$') != std::string::npos) {
        __builtin_trap();
      }
    }
  }
  return 0;
}
