// Methods of str, list and dict. Those that change a list or dict are refused by Transformers'
// sandbox but used by some templates written for other engines; docs/chat-templates.md lists the
// difference.
#include <algorithm>

#include "text/jinja/print.h"
#include "text/jinja/runtime.h"
#include "text/jinja/str_builder.h"
#include "text/jinja/unicode.h"

namespace trine::text::jinja {

Result<std::vector<const Value*>> bind(std::string_view function, const CallArgs& args,
                                       std::initializer_list<std::string_view> names,
                                       std::size_t required) {
  std::vector<const Value*> out(names.size(), nullptr);
  if (args.pos.size() > names.size()) {
    return type_error("{}() takes at most {} arguments, got {}", function, names.size(),
                      args.pos.size());
  }
  for (std::size_t i = 0; i < args.pos.size(); ++i) {
    out[i] = &args.pos[i];
  }
  for (const auto& [name, value] : args.named) {
    const auto it = std::find(names.begin(), names.end(), name);
    if (it == names.end()) {
      return type_error("{}() has no parameter '{}'", function, name);
    }
    const auto i = static_cast<std::size_t>(it - names.begin());
    if (out[i] != nullptr) {
      return type_error("{}() got the argument '{}' twice", function, name);
    }
    out[i] = &value;
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (out[i] == nullptr) {
      return type_error("{}() needs the argument '{}'", function, names.begin()[i]);
    }
  }
  return out;
}

Result<std::int64_t> int_arg(const Value* v, std::int64_t otherwise) {
  if (v == nullptr) {
    return otherwise;
  }
  if (v->is_undefined()) {
    return undefined_error(*v);
  }
  if (!v->is_integral()) {
    return type_error("an integer is needed, not {}", kind_name(*v));
  }
  return v->as_int();
}

Result<const Str*> str_arg(const Value* v, std::string_view what) {
  if (v == nullptr || v->is(Kind::kNone)) {
    return nullptr;
  }
  if (v->is_undefined()) {
    return undefined_error(*v);
  }
  if (!v->is_string()) {
    return type_error("{} must be text, not {}", what, kind_name(*v));
  }
  return v->str;
}

namespace {

using Args = CallArgs;

template <Case how>
Result<Value> str_case(Heap& heap, const Value& self, Args& args) {
  TRINE_TRY(bind("case method", args, {}, 0));
  return change_case(heap, *self.str, how);
}

template <bool left, bool right>
Result<Value> str_strip(Heap& heap, const Value& self, Args& args) {
  TRINE_TRY_ASSIGN(const auto a, bind("strip", args, {"chars"}, 0));
  TRINE_TRY_ASSIGN(const Str* chars, str_arg(a[0], "the argument of strip()"));
  return strip_text(heap, *self.str, chars, left, right);
}

template <bool from_right>
Result<Value> str_split(Heap& heap, const Value& self, Args& args) {
  TRINE_TRY_ASSIGN(const auto a, bind("split", args, {"sep", "maxsplit"}, 0));
  TRINE_TRY_ASSIGN(const Str* sep, str_arg(a[0], "the separator of split()"));
  TRINE_TRY_ASSIGN(const std::int64_t max, int_arg(a[1], -1));
  TRINE_TRY_ASSIGN(auto parts, split_text(heap, *self.str, sep, max, from_right));
  return heap.list(std::move(parts));
}

Result<Value> str_splitlines(Heap& heap, const Value& self, Args& args) {
  TRINE_TRY_ASSIGN(const auto a, bind("splitlines", args, {"keepends"}, 0));
  TRINE_TRY_ASSIGN(auto lines, split_lines(heap, *self.str, a[0] != nullptr && truthy(*a[0])));
  return heap.list(std::move(lines));
}

// The stretch of text that optional start and end arguments select.
struct Window {
  std::size_t from = 0;
  std::size_t to = 0;
  bool valid = true;  // false when start lies past the end
};

Result<Window> window(const Str& s, const Value* start, const Value* end) {
  const auto n = static_cast<std::int64_t>(s.num_chars);
  const auto absent = [](const Value* v) { return v == nullptr || v->is(Kind::kNone); };
  TRINE_TRY_ASSIGN(std::int64_t from, absent(start) ? Result<std::int64_t>(0) : int_arg(start, 0));
  TRINE_TRY_ASSIGN(std::int64_t to, absent(end) ? Result<std::int64_t>(n) : int_arg(end, n));
  from = from < 0 ? std::max<std::int64_t>(0, from + n) : from;
  to = to < 0 ? std::max<std::int64_t>(0, to + n) : std::min(to, n);
  Window w;
  w.valid = from <= n && from <= to;
  w.from = byte_offset(s, static_cast<std::size_t>(std::min(from, n)));
  w.to = std::max(w.from, byte_offset(s, static_cast<std::size_t>(to)));
  return w;
}

template <bool at_start>
Result<Value> str_affix(Heap& heap, const Value& self, Args& args) {
  TRINE_TRY_ASSIGN(const auto a, bind("startswith", args, {"prefix", "start", "end"}, 1));
  TRINE_TRY_ASSIGN(const Window w, window(*self.str, a[1], a[2]));
  const auto text = std::string_view(self.str->text).substr(w.from, w.to - w.from);
  std::vector<Value> affixes{*a[0]};
  if (a[0]->is(Kind::kTuple)) {
    affixes = a[0]->list->items;
  }
  for (const Value& affix : affixes) {
    TRINE_TRY_ASSIGN(const Str* s, str_arg(&affix, "a prefix or suffix"));
    if (s == nullptr) {
      return type_error("a prefix or suffix must be text, not NoneType");
    }
    TRINE_TRY(heap.text_work(s->text.size()));
    if (w.valid && (at_start ? text.starts_with(s->text) : text.ends_with(s->text))) {
      return Value::of_bool(true);
    }
  }
  return Value::of_bool(false);
}

Result<Value> str_replace(Heap& heap, const Value& self, Args& args) {
  TRINE_TRY_ASSIGN(const auto a, bind("replace", args, {"old", "new", "count"}, 2));
  TRINE_TRY_ASSIGN(const Str* old, str_arg(a[0], "the first argument of replace()"));
  TRINE_TRY_ASSIGN(const Str* with, str_arg(a[1], "the second argument of replace()"));
  TRINE_TRY_ASSIGN(const std::int64_t count, int_arg(a[2], -1));
  if (old == nullptr || with == nullptr) {
    return type_error("the arguments of replace() must be text");
  }
  return replace_text(heap, *self.str, *old, *with, count);
}

template <bool from_right, bool required>
Result<Value> str_find(Heap& heap, const Value& self, Args& args) {
  TRINE_TRY_ASSIGN(const auto a, bind("find", args, {"sub", "start", "end"}, 1));
  TRINE_TRY_ASSIGN(const Str* sub, str_arg(a[0], "the argument of find()"));
  if (sub == nullptr) {
    return type_error("the argument of find() must be text");
  }
  TRINE_TRY_ASSIGN(const Window w, window(*self.str, a[1], a[2]));
  TRINE_TRY(heap.text_work(self.str->text.size()));
  const auto text = std::string_view(self.str->text).substr(w.from, w.to - w.from);
  std::size_t hit = std::string_view::npos;
  if (w.valid) {
    hit = from_right ? rfind_text(text, sub->text) : find_text(text, sub->text);
  }
  if (hit == std::string_view::npos) {
    if (required) {
      return type_error("the text to find is not there");
    }
    return Value::of_int(-1);
  }
  const auto before = std::string_view(self.str->text).substr(0, w.from + hit);
  return Value::of_int(static_cast<std::int64_t>(count_code_points(before)));
}

Result<Value> str_count(Heap& heap, const Value& self, Args& args) {
  TRINE_TRY_ASSIGN(const auto a, bind("count", args, {"sub", "start", "end"}, 1));
  TRINE_TRY_ASSIGN(const Str* sub, str_arg(a[0], "the argument of count()"));
  if (sub == nullptr) {
    return type_error("the argument of count() must be text");
  }
  TRINE_TRY_ASSIGN(const Window w, window(*self.str, a[1], a[2]));
  TRINE_TRY(heap.text_work(self.str->text.size()));
  const auto text = std::string_view(self.str->text).substr(w.from, w.to - w.from);
  std::int64_t n = 0;
  if (!w.valid) {
    return Value::of_int(0);
  }
  if (sub->text.empty()) {
    return Value::of_int(static_cast<std::int64_t>(count_code_points(text)) + 1);
  }
  for (std::size_t pos = 0;; ++n) {
    pos = find_text(text, sub->text, pos);
    if (pos == std::string_view::npos) {
      return Value::of_int(n);
    }
    pos += sub->text.size();
  }
}

Result<Value> str_join(Heap& heap, const Value& self, Args& args) {
  TRINE_TRY_ASSIGN(const auto a, bind("join", args, {"iterable"}, 1));
  TRINE_TRY_ASSIGN(const auto items, iterate(heap, *a[0]));
  StrBuilder out(heap);
  out.set_markup(self.str->markup);
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) {
      out.add(*self.str);
    }
    if (!items[i].is_string()) {
      return type_error("join() needs texts, element {} is {}", i, kind_name(items[i]));
    }
    TRINE_TRY(heap.text_work(items[i].str->text.size() + self.str->text.size()));
    out.add(*items[i].str);
    TRINE_TRY(out.check());
  }
  return out.value();
}

