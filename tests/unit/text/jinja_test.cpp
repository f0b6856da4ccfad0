#include <functional>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <pthread.h>

#include "text/chat_template.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/from_json.h"
#include "text/jinja/parser.h"

namespace trine::text::jinja {
namespace {

// Text with the user's parts between ⟦ and ⟧.
std::string marked(const Str& s) {
  std::string out;
  std::size_t from = 0;
  for (const Run& run : s.runs) {
    const std::string text = s.text.substr(from, run.end - from);
    out += run.user ? "⟦" + text + "⟧" : text;
    from = run.end;
  }
  return out;
}

Result<std::string> run(std::string_view source, Limits limits = {}) {
  static const auto json = nlohmann::ordered_json::parse(
      R"({"s": "a<b", "u": "Straße", "n": 7, "l": ["x", "y"], "d": {"k": "v", "i": 1}, "long": ")" +
      std::string(20000, 'a') + R"("})");
  TRINE_TRY_ASSIGN(const auto ast, parse_template(source));
  Heap heap(limits);
  Variables variables;
  for (const auto& [name, value] : json.items()) {
    TRINE_TRY_ASSIGN(const Value v, from_json(heap, value));
    variables.emplace_back(name, v);
  }
  TRINE_TRY_ASSIGN(const Str* text, evaluate(*ast, heap, variables));
  return marked(*text);
}

TEST(Jinja, ProvenanceSurvivesEveryOperation) {
  const std::pair<const char*, const char*> cases[] = {
      {"{{ 'p' + s + 'q' }}", "p⟦a<b⟧q"},
      {"{{ 'p' ~ s }}{{ n }}{{ n + 1 }}{{ 1 }}", "p⟦a<b78⟧1"},
      {"{{ ('p' ~ s)|upper }}", "P⟦A<B⟧"},
      {"{{ ('p ' ~ u)|upper }}", "P ⟦STRASSE⟧"},
      {"{{ ('p ' ~ u)|title }}{{ u.swapcase() }}", "P ⟦StraßesTRASSE⟧"},
      {"{{ ('pq' ~ s ~ 'r')[1:4] }}", "q⟦a<⟧"},
      {"{{ ('pq' ~ s)[::-1] }}", "⟦b<a⟧qp"},
      {"{{ l|join(', ') }}", "⟦x⟧, ⟦y⟧"},
      {"{{ 'a-b'.replace('-', s) }}{{ s.replace('<', '-') }}", "a⟦a<b⟧b⟦a⟧-⟦b⟧"},
      {"{{ '%s|%5s|%d' % (s, s, n) }}", "⟦a<b⟧|  ⟦a<b⟧|⟦7⟧"},
      {"{{ '{}-{:>5}'.format(s, s) }}", "⟦a<b⟧-  ⟦a<b⟧"},
      {"{{ ('p ' ~ s ~ ' q').split(' ') | join('/') }}", "p/⟦a<b⟧/q"},
      {"{{ d|tojson }}{{ {'k': s}|tojson }}{{ {'k': 1}|tojson }}",
       "⟦{\"k\": \"v\", \"i\": 1}⟧{\"k\": ⟦\"a<b\"⟧}{\"k\": 1}"},
      {"{{ s|e }}{{ s|trim('a') }}", "⟦a&lt;b<b⟧"},
      {"{% set y %}p{{ s }}{% endset %}{{ y }}", "p⟦a<b⟧"},
      {"{% macro m(x) %}({{ x }}{{ caller() }}){% endmacro %}{% call m(s) %}!{{ n }}{% endcall %}",
       "(⟦a<b⟧!⟦7⟧)"},
      {"{% filter upper %}p{{ s }}{% endfilter %}", "P⟦A<B⟧"},
      {"{% for k, v in d|items %}{{ k }}={{ v }};{% endfor %}", "⟦k⟧=⟦v⟧;⟦i⟧=⟦1⟧;"},
      {"{{ s|indent(2, true) }}{{ s|center(7) }}", "  ⟦a<b⟧  ⟦a<b⟧  "},
      {"{{ l }}{{ [s] }}{{ ['p', s] }}{{ [l, (1, n)] }}",
       "⟦['x', 'y']⟧[⟦'a<b'⟧]['p', ⟦'a<b'⟧][⟦['x', 'y']⟧, (1, ⟦7⟧)]"},
      {"{{ s|urlencode }}{{ s * 2 }}{{ s|list|first }}", "⟦a%3Cba<ba<ba⟧"},
      {"{{ namespace(a=s).a }}{{ s if true }}{{ '7'|int }}{{ s|length }}", "⟦a<ba<b⟧73"},
  };
  for (const auto& [source, expected] : cases) {
    const auto text = run(source);
    ASSERT_TRUE(text.has_value()) << source << ": " << text.error().message;
    EXPECT_EQ(*text, expected) << source;
  }
}

