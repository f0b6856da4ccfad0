#include "grammar/json_schema.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "grammar/json_text.h"
#include "grammar/limits.h"
#include "grammar/regex.h"
#include "text/unicode.h"

namespace trine::grammar {
namespace {

using Json = nlohmann::ordered_json;

// Integers without a bound on one side go this far (18 digits).
constexpr std::int64_t kLargestInteger = 999'999'999'999'999'999;

constexpr std::array kAnnotations = {"title",
                                     "description",
                                     "default",
                                     "examples",
                                     "$schema",
                                     "$id",
                                     "$comment",
                                     "$defs",
                                     "definitions",
                                     "deprecated",
                                     "readOnly",
                                     "writeOnly",
                                     "contentMediaType",
                                     "contentEncoding"};
constexpr std::array kKeywords = {"type",    "properties",  "required",  "additionalProperties",
                                  "items",   "prefixItems", "minItems",  "maxItems",
                                  "enum",    "const",       "anyOf",     "oneOf",
                                  "allOf",   "$ref",        "minLength", "maxLength",
                                  "pattern", "format",      "minimum",   "maximum",
                                  "nullable"};

struct Format {
  std::string_view name;
  std::string_view pattern;
};

#define TRINE_DATE                                                                               \
  "[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|" \
  "30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
#define TRINE_TIME                                                                                \
  "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-" \
  "5][0-9])"
constexpr std::array<Format, 6> kFormats = {{
    {"date", "^" TRINE_DATE "$"},
    {"time", "^" TRINE_TIME "$"},
    {"date-time", "^" TRINE_DATE "T" TRINE_TIME "$"},
    {"uuid", "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"},
    {"ipv4",
     "^(?:(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])\\.){3}(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-"
     "9]?[0-9])$"},
    {"email",
     "^[a-zA-Z0-9_+-]+(?:\\.[a-zA-Z0-9_+-]+)*@[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\\.["
     "a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)+$"},
}};
#undef TRINE_DATE
#undef TRINE_TIME

std::string pointer_to(const std::string& base, std::string_view key) {
  std::string out = base + "/";
  for (const char c : key) {
    out += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  }
  return out;
}

class Reader {
 public:
  Reader(Ir& ir, const Json& root) : ir_(ir), rules_(ir), root_(root) {}

  Result<RuleId> run() { return rule_at(root_, "#", 0); }

 private:
  template <typename... Args>
  tl::unexpected<Error> wrong(const std::string& at, fmt::format_string<Args...> text,
                              Args&&... args) const {
    return fail(ErrorCode::kInvalidArgument, "schema {}: {}", at,
                fmt::format(text, std::forward<Args>(args)...));
  }

  template <typename... Args>
  tl::unexpected<Error> refuse(const std::string& at, fmt::format_string<Args...> text,
                               Args&&... args) const {
    return fail(ErrorCode::kUnsupported, "schema {}: {}", at,
                fmt::format(text, std::forward<Args>(args)...));
  }

  // The rule of the schema at a pointer; one rule per place, so recursion closes on itself.
  Result<RuleId> rule_at(const Json& schema, const std::string& at, int depth) {
    const auto [it, added] = places_.emplace(at, 0);
    if (!added) {
      return it->second;
    }
    const RuleId rule = it->second = ir_.add_rule(at);
    TRINE_TRY_ASSIGN(const NodeId body, schema_node(schema, at, depth));
    ir_.define(rule, body);
    TRINE_TRY(ir_.check("schema " + at));
    return rule;
  }

  // Depth of the recursion: kMaxNesting.
  Result<NodeId> schema_node(const Json& s, const std::string& at, int depth) {
    if (depth > kMaxNesting) {
      return fail(ErrorCode::kExhausted, "schema {}: nested deeper than {}", at, kMaxNesting);
    }
    if (s.is_boolean()) {
      return s.get<bool>() ? ir_.ref(rules_.value()) : ir_.nothing();
    }
    if (!s.is_object()) {
      return wrong(at, "an object or a boolean expected");
    }
    std::vector<std::string> meant;
    for (const auto& [key, value] : s.items()) {
      if (std::find(kAnnotations.begin(), kAnnotations.end(), key) != kAnnotations.end()) {
        continue;
      }
      if (std::find(kKeywords.begin(), kKeywords.end(), key) == kKeywords.end()) {
        return refuse(pointer_to(at, key), "keyword \"{}\" is not supported", key);
      }
      meant.push_back(key);
    }
    for (const std::string_view alone : {"$ref", "enum", "const", "anyOf", "oneOf", "allOf"}) {
      if (s.contains(alone)) {
        for (const std::string& other : meant) {
          if (other != alone && !(other == "type" && (alone == "enum" || alone == "const"))) {
            return refuse(pointer_to(at, other), "\"{}\" beside \"{}\" is not supported", other,
                          alone);
          }
        }
        return combined(s, std::string(alone), at, depth);
      }
    }
    return typed(s, at, depth);
  }