// Field of str.format(): "0.name[key]!r:spec" without its braces.
Status format_field(Heap& heap, StrBuilder& out, std::string_view field, Args& args,
                    std::size_t& automatic) {
  const std::size_t colon = field.find(':');
  const std::string_view spec = colon == std::string_view::npos ? "" : field.substr(colon + 1);
  std::string_view name = field.substr(0, colon);
  char conversion = '\0';
  if (name.size() >= 2 && name[name.size() - 2] == '!') {
    conversion = name.back();
    name.remove_suffix(2);
  }
  const std::size_t end = std::min(name.find_first_of(".["), name.size());
  const std::string_view first = name.substr(0, end);
  Value v;
  const bool numeric =
      !first.empty() && first.find_first_not_of("0123456789") == std::string_view::npos;
  if (first.empty() || numeric) {
    std::size_t index = automatic;
    if (numeric) {
      TRINE_TRY_ASSIGN(const auto parsed, parse_int(first, 10));
      index = static_cast<std::size_t>(parsed.value_or(INT64_MAX));
    } else {
      ++automatic;
    }
    if (index >= args.pos.size()) {
      return type_error("format() has no argument {}", index);
    }
    v = args.pos[index];
  } else {
    const Value* found = args.find_named(first);
    if (found == nullptr) {
      return type_error("format() has no argument '{}'", first);
    }
    v = *found;
  }
  std::string_view rest = name.substr(end);
  while (!rest.empty()) {
    const bool subscript = rest[0] == '[';
    const std::size_t stop =
        subscript ? rest.find(']') : std::min(rest.find_first_of(".[", 1), rest.size());
    if (stop == std::string_view::npos || stop < 2) {
      return type_error("invalid field '{}' in format()", field);
    }
    const std::string_view key = rest.substr(1, stop - 1);
    if (subscript) {
      TRINE_TRY_ASSIGN(const auto parsed, parse_int(key, 10));
      TRINE_TRY_ASSIGN(
          Value k, parsed.has_value() ? Result<Value>(Value::of_int(*parsed)) : heap.string(key));
      TRINE_TRY_ASSIGN(v, get_item(heap, v, k));
    } else {
      TRINE_TRY_ASSIGN(v, get_attr(heap, v, key));
    }
    rest.remove_prefix(subscript ? stop + 1 : stop);
  }
  if (conversion == 'r' || conversion == 's') {
    StrBuilder b(heap);
    TRINE_TRY(conversion == 'r' ? append_repr(heap, b, v) : append_str(heap, b, v));
    TRINE_TRY_ASSIGN(v, b.value());
  } else if (conversion != '\0') {
    return type_error("unknown conversion '!{}' in format()", conversion);
  }
  return append_formatted(heap, out, v, spec);
}

