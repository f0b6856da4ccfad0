#include "text/jinja/value.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "text/jinja/str_builder.h"
#include "text/jinja/unicode.h"

namespace trine::text::jinja {

bool Str::any_user() const {
  return std::any_of(runs.begin(), runs.end(), [](const Run& r) { return r.user; });
}

bool Str::user_at(std::size_t byte) const {
  const auto it = std::upper_bound(runs.begin(), runs.end(), byte,
                                   [](std::size_t b, const Run& r) { return b < r.end; });
  return it != runs.end() && it->user;
}

std::size_t Dict::find_index(std::string_view key) const {
  if (!index.empty()) {
    const auto it = index.find(key);
    return it == index.end() ? kNotFound : it->second;
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (items[i].first.is_string() && items[i].first.str->text == key) {
      return i;
    }
  }
  return kNotFound;
}

const Value* Dict::find(std::string_view key) const {
  const std::size_t i = find_index(key);
  return i == kNotFound ? nullptr : &items[i].second;
}

void Dict::rebuild_index() {
  constexpr std::size_t kIndexFrom = 12;
  index.clear();
  if (items.size() < kIndexFrom) {
    return;
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (items[i].first.is_string()) {
      index.emplace(items[i].first.str->text, i);
    }
  }
}

const Value* CallArgs::find_named(std::string_view name) const {
  for (const auto& [n, v] : named) {
    if (n == name) {
      return &v;
    }
  }
  return nullptr;
}

Result<Value> Callable::attr(Heap&, std::string_view) {
  return Value();
}

Status Heap::out_of_steps() const {
  if (used_ >= limits_.heap_bytes) {
    return out_of_memory();
  }
  return fail(ErrorCode::kExhausted, "the template takes more steps than allowed");
}

Status Heap::out_of_memory() const {
  return fail(ErrorCode::kExhausted, "the template builds more than {} bytes of values",
              limits_.heap_bytes);
}

Status Heap::Level::check() const {
  if (heap_.depth_ > heap_.limits_.depth) {
    return fail(ErrorCode::kExhausted, "the template recurses deeper than {} levels",
                heap_.limits_.depth);
  }
  return {};
}

Result<Value> Heap::list(std::vector<Value> items, bool user, bool tuple) {
  TRINE_TRY(charge(items.size() * sizeof(Value)));
  List* list = make<List>();
  list->items = std::move(items);
  list->user = user;
  return Value::of(list, tuple);
}

Value Heap::undefined(std::string message, bool from_input) {
  auto* info = make<UndefinedInfo>();
  info->message = std::move(message);
  info->from_input = from_input;
  Value v;
  v.undefined = info;
  return v;
}

Result<Value> Heap::string(std::string_view text, bool user) {
  StrBuilder b(*this);
  b.add(text, user);
  return b.value();
}

Value Heap::iterator(std::function<Result<std::vector<Value>>()> produce) {
  auto* it = make<Iterator>();
  it->produce = std::move(produce);
  Value v;
  v.kind = Kind::kIterator;
  v.iterator = it;
  return v;
}

std::string_view kind_name(const Value& v) {
  switch (v.kind) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kView:
      return v.view->what == ViewKind::kKeys     ? "dict_keys"
             : v.view->what == ViewKind::kValues ? "dict_values"
                                                 : "dict_items";
    case Kind::kRange:
      return "range";
    case Kind::kIterator:
      return "generator";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kCallable:
      return "function";
    case Kind::kLoop:
      return "LoopContext";
  }
  return "object";
}

bool truthy(const Value& v) {
  switch (v.kind) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
      return v.b;
    case Kind::kInt:
      return v.i != 0;
    case Kind::kFloat:
      return v.d != 0.0;
    case Kind::kString:
      return !v.str->text.empty();
    case Kind::kList:
    case Kind::kTuple:
      return !v.list->items.empty();
    case Kind::kDict:
      return !v.dict->items.empty();
    case Kind::kView:
      return !v.view->dict->items.empty();
    case Kind::kRange:
      return v.range->size > 0;
    case Kind::kIterator:
    case Kind::kNamespace:
    case Kind::kCallable:
    case Kind::kLoop:
      return true;
  }
  return true;
}