  Result<NodeId> combined(const Json& s, const std::string& key, const std::string& at, int depth) {
    const Json& value = s.at(key);
    const std::string here = pointer_to(at, key);
    if (key == "$ref") {
      return reference(value, here);
    }
    if (key == "const") {
      TRINE_TRY_ASSIGN(const NodeId one, constant(value, here));
      return one;
    }
    if (!value.is_array() || value.empty()) {
      return wrong(here, "a list with at least one entry expected");
    }
    if (key == "allOf" && value.size() > 1) {
      Json merged = Json::object();
      for (std::size_t i = 0; i < value.size(); ++i) {
        TRINE_TRY(merge(value[i], fmt::format("{}/{}", here, i), merged));
      }
      return schema_node(merged, at, depth + 1);
    }
    std::vector<NodeId> ways;
    for (std::size_t i = 0; i < value.size(); ++i) {
      const std::string place = fmt::format("{}/{}", here, i);
      if (key == "enum") {
        TRINE_TRY_ASSIGN(const NodeId one, constant(value[i], place));
        if (type_allows(s, value[i])) {
          ways.push_back(one);
        }
      } else {
        TRINE_TRY_ASSIGN(const RuleId rule, rule_at(value[i], place, depth + 1));
        ways.push_back(ir_.ref(rule));
      }
    }
    return ir_.alt(ways);
  }

  static bool type_allows(const Json& s, const Json& value) {
    if (!s.contains("type")) {
      return true;
    }
    const Json types = s["type"].is_array() ? s["type"] : Json::array({s["type"]});
    return std::any_of(types.begin(), types.end(), [&](const Json& t) {
      return t == value.type_name() || (t == "integer" && value.is_number_integer());
    });
  }

  // Objects whose keywords do not touch each other add up exactly; anything else is refused.
  Status merge(const Json& from, const std::string& at, Json& into) {
    if (!from.is_object() || !from.contains("properties") ||
        from.value("type", Json("object")) != "object") {
      return refuse(at, "allOf of anything but objects with \"properties\" is not supported");
    }
    for (const auto& [key, value] : from.items()) {
      if (std::find(kAnnotations.begin(), kAnnotations.end(), key) != kAnnotations.end()) {
        continue;
      }
      const std::string here = pointer_to(at, key);
      if (key == "type") {
        into["type"] = value;
      } else if (key == "required" && value.is_array()) {
        for (const Json& name : value) {
          into["required"].push_back(name);
        }
      } else if (key == "properties" && value.is_object()) {
        for (const auto& [name, schema] : value.items()) {
          if (into.contains("properties") && into["properties"].contains(name) &&
              into["properties"][name] != schema) {
            return refuse(pointer_to(here, name),
                          "allOf with two schemas of one property is not supported");
          }
          into["properties"][name] = schema;
        }
      } else {
        return refuse(here, "\"{}\" inside allOf is not supported", key);
      }
    }
    return {};
  }