Result<Value> str_format(Heap& heap, const Value& self, Args& args) {
  const std::string_view text = self.str->text;
  StrBuilder out(heap);
  out.set_markup(self.str->markup);
  std::size_t automatic = 0;
  for (std::size_t i = 0; i < text.size();) {
    TRINE_TRY(heap.step());
    const std::size_t brace = std::min(text.find_first_of("{}", i), text.size());
    out.add(*self.str, i, brace);
    if (brace == text.size()) {
      break;
    }
    if (brace + 1 < text.size() && text[brace + 1] == text[brace]) {
      out.add(*self.str, brace, brace + 1);
      i = brace + 2;
      continue;
    }
    const std::size_t end = text.find_first_of("{}", brace + 1);
    if (text[brace] == '}' || end == std::string_view::npos || text[end] == '{') {
      return type_error("unmatched or nested braces in the format '{}'", text);
    }
    TRINE_TRY(format_field(heap, out, text.substr(brace + 1, end - brace - 1), args, automatic));
    TRINE_TRY(out.check());
    i = end + 1;
  }
  return out.value();
}

using CharTest = bool (*)(char32_t);

template <CharTest test>
Result<Value> str_all(Heap& heap, const Value& self, Args& args) {
  TRINE_TRY(bind("character test", args, {}, 0));
  TRINE_TRY(heap.text_work(self.str->text.size()));
  bool all = !self.str->text.empty();
  for (std::size_t pos = 0; all && pos < self.str->text.size();) {
    all = test(next_code_point(self.str->text, pos));
  }
  return Value::of_bool(all);
}