tl::unexpected<Error> undefined_error(const Value& v) {
  const bool input = v.undefined != nullptr && v.undefined->from_input;
  return fail(input ? ErrorCode::kInvalidArgument : ErrorCode::kCorruptData, "{}",
              v.undefined != nullptr ? v.undefined->message : std::string("value is undefined"));
}

namespace {

Status check_depth(int depth) {
  if (depth > kMaxDataDepth) {
    return fail(ErrorCode::kExhausted, "values nest deeper than {}", kMaxDataDepth);
  }
  return {};
}

// Exact, also where a 64-bit integer has no double.
int compare_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) {
    const std::int64_t x = a.as_int();
    const std::int64_t y = b.as_int();
    return x < y ? -1 : x > y ? 1 : 0;
  }
  if (a.is_integral()) {
    return -compare_numbers(b, a);
  }
  if (b.is_integral() && std::abs(a.d) < 9.2e18) {
    const double floor = std::floor(a.d);
    const auto x = static_cast<std::int64_t>(floor);
    const std::int64_t y = b.as_int();
    return x < y ? -1 : x > y ? 1 : (a.d > floor ? 1 : 0);
  }
  const double x = a.as_double();
  const double y = b.as_double();
  return x < y ? -1 : x > y ? 1 : 0;
}

bool has_nan(const Value& v) {
  return v.is(Kind::kFloat) && std::isnan(v.d);
}

Result<bool> equal_dicts(Heap& heap, const Dict& a, const Dict& b, int depth) {
  if (a.items.size() != b.items.size()) {
    return false;
  }
  for (const auto& [key, value] : a.items) {
    TRINE_TRY_ASSIGN(const std::size_t at, dict_find(heap, b, key));
    if (at == kNotFound) {
      return false;
    }
    TRINE_TRY_ASSIGN(const bool same, equals(heap, value, b.items[at].second, depth + 1));
    if (!same) {
      return false;
    }
  }
  return true;
}

}  // namespace

Result<bool> equals(Heap& heap, const Value& a, const Value& b, int depth) {
  TRINE_TRY(heap.step());
  TRINE_TRY(check_depth(depth));
  if (a.is_number() && b.is_number()) {
    return !has_nan(a) && !has_nan(b) && compare_numbers(a, b) == 0;
  }
  if (a.kind != b.kind) {
    return false;
  }
  switch (a.kind) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      if (a.str->text.size() != b.str->text.size()) {
        return false;
      }
      TRINE_TRY(heap.text_work(a.str->text.size()));
      return a.str->text == b.str->text;
    case Kind::kList:
    case Kind::kTuple:
      if (a.list == b.list) {
        return true;
      }
      if (a.list->items.size() != b.list->items.size()) {
        return false;
      }
      for (std::size_t i = 0; i < a.list->items.size(); ++i) {
        TRINE_TRY_ASSIGN(const bool same,
                         equals(heap, a.list->items[i], b.list->items[i], depth + 1));
        if (!same) {
          return false;
        }
      }
      return true;
    case Kind::kDict:
      return a.dict == b.dict ? Result<bool>(true) : equal_dicts(heap, *a.dict, *b.dict, depth);
    case Kind::kRange:
      return a.range->size == b.range->size &&
             (a.range->size == 0 || (a.range->start == b.range->start &&
                                     (a.range->size == 1 || a.range->step == b.range->step)));
    case Kind::kView: {
      // Keys and items are sets; values compare by identity.
      if (a.view == b.view) {
        return true;
      }
      if (a.view->what != b.view->what || a.view->what == ViewKind::kValues ||
          a.view->dict->items.size() != b.view->dict->items.size()) {
        return false;
      }
      for (const auto& [key, value] : a.view->dict->items) {
        TRINE_TRY_ASSIGN(const std::size_t at, dict_find(heap, *b.view->dict, key));
        if (at == kNotFound) {
          return false;
        }
        if (a.view->what == ViewKind::kItems) {
          TRINE_TRY_ASSIGN(const bool same,
                           equals(heap, value, b.view->dict->items[at].second, depth + 1));
          if (!same) {
            return false;
          }
        }
      }
      return true;
    }
    default:
      return a.ns == b.ns;
  }
}