  Result<NodeId> reference(const Json& value, const std::string& at) {
    if (!value.is_string()) {
      return wrong(at, "a string expected");
    }
    const auto& text = value.get_ref<const std::string&>();
    if (!text.starts_with("#") || (text.size() > 1 && text[1] != '/')) {
      return refuse(at, "\"{}\": only references inside this schema (\"#/...\") are supported",
                    text);
    }
    const Json* target = &root_;
    std::string path = "#";
    for (std::size_t pos = 1; pos < text.size();) {
      const std::size_t end = std::min(text.find('/', pos + 1), text.size());
      std::string key;
      for (std::size_t i = pos + 1; i < end; ++i) {
        const bool tilde =
            text[i] == '~' && i + 1 < end && (text[i + 1] == '0' || text[i + 1] == '1');
        key += !tilde ? text[i] : text[++i] == '0' ? '~' : '/';
      }
      pos = end;
      path = pointer_to(path, key);
      const bool number = !key.empty() && key.size() < 7 &&
                          key.find_first_not_of("0123456789") == std::string::npos;
      if (target->is_object() && target->contains(key)) {
        target = &(*target)[key];
      } else if (target->is_array() && number && std::stoul(key) < target->size()) {
        target = &(*target)[std::stoul(key)];
      } else {
        return wrong(at, "\"{}\" points at nothing", text);
      }
    }
    if (++num_references_ > kMaxChain) {
      return fail(ErrorCode::kExhausted, "schema {}: references chained deeper than {}", at,
                  kMaxChain);
    }
    TRINE_TRY_ASSIGN(const RuleId rule, rule_at(*target, path, 0));
    --num_references_;
    return ir_.ref(rule);
  }

  Result<NodeId> constant(const Json& value, const std::string& at) {
    if (value.is_string()) {
      return ir_.literal(json_quoted(value.get_ref<const std::string&>()));
    }
    if (value.is_structured()) {
      std::vector<NodeId> parts{ir_.literal(value.is_array() ? "[" : "{")};
      for (auto it = value.begin(); it != value.end(); ++it) {
        if (it != value.begin()) {
          parts.push_back(rules_.separator(','));
        }
        if (value.is_object()) {
          parts.push_back(ir_.literal(json_quoted(it.key())));
          parts.push_back(rules_.separator(':'));
        }
        TRINE_TRY_ASSIGN(const NodeId part, constant(*it, at));
        parts.push_back(part);
      }
      parts.push_back(ir_.literal(value.is_array() ? "]" : "}"));
      TRINE_TRY(ir_.check("schema " + at));
      return ir_.seq(parts);
    }
    return ir_.literal(value.dump());
  }

  Result<NodeId> typed(const Json& s, const std::string& at, int depth) {
    std::vector<std::string> types;
    if (s.contains("type")) {
      const Json list = s["type"].is_array() ? s["type"] : Json::array({s["type"]});
      for (const Json& t : list) {
        if (!t.is_string()) {
          return wrong(pointer_to(at, "type"), "a type's name expected");
        }
        types.push_back(t.get<std::string>());
      }
    } else {
      TRINE_TRY_ASSIGN(types, implied_types(s, at));
    }
    const Json nullable = s.value("nullable", Json(false));
    if (!nullable.is_boolean()) {
      return wrong(pointer_to(at, "nullable"), "true or false expected");
    }
    if (nullable.get<bool>()) {
      types.emplace_back("null");
    }
    std::vector<NodeId> ways;
    for (const std::string& type : types) {
      TRINE_TRY_ASSIGN(const NodeId one, one_type(s, type, at, depth));
      ways.push_back(one);
    }
    return ir_.alt(ways);
  }

  // Without "type", keywords of one type speak of values of that type only; those who write them
  // mean the type.
  Result<std::vector<std::string>> implied_types(const Json& s, const std::string& /*at*/) {
    const auto any = [&](std::initializer_list<const char*> keys) {
      return std::any_of(keys.begin(), keys.end(), [&](const char* k) { return s.contains(k); });
    };
    std::vector<std::string> types;
    if (any({"properties", "required", "additionalProperties"})) {
      types.emplace_back("object");
    }
    if (any({"items", "prefixItems", "minItems", "maxItems"})) {
      types.emplace_back("array");
    }
    if (any({"minLength", "maxLength", "pattern", "format"})) {
      types.emplace_back("string");
    }
    if (any({"minimum", "maximum"})) {
      types.emplace_back("integer");
    }
    if (types.empty()) {
      types = {"object", "array", "string", "number", "boolean", "null"};
    }
    return types;
  }