template <bool upper>
Result<Value> str_cased(Heap& heap, const Value& self, Args& args) {
  TRINE_TRY(bind("case test", args, {}, 0));
  TRINE_TRY(heap.text_work(self.str->text.size()));
  bool any = false;
  for (std::size_t pos = 0; pos < self.str->text.size();) {
    const char32_t c = next_code_point(self.str->text, pos);
    if (is_title(c) || (upper ? is_lower(c) : is_upper(c))) {
      return Value::of_bool(false);
    }
    any |= upper ? is_upper(c) : is_lower(c);
  }
  return Value::of_bool(any);
}

Result<Value> str_istitle(Heap& heap, const Value& self, Args& args) {
  TRINE_TRY(bind("istitle", args, {}, 0));
  TRINE_TRY(heap.text_work(self.str->text.size()));
  bool any = false;
  bool previous = false;
  for (std::size_t pos = 0; pos < self.str->text.size();) {
    const char32_t c = next_code_point(self.str->text, pos);
    const bool start = is_upper(c) || is_title(c);
    if ((start && previous) || (is_lower(c) && !previous)) {
      return Value::of_bool(false);
    }
    previous = is_cased(c);
    any |= previous;
  }
  return Value::of_bool(any);
}

template <bool prefix>
Result<Value> str_remove(Heap& heap, const Value& self, Args& args) {
  TRINE_TRY_ASSIGN(const auto a, bind("removeprefix", args, {"affix"}, 1));
  TRINE_TRY_ASSIGN(const Str* affix, str_arg(a[0], "the argument of removeprefix()"));
  if (affix == nullptr) {
    return type_error("the argument of removeprefix() must be text");
  }
  const std::string_view text = self.str->text;
  const std::size_t n = affix->text.size();
  if (prefix) {
    return text.starts_with(affix->text) ? substring(heap, *self.str, n, text.size())
                                         : Result<Value>(self);
  }
  return text.ends_with(affix->text) ? substring(heap, *self.str, 0, text.size() - n)
                                     : Result<Value>(self);
}

template <bool from_right>
Result<Value> str_partition(Heap& heap, const Value& self, Args& args) {
  TRINE_TRY_ASSIGN(const auto a, bind("partition", args, {"sep"}, 1));
  TRINE_TRY_ASSIGN(const Str* sep, str_arg(a[0], "the argument of partition()"));
  if (sep == nullptr || sep->text.empty()) {
    return type_error("the argument of partition() must be text and not empty");
  }
  TRINE_TRY(heap.text_work(self.str->text.size()));
  const std::string_view text = self.str->text;
  const std::size_t hit = from_right ? rfind_text(text, sep->text) : find_text(text, sep->text);
  TRINE_TRY_ASSIGN(Value empty, substring(heap, *self.str, 0, 0));
  if (hit == std::string_view::npos) {
    return from_right ? heap.list({empty, empty, self}, false, true)
                      : heap.list({self, empty, empty}, false, true);
  }
  const std::size_t end = hit + sep->text.size();
  TRINE_TRY_ASSIGN(Value before, substring(heap, *self.str, 0, hit));
  TRINE_TRY_ASSIGN(Value middle, substring(heap, *self.str, hit, end));
  TRINE_TRY_ASSIGN(Value after, substring(heap, *self.str, end, text.size()));
  return heap.list({before, middle, after}, false, true);
}