Result<int> compare(Heap& heap, const Value& a, const Value& b, int depth) {
  TRINE_TRY(heap.step());
  TRINE_TRY(check_depth(depth));
  if (a.is_undefined()) {
    return undefined_error(a);
  }
  if (b.is_undefined()) {
    return undefined_error(b);
  }
  if (a.is_number() && b.is_number()) {
    return compare_numbers(a, b);
  }
  if (a.is_string() && b.is_string()) {
    TRINE_TRY(heap.text_work(std::min(a.str->text.size(), b.str->text.size())));
    const int c = a.str->text.compare(b.str->text);  // byte order is code point order in UTF-8
    return c < 0 ? -1 : c > 0 ? 1 : 0;
  }
  if (a.kind == b.kind && (a.is(Kind::kList) || a.is(Kind::kTuple))) {
    const auto& x = a.list->items;
    const auto& y = b.list->items;
    for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      TRINE_TRY_ASSIGN(const bool same, equals(heap, x[i], y[i], depth + 1));
      if (!same) {
        return compare(heap, x[i], y[i], depth + 1);
      }
    }
    return x.size() < y.size() ? -1 : x.size() > y.size() ? 1 : 0;
  }
  return type_error("'<' is not possible between {} and {}", kind_name(a), kind_name(b));
}

Status check_hashable(const Value& key, int depth) {
  TRINE_TRY(check_depth(depth));
  if (key.is(Kind::kTuple)) {
    for (const Value& item : key.list->items) {
      TRINE_TRY(check_hashable(item, depth + 1));
    }
  } else if (key.is(Kind::kList) || key.is(Kind::kDict) ||
             (key.is(Kind::kView) && key.view->what != ViewKind::kValues)) {
    return type_error("a {} cannot be a dictionary key", kind_name(key));
  }
  return {};
}

Result<std::size_t> dict_find(Heap& heap, const Dict& dict, const Value& key) {
  TRINE_TRY(check_hashable(key));
  if (key.is_string()) {
    TRINE_TRY(heap.text_work(key.str->text.size()));
    return dict.find_index(key.str->text);
  }
  for (std::size_t i = 0; i < dict.items.size(); ++i) {
    if (dict.items[i].first.is_string()) {
      continue;
    }
    TRINE_TRY_ASSIGN(const bool same, equals(heap, dict.items[i].first, key));
    if (same) {
      return i;
    }
  }
  TRINE_TRY(heap.step(static_cast<std::int64_t>(dict.items.size() / 16)));
  return kNotFound;
}

Status dict_set(Heap& heap, Dict& dict, const Value& key, const Value& value) {
  TRINE_TRY_ASSIGN(const std::size_t at, dict_find(heap, dict, key));
  if (at != kNotFound) {
    dict.items[at].second = value;
    return {};
  }
  TRINE_TRY(heap.charge(sizeof(std::pair<Value, Value>) + 64));
  dict.items.emplace_back(key, value);
  if (!dict.index.empty()) {
    if (key.is_string()) {
      dict.index.emplace(key.str->text, dict.items.size() - 1);
    }
  } else {
    dict.rebuild_index();
  }
  return {};
}

bool is_iterable(const Value& v) {
  switch (v.kind) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kView:
    case Kind::kRange:
    case Kind::kIterator:
    case Kind::kLoop:
      return true;
    default:
      return false;
  }
}

namespace {

Result<std::vector<Value>> iterate_view(Heap& heap, const View& view) {
  std::vector<Value> out;
  out.reserve(view.dict->items.size());
  for (const auto& [key, value] : view.dict->items) {
    if (view.what == ViewKind::kKeys) {
      out.push_back(key);
    } else if (view.what == ViewKind::kValues) {
      out.push_back(value);
    } else {
      TRINE_TRY_ASSIGN(Value pair, heap.list({key, value}, view.dict->user, true));
      out.push_back(pair);
    }
  }
  return out;
}

}  // namespace