TEST(Jinja, BracketsOfInputValuesAreTheUsers) {
  const auto ast = parse_template("{{ d|tojson(indent=1) }}{{ d }}{{ l }}").value();
  Heap heap{Limits{}};
  const auto json =
      nlohmann::ordered_json::parse(R"({"d": {"k": ["v", 1, null]}, "l": [1.5, true]})");
  Variables variables;
  for (const auto& [name, value] : json.items()) {
    variables.emplace_back(name, from_json(heap, value).value());
  }
  const Str* text = evaluate(*ast, heap, variables).value();
  EXPECT_EQ(text->text,
            "{\n \"k\": [\n  \"v\",\n  1,\n  null\n ]\n}{'k': ['v', 1, None]}[1.5, True]");
  // Only the indentation asked for and a bare none are not the user's.
  EXPECT_TRUE(text->user_at(0));
  EXPECT_TRUE(text->user_at(text->text.size() - 1));
}

TEST(Jinja, LimitsEndHostileTemplates) {
  const char* cases[] = {
      "{% for a in range(100000) %}{% for b in range(100000) %}{% for c in range(100000) %}{% "
      "endfor %}{% endfor %}{% endfor %}",
      "{{ range(1000000000) }}",
      "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(100) %}{% set ns.x = ns.x ~ ns.x "
      "%}{% endfor %}",
      "{% set ns = namespace(x=[1, 2]) %}{% for i in range(100) %}{% set ns.x = ns.x + ns.x %}{% "
      "endfor %}",
      "{{ 'a' * 99999999999 }}",
      "{{ [0] * 99999999999 }}",
      "{{ '%99999999999d' % 1 }}",
      "{{ '{:99999999999}'.format(1) }}",
      "{{ 'a'|center(9999999999999) }}",
      "{{ 'a'|indent(9999999999999, true) }}",
      "{{ {'a': 1}|tojson(indent=9999999999999) }}",
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% set ns = namespace(x=[]) %}{% for i in range(1000) %}{% set ns.x = [ns.x] %}{% endfor "
      "%}{{ ns.x }}",
      "{% set l = [] %}{% set _ = l.append(l) %}{{ l }}",
      "{% set l = [] %}{% set _ = l.append(l) %}{{ l|tojson }}",
      "{% set ns = namespace(x=[1]) %}{% for i in range(5000) %}{% set ns.x = ns.x|map('string') "
      "%}{% endfor %}{{ ns.x|list }}",
      "{{ 9223372036854775807 + 1 }}",
      "{{ 10 ** 30 }}",
      "{% for i in range(100000) %}{% for j in range(100000) %}{{ long }}{% endfor %}{% endfor %}",
      "{% for i in range(100000) %}{% set x = long in long %}{% set y = long == long ~ '' %}{% for "
      "j in range(1000) %}{% endfor %}{% endfor %}",
      "{{ [1]|batch(99999999999, 0)|list }}",
      "{{ [1]|slice(99999999999)|list }}",
  };
  for (const char* source : cases) {
    const auto text = run(
        source, {.steps = 300'000, .heap_bytes = std::size_t{8} << 20, .output_bytes = 1 << 20});
    ASSERT_FALSE(text.has_value()) << source;
    EXPECT_EQ(text.error().code, ErrorCode::kExhausted) << source << ": " << text.error().message;
    EXPECT_TRUE(text.error().message.starts_with("line 1, column ")) << text.error().message;
  }
}

TEST(Jinja, DeepNestingIsRefusedByTheParser) {
  for (const auto& [open, close] :
       {std::pair("(", ")"), std::pair("[", "]"), std::pair("{1:", "}"), std::pair("-", ""),
        std::pair("not ", ""), std::pair("f(", ")"), std::pair("a[", "]"), std::pair("1+", "")}) {
    std::string source = "{{ ";
    for (int i = 0; i < 20000; ++i) {
      source += open;
    }
    source += "1";
    for (int i = 0; i < 20000; ++i) {
      source += close;
    }
    const auto ast = parse_template(source + " }}");
    ASSERT_FALSE(ast.has_value()) << open;
    EXPECT_EQ(ast.error().code, ErrorCode::kExhausted) << open << ast.error().message;
  }
  std::string ifs;
  for (int i = 0; i < 5000; ++i) {
    ifs += "{% if 1 %}";
  }
  EXPECT_EQ(parse_template(ifs).error().code, ErrorCode::kExhausted);
  std::string dots = "{{ a";
  for (int i = 0; i < 5000; ++i) {
    dots += ".a|upper";
  }
  EXPECT_EQ(parse_template(dots + " }}").error().code, ErrorCode::kExhausted);
}

TEST(Jinja, ErrorsNamePlaceAndCause) {
  const std::tuple<const char*, ErrorCode, const char*> cases[] = {
      {"a\n{% include 'x' %}", ErrorCode::kUnsupported,
       "line 2, column 4: the statement 'include' is not supported"},
      {"{% import 'x' as y %}", ErrorCode::kUnsupported, "'import'"},
      {"{% extends 'x' %}", ErrorCode::kUnsupported, "'extends'"},
      {"{{ 1 +", ErrorCode::kCorruptData, "line 1, column 7"},
      {"{% if x %}", ErrorCode::kCorruptData, "'endif' is expected"},
      {"{# x", ErrorCode::kCorruptData, "comment"},
      {"{{ 'x }}", ErrorCode::kCorruptData, "no end"},
      {"{% break %}", ErrorCode::kCorruptData, "outside of a loop"},
      {"\n\n  {{ nothing.at.all }}", ErrorCode::kCorruptData,
       "line 3, column 13: 'nothing' is undefined"},
      {"{{ d.nope.more }}", ErrorCode::kInvalidArgument, "no attribute or key 'nope'"},
      {"{{ 1|nofilter }}", ErrorCode::kUnsupported, "no filter 'nofilter'"},
      {"{{ 1 is notest }}", ErrorCode::kUnsupported, "no test 'notest'"},
      {"{{ raise_exception('stop: ' ~ n) }}", ErrorCode::kInvalidArgument, "stop: 7"},
      {"{{ 1 / 0 }}", ErrorCode::kCorruptData, "division by zero"},
      {"\xff", ErrorCode::kCorruptData, "not UTF-8"},
  };
  for (const auto& [source, code, message] : cases) {
    const auto text = run(source);
    ASSERT_FALSE(text.has_value()) << source;
    EXPECT_EQ(text.error().code, code) << text.error().message;
    EXPECT_NE(text.error().message.find(message), std::string::npos) << text.error().message;
  }
}

TEST(Jinja, MethodsThatChangeListsAndDictsWork) {
  const auto text =
      run("{% set q = [] %}{% for i in [3, 1] %}{% set _ = q.append(i) %}{% endfor %}{{ q }}{{ "
          "q.pop() }}{% set _ = "
          "q.extend([5, 6]) %}{% set _ = q.insert(0, 9) %}{{ q }}{% set e = {'a': 1} %}{% set _ = "
          "e.update({'b': 2}) %}{{ "
          "e.setdefault('c', 3) }}{{ e.pop('a') }}{{ e }}");
  ASSERT_TRUE(text.has_value()) << text.error().message;
  EXPECT_EQ(*text, "[3, 1]1[9, 3, 5, 6]31{'b': 2, 'c': 3}");
}

// Runs on a thread with a stack of that size.
void on_stack(std::size_t bytes, const std::function<void()>& work) {
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, bytes), 0);
  pthread_t thread{};
  const auto start = [](void* f) -> void* {
    (*static_cast<const std::function<void()>*>(f))();
    return nullptr;
  };
  std::function<void()> copy = work;
  ASSERT_EQ(pthread_create(&thread, &attributes, start, &copy), 0);
  ASSERT_EQ(pthread_join(thread, nullptr), 0);
  pthread_attr_destroy(&attributes);
}