template <char align>
Result<Value> str_pad(Heap& heap, const Value& self, Args& args) {
  TRINE_TRY_ASSIGN(const auto a, bind("ljust", args, {"width", "fillchar"}, 1));
  TRINE_TRY_ASSIGN(const std::int64_t width, int_arg(a[0], 0));
  TRINE_TRY_ASSIGN(const Str* fill, str_arg(a[1], "the fill character"));
  return pad_text(heap, *self.str, width, fill, align);
}

Result<Value> str_zfill(Heap& heap, const Value& self, Args& args) {
  TRINE_TRY_ASSIGN(const auto a, bind("zfill", args, {"width"}, 1));
  TRINE_TRY_ASSIGN(const std::int64_t width, int_arg(a[0], 0));
  const Str& s = *self.str;
  const std::size_t sign = !s.text.empty() && (s.text[0] == '-' || s.text[0] == '+') ? 1 : 0;
  const auto size = static_cast<std::int64_t>(s.num_chars);
  StrBuilder out(heap);
  out.add(s, 0, sign);
  out.repeat("0", width > size ? static_cast<std::size_t>(width - size) : 0, false);
  out.add(s, sign, s.text.size());
  return out.value();
}

// ---- lists

Result<Value> list_append(Heap& heap, const Value& self, Args& args) {
  TRINE_TRY_ASSIGN(const auto a, bind("append", args, {"item"}, 1));
  TRINE_TRY(heap.charge(sizeof(Value)));
  self.list->items.push_back(*a[0]);
  return Value::none();
}

Result<Value> list_extend(Heap& heap, const Value& self, Args& args) {
  TRINE_TRY_ASSIGN(const auto a, bind("extend", args, {"items"}, 1));
  TRINE_TRY_ASSIGN(const auto items, iterate(heap, *a[0]));
  TRINE_TRY(heap.charge(items.size() * sizeof(Value)));
  self.list->items.insert(self.list->items.end(), items.begin(), items.end());
  return Value::none();
}

Result<Value> list_insert(Heap& heap, const Value& self, Args& args) {
  TRINE_TRY_ASSIGN(const auto a, bind("insert", args, {"index", "item"}, 2));
  TRINE_TRY_ASSIGN(std::int64_t at, int_arg(a[0], 0));
  const auto n = static_cast<std::int64_t>(self.list->items.size());
  at = at < 0 ? std::max<std::int64_t>(0, at + n) : std::min(at, n);
  TRINE_TRY(heap.charge(sizeof(Value)));
  TRINE_TRY(heap.step(1 + (n - at) / 16));
  self.list->items.insert(self.list->items.begin() + at, *a[1]);
  return Value::none();
}

Result<Value> list_pop(Heap& heap, const Value& self, Args& args) {
  TRINE_TRY_ASSIGN(const auto a, bind("pop", args, {"index"}, 0));
  TRINE_TRY_ASSIGN(std::int64_t at, int_arg(a[0], -1));
  const auto n = static_cast<std::int64_t>(self.list->items.size());
  at = at < 0 ? at + n : at;
  if (at < 0 || at >= n) {
    return type_error("pop() from a place the list does not have");
  }
  TRINE_TRY(heap.step(1 + (n - at) / 16));
  const Value out = self.list->items[static_cast<std::size_t>(at)];
  self.list->items.erase(self.list->items.begin() + at);
  return out;
}

Result<std::size_t> find_in_list(Heap& heap, const std::vector<Value>& items, const Value& what) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    TRINE_TRY_ASSIGN(const bool same, equals(heap, items[i], what));
    if (same) {
      return i;
    }
  }
  return kNotFound;
}

Result<Value> list_index(Heap& heap, const Value& self, Args& args) {
  TRINE_TRY_ASSIGN(const auto a, bind("index", args, {"item"}, 1));
  TRINE_TRY_ASSIGN(const auto items, iterate(heap, self));
  TRINE_TRY_ASSIGN(const std::size_t i, find_in_list(heap, items, *a[0]));
  if (i == kNotFound) {
    return type_error("index(): the item is not in the list");
  }
  return Value::of_int(static_cast<std::int64_t>(i));
}