  Result<NodeId> one_type(const Json& s, const std::string& type, const std::string& at,
                          int depth) {
    if (type == "null") {
      return ir_.literal("null");
    }
    if (type == "boolean") {
      return ir_.alt({ir_.literal("true"), ir_.literal("false")});
    }
    if (type == "string") {
      return string_type(s, at);
    }
    if (type == "integer") {
      TRINE_TRY_ASSIGN(const std::int64_t low, bound(s, "minimum", -kLargestInteger, at));
      TRINE_TRY_ASSIGN(const std::int64_t high, bound(s, "maximum", kLargestInteger, at));
      if (low > high) {
        return wrong(at, "no integer from {} to {}", low, high);
      }
      return integer_between(ir_, low, high);
    }
    if (type == "number") {
      for (const char* key : {"minimum", "maximum"}) {
        if (s.contains(key)) {
          return refuse(pointer_to(at, key), "\"{}\" is supported for integers only", key);
        }
      }
      return rules_.number();
    }
    if (type == "array") {
      return array_type(s, at, depth);
    }
    if (type == "object") {
      return object_type(s, at, depth);
    }
    return wrong(pointer_to(at, "type"), "unknown type \"{}\"", type);
  }

  Result<std::int64_t> bound(const Json& s, const char* key, std::int64_t otherwise,
                             const std::string& at) {
    if (!s.contains(key)) {
      return otherwise;
    }
    const Json& v = s[key];
    const double value = v.is_number() ? v.get<double>() : NAN;
    if (!(std::fabs(value) <= 1e18)) {
      return wrong(pointer_to(at, key), "a number from -10^18 to 10^18 expected");
    }
    if (v.is_number_integer()) {
      return v.get<std::int64_t>();
    }
    return static_cast<std::int64_t>(std::string_view(key) == "minimum" ? std::ceil(value)
                                                                        : std::floor(value));
  }

  Result<std::uint32_t> count(const Json& s, const char* key, std::uint32_t otherwise,
                              const std::string& at) {
    if (!s.contains(key)) {
      return otherwise;
    }
    const Json& v = s[key];
    if (!v.is_number_integer() || (!v.is_number_unsigned() && v.get<std::int64_t>() < 0)) {
      return wrong(pointer_to(at, key), "a whole number of at least 0 expected");
    }
    if (v.get<std::uint64_t>() > kMaxRepeat) {
      return fail(ErrorCode::kExhausted, "schema {}: {}, at most {}", pointer_to(at, key),
                  v.get<std::uint64_t>(), kMaxRepeat);
    }
    return v.get<std::uint32_t>();
  }

  Result<NodeId> string_type(const Json& s, const std::string& at) {
    const int kinds = static_cast<int>(s.contains("pattern")) +
                      static_cast<int>(s.contains("format")) +
                      static_cast<int>(s.contains("minLength") || s.contains("maxLength"));
    if (kinds > 1) {
      return refuse(at,
                    "two of \"pattern\", \"format\" and a length in one schema are not supported");
    }
    const NodeId quote = ir_.literal("\"");
    if (s.contains("pattern") || s.contains("format")) {
      const char* key = s.contains("pattern") ? "pattern" : "format";
      const std::string here = pointer_to(at, key);
      if (!s[key].is_string()) {
        return wrong(here, "a string expected");
      }
      std::string pattern = s[key].get<std::string>();
      if (s.contains("format")) {
        const auto* known = std::find_if(kFormats.begin(), kFormats.end(),
                                         [&](const Format& f) { return f.name == pattern; });
        if (known == kFormats.end()) {
          return refuse(here, "format \"{}\" is not supported", pattern);
        }
        pattern = known->pattern;
      }
      TRINE_TRY_ASSIGN(const NodeId body,
                       read_regex(ir_, pattern, RegexUse::kJsonSearch, "schema " + here));
      return ir_.seq({quote, body, quote});
    }
    if (kinds == 0) {
      return ir_.ref(rules_.string());
    }
    TRINE_TRY_ASSIGN(const std::uint32_t min, count(s, "minLength", 0, at));
    TRINE_TRY_ASSIGN(const std::uint32_t max, count(s, "maxLength", kUnbounded, at));
    if (min > max) {
      return wrong(at, "no string of {} to {} characters", min, max);
    }
    return ir_.seq({quote, ir_.repeat(ir_.ref(rules_.any_char()), min, max), quote});
  }