// A server's threads have 8 MiB at least; sanitizers and unoptimized builds need several times the
// stack of the code that ships.
#if defined(__SANITIZE_ADDRESS__) || !defined(NDEBUG)
constexpr std::size_t kStack = std::size_t{6} << 20;
#else
constexpr std::size_t kStack = std::size_t{1} << 20;
#endif

TEST(Jinja, DeepestRecursionFitsTheStack) {
  const std::string deep_list =
      "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(148) %}{% "
      "set ns.x = [ns.x] %}{% set ns.y = [ns.y] %}{% endfor %}";
  const auto nested = [](std::string_view open, std::string_view inner, std::string_view close,
                         int n) {
    std::string out;
    for (int i = 0; i < n; ++i) {
      out += open;
    }
    out += inner;
    for (int i = 0; i < n; ++i) {
      out += close;
    }
    return out;
  };
  // Recursion without an end: each must meet the limit of depth, not of steps.
  const std::string endless[] = {
      "{% macro m(x) %}{{ m(x) }}{% endmacro %}{{ m(1) }}",
      "{% macro m(x) %}{% if x %}{{ 'a' ~ [[(m(x) + 'b')|upper]][0][0] }}{% endif %}{% endmacro "
      "%}{{ m(1) }}",
      "{% macro m(x) %}{% for i in [1] %}{% set y %}{% filter upper %}{{ m(x)|trim }}{% endfilter "
      "%}{% endset %}{{ y }}{% endfor %}{% endmacro %}{{ m(1) }}",
      "{% macro m(x) %}{{ caller() if caller }}{% call m(x) %}{{ caller() if caller }}{% endcall "
      "%}{% endmacro %}{{ m(1) }}",
      "{% set l = [] %}{% set _ = l.append(l) %}{% for x in l recursive %}{{ loop(x) }}{% endfor "
      "%}",
      "{% macro m(a=m()) %}{{ a }}{% endmacro %}{{ m() }}",
      "{% macro m(x) %}{{ {'k': dict(a=m(x))}.get('k', m(x)) }}{% endmacro %}{{ m(1) }}",
      "{% set ns = namespace(x=[1]) %}{% for i in range(5000) %}{% set ns.x = ns.x|map('string') "
      "%}{% endfor %}{{ ns.x|list }}",
  };
  // At the limit of what is accepted.
  const std::string accepted[] = {
      "{{ " + nested("-", "1", "", 190) + " }}",
      "{{ " + nested("not ", "1", "", 190) + " }}",
      "{{ " + nested("[", "1", "]", 45) + " }}",
      "{{ " + nested("(", "1", ")", 45) + " }}",
      "{{ s" + nested("|upper", "", "", 190) + " }}",
      "{{ 1" + nested(" + 1", "", "", 190) + " }}",
      nested("{% if 1 %}", "{{ s }}", "{% endif %}", 190),
      nested("{% for i in [1] %}", "{{ s }}", "{% endfor %}", 190),
      nested("{% filter upper %}", "{{ s }}", "{% endfilter %}", 190),
      deep_list + "{{ ns.x }}",
      deep_list + "{{ ns.x|tojson(indent=1) }}",
      deep_list +
          "{{ ns.x == ns.y }}{{ ns.x < ns.y }}{{ [ns.x, ns.y]|sort|length }}{{ "
          "[ns.x]|unique|list|length if false }}",
  };
  on_stack(kStack, [&] {
    for (const std::string& source : endless) {
      const auto text = run(source);
      ASSERT_FALSE(text.has_value()) << source;
      EXPECT_EQ(text.error().code, ErrorCode::kExhausted) << text.error().message;
      EXPECT_NE(text.error().message.find("deep"), std::string::npos) << text.error().message;
    }
    for (const std::string& source : accepted) {
      const auto text = run(source);
      EXPECT_TRUE(text.has_value()) << source << text.error().message;
    }
  });
}