Result<Value> list_remove(Heap& heap, const Value& self, Args& args) {
  TRINE_TRY_ASSIGN(const auto a, bind("remove", args, {"item"}, 1));
  TRINE_TRY_ASSIGN(const std::size_t i, find_in_list(heap, self.list->items, *a[0]));
  if (i == kNotFound) {
    return type_error("remove(): the item is not in the list");
  }
  self.list->items.erase(self.list->items.begin() + static_cast<std::ptrdiff_t>(i));
  return Value::none();
}

Result<Value> list_count(Heap& heap, const Value& self, Args& args) {
  TRINE_TRY_ASSIGN(const auto a, bind("count", args, {"item"}, 1));
  TRINE_TRY_ASSIGN(const auto items, iterate(heap, self));
  std::int64_t n = 0;
  for (const Value& item : items) {
    TRINE_TRY_ASSIGN(const bool same, equals(heap, item, *a[0]));
    n += same ? 1 : 0;
  }
  return Value::of_int(n);
}

Result<Value> list_copy(Heap& heap, const Value& self, Args& args) {
  TRINE_TRY(bind("copy", args, {}, 0));
  return heap.list(self.list->items, self.list->user);
}

Result<Value> list_reverse(Heap& heap, const Value& self, Args& args) {
  TRINE_TRY(bind("reverse", args, {}, 0));
  TRINE_TRY(heap.step(static_cast<std::int64_t>(self.list->items.size() / 8)));
  std::reverse(self.list->items.begin(), self.list->items.end());
  return Value::none();
}

Result<Value> list_clear(Heap&, const Value& self, Args& args) {
  TRINE_TRY(bind("clear", args, {}, 0));
  self.list->items.clear();
  return Value::none();
}

// ---- dicts

template <ViewKind what>
Result<Value> dict_view(Heap& heap, const Value& self, Args& args) {
  TRINE_TRY(bind("items", args, {}, 0));
  View* view = heap.make<View>();
  view->dict = self.dict;
  view->what = what;
  Value v;
  v.kind = Kind::kView;
  v.view = view;
  return v;
}

Result<Value> dict_get(Heap& heap, const Value& self, Args& args) {
  TRINE_TRY_ASSIGN(const auto a, bind("get", args, {"key", "default"}, 1));
  TRINE_TRY_ASSIGN(const std::size_t i, dict_find(heap, *self.dict, *a[0]));
  return i != kNotFound ? self.dict->items[i].second : a[1] != nullptr ? *a[1] : Value::none();
}

Result<Value> dict_setdefault(Heap& heap, const Value& self, Args& args) {
  TRINE_TRY_ASSIGN(const auto a, bind("setdefault", args, {"key", "default"}, 1));
  TRINE_TRY_ASSIGN(const std::size_t i, dict_find(heap, *self.dict, *a[0]));
  if (i != kNotFound) {
    return self.dict->items[i].second;
  }
  const Value v = a[1] != nullptr ? *a[1] : Value::none();
  TRINE_TRY(dict_set(heap, *self.dict, *a[0], v));
  return v;
}

Result<Value> dict_pop(Heap& heap, const Value& self, Args& args) {
  TRINE_TRY_ASSIGN(const auto a, bind("pop", args, {"key", "default"}, 1));
  TRINE_TRY_ASSIGN(const std::size_t i, dict_find(heap, *self.dict, *a[0]));
  if (i == kNotFound) {
    if (a[1] == nullptr) {
      return type_error("pop(): the dictionary lacks the key");
    }
    return *a[1];
  }
  TRINE_TRY(heap.step(static_cast<std::int64_t>(self.dict->items.size())));
  const Value out = self.dict->items[i].second;
  self.dict->items.erase(self.dict->items.begin() + static_cast<std::ptrdiff_t>(i));
  self.dict->rebuild_index();
  return out;
}

Result<Value> dict_update(Heap& heap, const Value& self, Args& args) {
  if (args.pos.size() > 1) {
    return type_error("update() takes at most one argument");
  }
  if (!args.pos.empty()) {
    const Value& other = args.pos[0];
    if (!other.is(Kind::kDict)) {
      return type_error("update() needs a mapping, not {}", kind_name(other));
    }
    const auto items = other.dict->items;
    for (const auto& [key, value] : items) {
      TRINE_TRY(dict_set(heap, *self.dict, key, value));
    }
  }
  for (const auto& [name, value] : args.named) {
    TRINE_TRY_ASSIGN(Value key, heap.string(name));
    TRINE_TRY(dict_set(heap, *self.dict, key, value));
  }
  return Value::none();
}