  Result<NodeId> array_type(const Json& s, const std::string& at, int depth) {
    TRINE_TRY_ASSIGN(const std::uint32_t min, count(s, "minItems", 0, at));
    TRINE_TRY_ASSIGN(const std::uint32_t max, count(s, "maxItems", kUnbounded, at));
    if (min > max) {
      return wrong(at, "no array of {} to {} items", min, max);
    }
    std::vector<NodeId> first;
    if (s.contains("prefixItems")) {
      const std::string here = pointer_to(at, "prefixItems");
      if (!s["prefixItems"].is_array()) {
        return wrong(here, "a list expected");
      }
      for (std::size_t i = 0; i < s["prefixItems"].size() && i < max; ++i) {
        TRINE_TRY_ASSIGN(const RuleId rule,
                         rule_at(s["prefixItems"][i], fmt::format("{}/{}", here, i), depth + 1));
        first.push_back(ir_.ref(rule));
      }
    }
    NodeId item = 0;
    bool more = true;
    if (!s.contains("items")) {
      item = ir_.ref(rules_.value());
    } else if (s["items"] == false) {
      more = false;
    } else {
      TRINE_TRY_ASSIGN(const RuleId rule, rule_at(s["items"], pointer_to(at, "items"), depth + 1));
      item = ir_.ref(rule);
    }
    const auto num_first = static_cast<std::uint32_t>(first.size());
    if (!more && min > num_first) {
      return wrong(at, "\"minItems\" {} and no items beyond {}", min, num_first);
    }
    // From the right: what may follow item i, with its comma; the body is one rule, so {m,n} does
    // not copy it.
    NodeId rest = ir_.empty();
    if (more) {
      if (max == kUnbounded || max > num_first) {
        const RuleId rule = ir_.add_rule("");
        const std::uint32_t least = min > num_first ? min - num_first : 0;
        if (num_first == 0) {
          ir_.define(rule, ir_.seq({rules_.separator(','), item}));
          NodeId some = ir_.seq({item, ir_.repeat(ir_.ref(rule), least > 0 ? least - 1 : 0,
                                                  max == kUnbounded ? kUnbounded : max - 1)});
          rest = least == 0 ? ir_.optional(some) : some;
        } else {
          ir_.define(rule, ir_.seq({rules_.separator(','), item}));
          rest = ir_.repeat(ir_.ref(rule), least, max == kUnbounded ? kUnbounded : max - num_first);
        }
      }
    }
    for (std::uint32_t i = num_first; i-- > 0;) {
      rest = i == 0 ? ir_.seq({first[i], rest}) : ir_.seq({rules_.separator(','), first[i], rest});
      if (i >= min) {
        rest = ir_.optional(rest);
      }
    }
    return ir_.seq({ir_.literal("["), rest, ir_.literal("]")});
  }

  // Any string in this module's own spelling that is none of `names`: a trie whose every way out is
  // free.
  NodeId other_key(const std::set<std::u32string>& names, std::size_t depth) {
    const NodeId quote = ir_.literal("\"");
    const NodeId rest =
        ir_.seq({ir_.repeat(json_chars(ir_, complement({})), 0, kUnbounded), quote});
    std::vector<CodeRange> taken;
    std::vector<NodeId> ways;
    bool ends = false;
    for (auto it = names.begin(); it != names.end();) {
      if (it->size() == depth) {
        ends = true;
        ++it;
        continue;
      }
      const char32_t c = (*it)[depth];
      std::set<std::u32string> same;
      for (; it != names.end() && (*it)[depth] == c; ++it) {
        same.insert(*it);
      }
      taken.push_back({c, c});
      ways.push_back(ir_.seq({json_chars(ir_, {{c, c}}), other_key(same, depth + 1)}));
    }
    if (!ends) {
      ways.push_back(quote);
    }
    ways.push_back(ir_.seq({json_chars(ir_, complement(normalize_ranges(taken))), rest}));
    return ir_.alt(ways);
  }