// With all other limits wide, so that each is seen to hold by itself.
TEST(Jinja, EachLimitHoldsAlone) {
  const std::string loop =
      "{% for a in range(1000) %}{% for b in range(1000) %}{{ long }}{% endfor %}{% endfor %}";
  const std::tuple<const char*, Limits, std::string> cases[] = {
      {loop.c_str(), {.steps = 1000}, "takes more steps than allowed"},
      {loop.c_str(), {.output_bytes = 100'000}, "a text larger than 100000 bytes"},
      {"{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(20) %}{% set ns.x = ns.x ~ ns.x "
       "%}{% endfor %}",
       {.heap_bytes = 1 << 20},
       "1048576 bytes"},
      {"{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = [1, 2, 3] %}{% "
       "endfor %}",
       {.heap_bytes = 1 << 20},
       "more than 1048576 bytes of values"},
      // Marks that change at every character weigh more than the text.
      {"{{ ('p' ~ s[0]) * 40000 }}", {.heap_bytes = 1 << 20}, "a text larger than 1048576 bytes"},
      // Nothing but scopes.
      {"{% for a in range(100) %}{% for b in range(1000) %}{% with %}{% endwith %}{% endfor %}{% "
       "endfor %}",
       {.heap_bytes = 1 << 20},
       "more than 1048576 bytes of values"},
      {"{% macro m(x) %}{% if x %}{{ m(x - 1) }}{% endif %}{% endmacro %}{{ m(20) }}",
       {.depth = 30},
       "recurses deeper than 30 levels"},
      {"{{ range(1001)|length }}", {.range = 1000}, "range() of 1001 elements, at most 1000"},
  };
  for (const auto& [source, limits, message] : cases) {
    const auto text = run(source, limits);
    ASSERT_FALSE(text.has_value()) << source;
    EXPECT_EQ(text.error().code, ErrorCode::kExhausted) << text.error().message;
    EXPECT_NE(text.error().message.find(message), std::string::npos) << text.error().message;
  }
  EXPECT_TRUE(run("{{ range(1000)|length }}", {.range = 1000}).has_value());
  const auto large = parse_template(std::string(kMaxTemplateBytes + 1, 'a'));
  ASSERT_FALSE(large.has_value());
  EXPECT_EQ(large.error().code, ErrorCode::kExhausted);
  EXPECT_TRUE(parse_template(std::string(kMaxTemplateBytes, 'a')).has_value());
}

TEST(Jinja, InputNestsToALimit) {
  nlohmann::ordered_json json = 1;
  for (int i = 0; i < kMaxDataDepth; ++i) {
    json = nlohmann::ordered_json::array({json});
  }
  Heap heap{Limits{}};
  EXPECT_TRUE(from_json(heap, json).has_value());
  json = nlohmann::ordered_json::array({json});
  const auto deep = from_json(heap, json);
  ASSERT_FALSE(deep.has_value());
  EXPECT_EQ(deep.error().code, ErrorCode::kInvalidArgument);
}

TEST(Jinja, PythonInternalsStayOutOfReach) {
  // As in the sandbox, a template sees no more of an object than that it is not there.
  EXPECT_EQ(run("{{ s.__class__ }}{{ ''['__class__'] }}{{ d.__init__ is defined }}").value(),
            "False");
  EXPECT_FALSE(run("{{ s.__class__.__mro__ }}").has_value());
  EXPECT_FALSE(run("{{ range.__globals__.x }}").has_value());
  EXPECT_FALSE(run("{% set ns = namespace() %}{% set ns._x = 1 %}").has_value());
  EXPECT_FALSE(run("{% set ns = namespace(_x=1) %}").has_value());
  // Keys of data are data.
  EXPECT_EQ(run("{% set e = {'__k': 1, '_k': 2} %}{{ e.__k }}{{ e['__k'] }}{{ e._k }}").value(),
            "112");
}

TEST(Jinja, BlocksTakeTheirLineAlong) {
  const std::pair<const char*, const char*> cases[] = {
      {"a\n  {% if 1 %}\n  b\n  {% endif %}\nc", "a\n  b\nc"},
      {"a {% if 1 %} b {% endif %} c", "a  b  c"},
      {"a\n  {%+ if 1 %}\nb{% endif +%}\nc", "a\n  b\nc"},
      {"a \n {%- if 1 -%} \n b \n {%- endif -%} \n c", "abc"},
      {"{{ 1 }}\n\n{{- 2 -}}\n{{ 3 }}\n", "123"},
      {"a\n  {# x #}\nb", "a\nb"},
      {"{% raw %}\n{{ x }}\n{% endraw %}\ny", "\n{{ x }}\ny"},
      {"a\n\n", "a\n"},
  };
  for (const auto& [source, expected] : cases) {
    EXPECT_EQ(run(source).value(), expected) << source;
  }
}

}  // namespace
}  // namespace trine::text::jinja