Result<Value> dict_copy(Heap& heap, const Value& self, Args& args) {
  TRINE_TRY(bind("copy", args, {}, 0));
  TRINE_TRY(heap.charge(self.dict->items.size() * sizeof(std::pair<Value, Value>)));
  TRINE_TRY(heap.step(static_cast<std::int64_t>(self.dict->items.size())));
  Dict* d = heap.make<Dict>();
  d->items = self.dict->items;
  d->user = self.dict->user;
  d->rebuild_index();
  return Value::of(d);
}

Result<Value> dict_clear(Heap&, const Value& self, Args& args) {
  TRINE_TRY(bind("clear", args, {}, 0));
  self.dict->items.clear();
  self.dict->index.clear();
  return Value::none();
}

struct Entry {
  std::string_view name;
  BuiltinFn fn;
};

constexpr Entry kStrMethods[] = {
    {"strip", str_strip<true, true>},
    {"lstrip", str_strip<true, false>},
    {"rstrip", str_strip<false, true>},
    {"split", str_split<false>},
    {"rsplit", str_split<true>},
    {"splitlines", str_splitlines},
    {"startswith", str_affix<true>},
    {"endswith", str_affix<false>},
    {"replace", str_replace},
    {"upper", str_case<Case::kUpper>},
    {"lower", str_case<Case::kLower>},
    {"title", str_case<Case::kTitle>},
    {"swapcase", str_case<Case::kSwap>},
    {"capitalize", str_case<Case::kCapitalize>},
    {"find", str_find<false, false>},
    {"rfind", str_find<true, false>},
    {"index", str_find<false, true>},
    {"rindex", str_find<true, true>},
    {"count", str_count},
    {"join", str_join},
    {"format", str_format},
    {"isdigit", str_all<is_digit>},
    {"isalpha", str_all<is_alpha>},
    {"isspace", str_all<is_space>},
    {"isalnum", str_all<is_alnum>},
    {"isdecimal", str_all<is_decimal>},
    {"isnumeric", str_all<is_numeric>},
    {"isupper", str_cased<true>},
    {"islower", str_cased<false>},
    {"istitle", str_istitle},
    {"removeprefix", str_remove<true>},
    {"removesuffix", str_remove<false>},
    {"partition", str_partition<false>},
    {"rpartition", str_partition<true>},
    {"ljust", str_pad<'<'>},
    {"rjust", str_pad<'>'>},
    {"center", str_pad<'^'>},
    {"zfill", str_zfill},
};

constexpr Entry kListMethods[] = {
    {"append", list_append}, {"extend", list_extend},   {"insert", list_insert},
    {"pop", list_pop},       {"remove", list_remove},   {"index", list_index},
    {"count", list_count},   {"reverse", list_reverse}, {"copy", list_copy},
    {"clear", list_clear},
};

constexpr Entry kTupleMethods[] = {{"index", list_index}, {"count", list_count}};

constexpr Entry kDictMethods[] = {
    {"get", dict_get},       {"items", dict_view<ViewKind::kItems>},
    {"pop", dict_pop},       {"keys", dict_view<ViewKind::kKeys>},
    {"update", dict_update}, {"values", dict_view<ViewKind::kValues>},
    {"copy", dict_copy},     {"setdefault", dict_setdefault},
    {"clear", dict_clear},
};

template <std::size_t N>
BuiltinFn find_in(const Entry (&table)[N], std::string_view name) {
  for (const Entry& e : table) {
    if (e.name == name) {
      return e.fn;
    }
  }
  return nullptr;
}

}  // namespace

BuiltinFn find_method(const Value& self, std::string_view name) {
  switch (self.kind) {
    case Kind::kString:
      return find_in(kStrMethods, name);
    case Kind::kList:
      return find_in(kListMethods, name);
    case Kind::kTuple:
    case Kind::kRange:
      return find_in(kTupleMethods, name);
    case Kind::kDict:
      return find_in(kDictMethods, name);
    default:
      return nullptr;
  }
}

}  // namespace trine::text::jinja