  Result<NodeId> object_type(const Json& s, const std::string& at, int depth) {
    const Json none = Json::object();
    const Json& properties = s.contains("properties") ? s["properties"] : none;
    if (!properties.is_object()) {
      return wrong(pointer_to(at, "properties"), "an object expected");
    }
    std::set<std::string> required;
    const Json required_names = s.value("required", Json::array());
    if (!required_names.is_array()) {
      return wrong(pointer_to(at, "required"), "a list of names expected");
    }
    for (const Json& name : required_names) {
      if (!name.is_string()) {
        return wrong(pointer_to(at, "required"), "a list of names expected");
      }
      if (!properties.contains(name.get<std::string>())) {
        return refuse(pointer_to(at, "required"),
                      "a required property without a schema in \"properties\" is not supported");
      }
      required.insert(name.get<std::string>());
    }
    NodeId extra = ir_.nothing();
    const bool closed = s.contains("additionalProperties") ? s["additionalProperties"] == false
                                                           : !properties.empty();
    if (!closed) {
      std::set<std::u32string> names;
      for (const auto& [name, value] : properties.items()) {
        std::u32string wide;
        for (std::size_t i = 0; i < name.size();) {
          const auto cp = text::code_point_at(name, i);
          wide += cp.value;
          i += cp.size;
        }
        if (wide.size() > kMaxKeyLength) {
          return fail(ErrorCode::kExhausted,
                      "schema {}: a key of {} characters beside additionalProperties, at most {}",
                      pointer_to(at, name), wide.size(), kMaxKeyLength);
        }
        names.insert(std::move(wide));
      }
      NodeId value = ir_.ref(rules_.value());
      if (s.contains("additionalProperties")) {
        TRINE_TRY_ASSIGN(
            const RuleId rule,
            rule_at(s["additionalProperties"], pointer_to(at, "additionalProperties"), depth + 1));
        value = ir_.ref(rule);
      }
      const RuleId member = ir_.add_rule(pointer_to(at, "additionalProperties") + " member");
      ir_.define(member,
                 ir_.seq({ir_.literal("\""), other_key(names, 0), rules_.separator(':'), value}));
      extra = ir_.ref(member);
    }
    TRINE_TRY(ir_.check("schema " + at));
    return members(properties, required, extra, closed, at, depth);
  }

  // Two rules per property: what may follow when nothing stands before it, and when something does.
  Result<NodeId> members(const Json& properties, const std::set<std::string>& required,
                         NodeId extra, bool closed, const std::string& at, int depth) {
    std::vector<std::pair<NodeId, bool>> list;
    for (const auto& [name, schema] : properties.items()) {
      const std::string here = pointer_to(pointer_to(at, "properties"), name);
      TRINE_TRY_ASSIGN(const RuleId rule, rule_at(schema, here, depth + 1));
      const RuleId member = ir_.add_rule(here + " member");
      ir_.define(member,
                 ir_.seq({ir_.literal(json_quoted(name)), rules_.separator(':'), ir_.ref(rule)}));
      list.emplace_back(ir_.ref(member), required.contains(name));
    }
    const NodeId comma = rules_.separator(',');
    NodeId after = closed ? ir_.empty() : ir_.repeat(ir_.seq({comma, extra}), 0, kUnbounded);
    NodeId first = closed ? ir_.empty() : ir_.optional(ir_.seq({extra, after}));
    for (std::size_t i = list.size(); i-- > 0;) {
      const RuleId first_rule = ir_.add_rule(at + " members");
      const RuleId after_rule = ir_.add_rule(at + " members");
      const NodeId one = ir_.seq({list[i].first, after});
      const NodeId next = ir_.seq({comma, list[i].first, after});
      ir_.define(first_rule, list[i].second ? one : ir_.alt({one, first}));
      ir_.define(after_rule, list[i].second ? next : ir_.alt({next, after}));
      first = ir_.ref(first_rule);
      after = ir_.ref(after_rule);
    }
    TRINE_TRY(ir_.check("schema " + at));
    return ir_.seq({ir_.literal("{"), first, ir_.literal("}")});
  }

  static constexpr int kMaxChain = 16;
  static constexpr std::size_t kMaxKeyLength = 64;
  Ir& ir_;
  JsonRules rules_;
  const Json& root_;
  std::unordered_map<std::string, RuleId> places_;
  int num_references_ = 0;
};

}  // namespace

Result<RuleId> read_json_schema(Ir& ir, std::string_view text) {
  TRINE_TRY_ASSIGN(const Json schema,
                   parse_json(text, {.max_depth = 2 * kMaxNesting, .max_bytes = kMaxSourceBytes}));
  return Reader(ir, schema).run();
}

}  // namespace trine::grammar