Result<std::vector<Value>> iterate(Heap& heap, const Value& v) {
  std::vector<Value> out;
  switch (v.kind) {
    case Kind::kUndefined:
      return out;
    case Kind::kString: {
      TRINE_TRY(heap.step(static_cast<std::int64_t>(v.str->num_chars)));
      TRINE_TRY(heap.charge(v.str->num_chars * sizeof(Value)));
      std::size_t pos = 0;
      const std::string& text = v.str->text;
      while (pos < text.size()) {
        const std::size_t start = pos;
        next_code_point(text, pos);
        TRINE_TRY_ASSIGN(Value c, substring(heap, *v.str, start, pos));
        out.push_back(c);
      }
      return out;
    }
    case Kind::kList:
    case Kind::kTuple:
      TRINE_TRY(heap.step(static_cast<std::int64_t>(v.list->items.size() / 8)));
      return v.list->items;
    case Kind::kDict:
    case Kind::kView: {
      View keys;
      keys.dict = v.is(Kind::kDict) ? v.dict : v.view->dict;
      keys.what = v.is(Kind::kDict) ? ViewKind::kKeys : v.view->what;
      TRINE_TRY(heap.step(static_cast<std::int64_t>(keys.dict->items.size() / 8)));
      return iterate_view(heap, keys);
    }
    case Kind::kRange:
      TRINE_TRY(heap.step(v.range->size / 8));
      for (std::int64_t i = 0; i < v.range->size; ++i) {
        out.push_back(Value::of_int(v.range->at(i), v.range->user));
      }
      return out;
    case Kind::kIterator: {
      const Heap::Level level(heap);
      TRINE_TRY(level.check());
      Iterator& it = *v.iterator;
      if (it.produce) {
        auto produce = std::move(it.produce);
        it.produce = nullptr;
        TRINE_TRY_ASSIGN(it.items, produce());
        TRINE_TRY(heap.step(static_cast<std::int64_t>(it.items.size() / 8)));
        TRINE_TRY(heap.charge(it.items.size() * sizeof(Value)));
      }
      if (it.next == 0) {
        out = std::move(it.items);
      } else {
        out.assign(it.items.begin() + static_cast<std::ptrdiff_t>(it.next), it.items.end());
      }
      it.items.clear();
      it.next = 0;
      return out;
    }
    default:
      return type_error("a {} cannot be iterated", kind_name(v));
  }
}

Result<std::int64_t> length(const Value& v) {
  const auto size = [](std::size_t n) { return static_cast<std::int64_t>(n); };
  switch (v.kind) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return size(v.str->num_chars);
    case Kind::kList:
    case Kind::kTuple:
      return size(v.list->items.size());
    case Kind::kDict:
      return size(v.dict->items.size());
    case Kind::kView:
      return size(v.view->dict->items.size());
    case Kind::kRange:
      return v.range->size;
    default:
      return type_error("a {} has no length", kind_name(v));
  }
}

Result<std::vector<std::size_t>> sort_order(Heap& heap, const std::vector<Value>& keys,
                                            bool reverse) {
  // Own merge sort: the comparison can fail, and NaN keys break the order that std::sort relies on.
  std::vector<std::size_t> order(keys.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    order[i] = i;
  }
  TRINE_TRY(heap.step(static_cast<std::int64_t>(keys.size())));
  std::vector<std::size_t> merged(keys.size());
  for (std::size_t width = 1; width < keys.size(); width *= 2) {
    for (std::size_t lo = 0; lo < keys.size(); lo += 2 * width) {
      const std::size_t mid = std::min(lo + width, keys.size());
      const std::size_t hi = std::min(lo + 2 * width, keys.size());
      std::size_t a = lo;
      std::size_t b = mid;
      for (std::size_t k = lo; k < hi; ++k) {
        bool take_b = a >= mid;
        if (!take_b && b < hi) {
          TRINE_TRY_ASSIGN(const int c, compare(heap, keys[order[b]], keys[order[a]]));
          take_b = reverse ? c > 0 : c < 0;
        }
        merged[k] = take_b ? order[b++] : order[a++];
      }
    }
    order.swap(merged);
  }
  return order;
}

}  // namespace trine::text::jinja
