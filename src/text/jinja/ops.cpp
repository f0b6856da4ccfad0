// Operators and access, with Python's rules.
#include <algorithm>
#include <cmath>
#include <optional>

#include "text/jinja/print.h"
#include "text/jinja/runtime.h"
#include "text/jinja/str_builder.h"
#include "text/jinja/unicode.h"

namespace trine::text::jinja {

namespace {

tl::unexpected<Error> overflow() {
  return fail(ErrorCode::kExhausted, "an integer result does not fit 64 bits");
}

std::string_view op_name(Op op) {
  switch (op) {
    case Op::kAdd:
      return "+";
    case Op::kSub:
      return "-";
    case Op::kMul:
      return "*";
    case Op::kDiv:
      return "/";
    case Op::kFloorDiv:
      return "//";
    case Op::kMod:
      return "%";
    case Op::kPow:
      return "**";
    default:
      return "operator";
  }
}

tl::unexpected<Error> no_operator(Op op, const Value& a, const Value& b) {
  if (a.is_undefined()) {
    return undefined_error(a);
  }
  if (b.is_undefined()) {
    return undefined_error(b);
  }
  return type_error("'{}' does not apply to {} and {}", op_name(op), kind_name(a), kind_name(b));
}

Result<Value> int_power(std::int64_t base, std::int64_t exponent, bool user) {
  std::int64_t result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) {
      return overflow();
    }
    if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) {
      return overflow();
    }
  }
  return Value::of_int(result, user);
}

Result<Value> int_op(Op op, std::int64_t x, std::int64_t y, bool user) {
  std::int64_t r = 0;
  switch (op) {
    case Op::kAdd:
      return __builtin_add_overflow(x, y, &r) ? Result<Value>(overflow()) : Value::of_int(r, user);
    case Op::kSub:
      return __builtin_sub_overflow(x, y, &r) ? Result<Value>(overflow()) : Value::of_int(r, user);
    case Op::kMul:
      return __builtin_mul_overflow(x, y, &r) ? Result<Value>(overflow()) : Value::of_int(r, user);
    case Op::kPow:
      if (y < 0) {
        if (x == 0) {
          return type_error("0 to a negative power");
        }
        return Value::of_float(std::pow(static_cast<double>(x), static_cast<double>(y)), user);
      }
      return int_power(x, y, user);
    default:
      break;
  }
  if (y == 0) {
    return type_error("division by zero");
  }
  if (op == Op::kDiv) {
    return Value::of_float(static_cast<double>(x) / static_cast<double>(y), user);
  }
  if (x == INT64_MIN && y == -1) {
    return op == Op::kMod ? Result<Value>(Value::of_int(0, user)) : overflow();
  }
  // Python rounds the quotient down and gives the remainder the divisor's sign.
  const std::int64_t quotient = x / y - ((x % y != 0 && (x < 0) != (y < 0)) ? 1 : 0);
  return Value::of_int(op == Op::kMod ? x - quotient * y : quotient, user);
}

Result<Value> float_op(Op op, double x, double y, bool user) {
  switch (op) {
    case Op::kAdd:
      return Value::of_float(x + y, user);
    case Op::kSub:
      return Value::of_float(x - y, user);
    case Op::kMul:
      return Value::of_float(x * y, user);
    case Op::kPow: {
      if (x == 0 && y < 0) {
        return type_error("0 to a negative power");
      }
      if (x < 0 && std::floor(y) != y && std::isfinite(x) && std::isfinite(y)) {
        return type_error("a negative number to a broken power is complex");
      }
      const double r = std::pow(x, y);
      if (std::isinf(r) && std::isfinite(x) && std::isfinite(y)) {
        return type_error("the result of '**' is too large");
      }
      return Value::of_float(r, user);
    }
    default:
      break;
  }
  if (y == 0) {
    return type_error("division by zero");
  }
  if (op == Op::kDiv) {
    return Value::of_float(x / y, user);
  }
  // As CPython: the quotient comes from the remainder, so that both agree.
  double mod = std::fmod(x, y);
  double div = (x - mod) / y;
  if (mod != 0) {
    if ((y < 0) != (mod < 0)) {
      mod += y;
      div -= 1.0;
    }
  } else {
    mod = std::copysign(0.0, y);
  }
  if (op == Op::kMod) {
    return Value::of_float(mod, user);
  }
  if (div != 0) {
    const double floor = std::floor(div);
    return Value::of_float(div - floor > 0.5 ? floor + 1.0 : floor, user);
  }
  return Value::of_float(std::copysign(0.0, x / y), user);
}

Result<Value> concat(Heap& heap, const Str& a, const Str& b) {
  const Str* left = &a;
  const Str* right = &b;
  if (a.markup != b.markup) {
    // Text that is marked safe escapes what it meets.
    TRINE_TRY_ASSIGN(Value escaped, escape_html(heap, a.markup ? b : a));
    (a.markup ? right : left) = escaped.str;
  }
  StrBuilder out(heap);
  out.add(*left);
  out.add(*right);
  out.set_markup(a.markup || b.markup);
  return out.value();
}

Result<Value> repeat(Heap& heap, const Value& sequence, std::int64_t count) {
  const std::size_t n = count > 0 ? static_cast<std::size_t>(count) : 0;
  if (sequence.is_string()) {
    const Str& s = *sequence.str;
    if (!s.text.empty() && n > heap.limits().heap_bytes / s.text.size()) {
      return fail(ErrorCode::kExhausted, "a text of {} times {} bytes is too large", n,
                  s.text.size());
    }
    TRINE_TRY(heap.text_work(n * s.text.size()));
    StrBuilder out(heap);
    out.set_markup(s.markup);
    for (std::size_t i = 0; i < n && !s.text.empty() && !out.overflow(); ++i) {
      out.add(s);
    }
    return out.value();
  }
  const std::vector<Value>& items = sequence.list->items;
  if (!items.empty() && n > heap.limits().heap_bytes / items.size() / sizeof(Value)) {
    return fail(ErrorCode::kExhausted, "a list of {} times {} elements is too large", n,
                items.size());
  }
  TRINE_TRY(heap.step(static_cast<std::int64_t>(n * items.size() / 8)));
  TRINE_TRY(heap.charge(n * items.size() * sizeof(Value)));
  std::vector<Value> out;
  out.reserve(n * items.size());
  for (std::size_t i = 0; i < n && !items.empty(); ++i) {
    out.insert(out.end(), items.begin(), items.end());
  }
  return heap.list(std::move(out), sequence.list->user, sequence.is(Kind::kTuple));
}

bool is_repeatable(const Value& v) {
  return v.is_string() || v.is(Kind::kList) || v.is(Kind::kTuple);
}

}  // namespace

Result<Value> unary_op(Op op, const Value& v) {
  if (op == Op::kNot) {
    return Value::of_bool(!truthy(v));
  }
  if (v.is_undefined()) {
    return undefined_error(v);
  }
  if (v.is(Kind::kFloat)) {
    return Value::of_float(op == Op::kNeg ? -v.d : v.d, v.user);
  }
  if (!v.is_integral()) {
    return type_error("unary '{}' does not apply to {}", op == Op::kNeg ? "-" : "+", kind_name(v));
  }
  return op == Op::kNeg ? int_op(Op::kSub, 0, v.as_int(), v.user)
                        : Result<Value>(Value::of_int(v.as_int(), v.user));
}

Result<Value> binary_op(Heap& heap, Op op, const Value& a, const Value& b) {
  const bool user = a.user || b.user;
  if (a.is_integral() && b.is_integral()) {
    return int_op(op, a.as_int(), b.as_int(), user);
  }
  if (a.is_number() && b.is_number()) {
    return float_op(op, a.as_double(), b.as_double(), user);
  }
  if (op == Op::kMod && a.is_string()) {
    return percent_format(heap, *a.str, b);
  }
  if (op == Op::kMul && is_repeatable(a) && b.is_integral()) {
    return repeat(heap, a, b.as_int());
  }
  if (op == Op::kMul && is_repeatable(b) && a.is_integral()) {
    return repeat(heap, b, a.as_int());
  }
  if (op == Op::kAdd && a.is_string() && b.is_string()) {
    return concat(heap, *a.str, *b.str);
  }
  if (op == Op::kAdd && a.kind == b.kind && (a.is(Kind::kList) || a.is(Kind::kTuple))) {
    std::vector<Value> items = a.list->items;
    items.insert(items.end(), b.list->items.begin(), b.list->items.end());
    TRINE_TRY(heap.step(static_cast<std::int64_t>(items.size() / 8)));
    return heap.list(std::move(items), a.list->user && b.list->user, a.is(Kind::kTuple));
  }
  return no_operator(op, a, b);
}

Result<bool> contains(Heap& heap, const Value& container, const Value& item) {
  switch (container.kind) {
    case Kind::kString:
      if (item.is_undefined()) {
        return type_error("'in <text>' needs text, not Undefined");
      }
      if (!item.is_string()) {
        return type_error("'in <text>' needs text, not {}", kind_name(item));
      }
      TRINE_TRY(heap.text_work(container.str->text.size()));
      return find_text(container.str->text, item.str->text) != std::string_view::npos;
    case Kind::kDict: {
      TRINE_TRY_ASSIGN(const std::size_t i, dict_find(heap, *container.dict, item));
      return i != kNotFound;
    }
    case Kind::kView:
      if (container.view->what == ViewKind::kKeys) {
        TRINE_TRY_ASSIGN(const std::size_t i, dict_find(heap, *container.view->dict, item));
        return i != kNotFound;
      }
      break;
    case Kind::kRange: {
      const Range& r = *container.range;
      if (item.is_integral()) {
        const std::int64_t x = item.as_int();
        const bool inside = r.step > 0 ? x >= r.start && x < r.stop : x <= r.start && x > r.stop;
        const auto distance = static_cast<std::uint64_t>(x) - static_cast<std::uint64_t>(r.start);
        const auto stride = static_cast<std::uint64_t>(r.step);
        return r.size > 0 && inside && (r.step > 0 ? distance % stride : -distance % -stride) == 0;
      }
      break;
    }
    default:
      break;
  }
  // Without copying: a list is searched where it lies.
  std::vector<Value> copied;
  const std::vector<Value>* items = nullptr;
  if (container.is(Kind::kList) || container.is(Kind::kTuple)) {
    items = &container.list->items;
  } else {
    TRINE_TRY_ASSIGN(copied, iterate(heap, container));
    items = &copied;
  }
  for (const Value& candidate : *items) {
    TRINE_TRY_ASSIGN(const bool same, equals(heap, candidate, item));
    if (same) {
      return true;
    }
  }
  return false;
}

Result<bool> compare_op(Heap& heap, Op op, const Value& a, const Value& b) {
  switch (op) {
    case Op::kEq:
      return equals(heap, a, b);
    case Op::kNe: {
      TRINE_TRY_ASSIGN(const bool same, equals(heap, a, b));
      return !same;
    }
    case Op::kIn:
      return contains(heap, b, a);
    case Op::kNotIn: {
      TRINE_TRY_ASSIGN(const bool inside, contains(heap, b, a));
      return !inside;
    }
    default:
      break;
  }
  const auto nan = [](const Value& v) { return v.is(Kind::kFloat) && std::isnan(v.d); };
  TRINE_TRY_ASSIGN(const int c, compare(heap, a, b));
  if (nan(a) || nan(b)) {
    return false;
  }
  switch (op) {
    case Op::kLt:
      return c < 0;
    case Op::kLe:
      return c <= 0;
    case Op::kGt:
      return c > 0;
    default:
      return c >= 0;
  }
}

namespace {

Result<Value> missing_attr(Heap& heap, const Value& obj, std::string_view name) {
  const bool input = (obj.is(Kind::kDict) && obj.dict->user) ||
                     ((obj.is(Kind::kList) || obj.is(Kind::kTuple)) && obj.list->user);
  return heap.undefined(fmt::format("a {} has no attribute or key '{}'", kind_name(obj), name),
                        input);
}

// Attributes that are no methods.
Result<std::optional<Value>> own_attr(Heap& heap, const Value& obj, std::string_view name) {
  if (obj.is(Kind::kNamespace)) {
    const auto it = obj.ns->attrs.find(name);
    return it == obj.ns->attrs.end() ? std::nullopt : std::optional<Value>(it->second);
  }
  if (obj.is(Kind::kLoop)) {
    TRINE_TRY_ASSIGN(Value v, obj.loop->attr(name));
    return std::optional<Value>(v);
  }
  if (obj.is(Kind::kTuple) && obj.list->group && (name == "grouper" || name == "list")) {
    return std::optional<Value>(obj.list->items[name == "list" ? 1 : 0]);
  }
  if (obj.is(Kind::kCallable)) {
    TRINE_TRY_ASSIGN(Value v, obj.callable->attr(heap, name));
    return v.is_undefined() ? std::nullopt : std::optional<Value>(v);
  }
  if (obj.is(Kind::kRange) && (name == "start" || name == "stop" || name == "step")) {
    return std::optional<Value>(Value::of_int(name == "start"  ? obj.range->start
                                              : name == "stop" ? obj.range->stop
                                                               : obj.range->step));
  }
  if (const BuiltinFn fn = find_method(obj, name); fn != nullptr) {
    return std::optional<Value>(make_builtin(heap, name, fn, obj));
  }
  return std::optional<Value>();
}

Result<std::optional<Value>> own_item(Heap& heap, const Value& obj, const Value& key) {
  if (obj.is(Kind::kDict)) {
    if (!check_hashable(key).has_value()) {
      return std::optional<Value>();
    }
    TRINE_TRY_ASSIGN(const std::size_t i, dict_find(heap, *obj.dict, key));
    return i == kNotFound ? std::nullopt : std::optional<Value>(obj.dict->items[i].second);
  }
  if (obj.is(Kind::kNamespace) && key.is_string()) {
    return own_attr(heap, obj, key.str->text);
  }
  if (!key.is_integral()) {
    return std::optional<Value>();
  }
  std::int64_t i = key.as_int();
  if (obj.is(Kind::kList) || obj.is(Kind::kTuple)) {
    const auto n = static_cast<std::int64_t>(obj.list->items.size());
    i = i < 0 ? i + n : i;
    return i < 0 || i >= n ? std::nullopt
                           : std::optional<Value>(obj.list->items[static_cast<std::size_t>(i)]);
  }
  if (obj.is(Kind::kRange)) {
    i = i < 0 ? i + obj.range->size : i;
    return i < 0 || i >= obj.range->size
               ? std::nullopt
               : std::optional<Value>(Value::of_int(obj.range->at(i), obj.range->user));
  }
  if (obj.is_string()) {
    const auto n = static_cast<std::int64_t>(obj.str->num_chars);
    i = i < 0 ? i + n : i;
    if (i < 0 || i >= n) {
      return std::optional<Value>();
    }
    if (!obj.str->ascii()) {
      TRINE_TRY(heap.text_work(obj.str->text.size()));
    }
    const std::size_t from = byte_offset(*obj.str, static_cast<std::size_t>(i));
    std::size_t to = from;
    next_code_point(obj.str->text, to);
    TRINE_TRY_ASSIGN(Value c, substring(heap, *obj.str, from, to));
    return std::optional<Value>(c);
  }
  return std::optional<Value>();
}

}  // namespace

Result<Value> get_attr(Heap& heap, const Value& obj, std::string_view name) {
  if (obj.is_undefined()) {
    return undefined_error(obj);
  }
  const bool allowed = !name.starts_with("__");
  if (allowed) {
    TRINE_TRY_ASSIGN(const std::optional<Value> own, own_attr(heap, obj, name));
    if (own.has_value()) {
      return *own;
    }
  }
  if (obj.is(Kind::kDict)) {
    TRINE_TRY(heap.text_work(name.size()));
    if (const Value* v = obj.dict->find(name); v != nullptr) {
      return *v;
    }
  }
  if (!allowed) {
    return heap.undefined(fmt::format("access to '{}' is not allowed", name));
  }
  return missing_attr(heap, obj, name);
}

Result<Value> get_item(Heap& heap, const Value& obj, const Value& key) {
  if (obj.is_undefined()) {
    return undefined_error(obj);
  }
  TRINE_TRY_ASSIGN(const std::optional<Value> own, own_item(heap, obj, key));
  if (own.has_value()) {
    return *own;
  }
  if (key.is_string()) {
    if (key.str->text.starts_with("__")) {
      return heap.undefined(fmt::format("access to '{}' is not allowed", key.str->text));
    }
    TRINE_TRY_ASSIGN(const std::optional<Value> attr, own_attr(heap, obj, key.str->text));
    if (attr.has_value()) {
      return *attr;
    }
    return missing_attr(heap, obj, std::string_view(key.str->text).substr(0, 80));
  }
  return missing_attr(
      heap, obj, key.is_integral() ? std::to_string(key.as_int()) : std::string(kind_name(key)));
}

namespace {

struct Bounds {
  std::int64_t start = 0;
  std::int64_t stop = 0;
  std::int64_t step = 1;
  std::int64_t count = 0;
};

// Python's slice.indices().
Result<Bounds> resolve_slice(const std::array<Value, 3>& bounds, std::int64_t n) {
  const auto absent = [](const Value& v) { return v.is(Kind::kNone); };
  for (const Value& v : bounds) {
    if (!absent(v) && !v.is_integral()) {
      return type_error("slice bounds must be integers or none, not {}", kind_name(v));
    }
  }
  Bounds b;
  b.step = absent(bounds[2]) ? 1 : bounds[2].as_int();
  if (b.step == 0) {
    return type_error("a slice step of zero");
  }
  b.step = std::max(b.step, -INT64_MAX);
  const std::int64_t low = b.step < 0 ? -1 : 0;
  const std::int64_t high = b.step < 0 ? n - 1 : n;
  const auto clamp = [&](const Value& v, std::int64_t otherwise) {
    if (absent(v)) {
      return otherwise;
    }
    const std::int64_t i = v.as_int();
    return std::clamp(i < 0 ? i + n : i, low, high);
  };
  b.start = clamp(bounds[0], b.step < 0 ? high : low);
  b.stop = clamp(bounds[1], b.step < 0 ? low : high);
  const std::int64_t span = b.step > 0 ? b.stop - b.start : b.start - b.stop;
  const std::int64_t stride = b.step > 0 ? b.step : -b.step;
  b.count = span > 0 ? (span - 1) / stride + 1 : 0;
  return b;
}

Result<Value> slice_text(Heap& heap, const Str& s, const Bounds& b) {
  TRINE_TRY(heap.text_work(s.text.size()));
  if (b.step == 1) {
    return substring(heap, s, byte_offset(s, static_cast<std::size_t>(b.start)),
                     byte_offset(s, static_cast<std::size_t>(b.start + b.count)));
  }
  TRINE_TRY(heap.step(static_cast<std::int64_t>(s.num_chars)));
  TRINE_TRY(heap.charge(s.num_chars * sizeof(std::size_t)));
  std::vector<std::size_t> offsets;
  for (std::size_t pos = 0; pos < s.text.size();) {
    offsets.push_back(pos);
    next_code_point(s.text, pos);
  }
  offsets.push_back(s.text.size());
  StrBuilder out(heap);
  out.set_markup(s.markup);
  for (std::int64_t k = 0; k < b.count; ++k) {
    const auto i = static_cast<std::size_t>(b.start + k * b.step);
    out.add(s, offsets[i], offsets[i + 1]);
  }
  return out.value();
}

}  // namespace

Result<Value> get_slice(Heap& heap, const Value& obj, const std::array<Value, 3>& bounds) {
  if (obj.is_undefined()) {
    return undefined_error(obj);
  }
  const bool sliceable =
      obj.is_string() || obj.is(Kind::kList) || obj.is(Kind::kTuple) || obj.is(Kind::kRange);
  if (!sliceable) {
    return type_error("a {} cannot be sliced", kind_name(obj));
  }
  TRINE_TRY_ASSIGN(const std::int64_t n, length(obj));
  TRINE_TRY_ASSIGN(const Bounds b, resolve_slice(bounds, n));
  if (obj.is_string()) {
    return slice_text(heap, *obj.str, b);
  }
  TRINE_TRY(heap.step(b.count / 8));
  if (obj.is(Kind::kRange)) {
    Range* r = heap.make<Range>();
    // With more than one element the step is within the range's length, so nothing overflows in its
    // use.
    const auto saturated = [&](std::int64_t index) {
      std::int64_t v = 0;
      if (__builtin_mul_overflow(index, obj.range->step, &v) ||
          __builtin_add_overflow(v, obj.range->start, &v)) {
        return (index > 0) == (obj.range->step > 0) ? INT64_MAX : INT64_MIN;
      }
      return v;
    };
    r->start = saturated(b.start);
    r->stop = saturated(b.stop);
    if (__builtin_mul_overflow(obj.range->step, b.step, &r->step)) {
      r->step = (obj.range->step > 0) == (b.step > 0) ? INT64_MAX : -INT64_MAX;
    }
    r->size = b.count;
    r->user = obj.range->user;
    Value v;
    v.kind = Kind::kRange;
    v.range = r;
    return v;
  }
  std::vector<Value> items;
  for (std::int64_t k = 0; k < b.count; ++k) {
    items.push_back(obj.list->items[static_cast<std::size_t>(b.start + k * b.step)]);
  }
  return heap.list(std::move(items), obj.list->user, obj.is(Kind::kTuple));
}

Result<Value> get_path(Heap& heap, const Value& obj, const Value& path, const Value* otherwise) {
  if (path.is(Kind::kNone)) {
    return obj;
  }
  const auto step = [&](const Value& from, const Value& key) -> Result<Value> {
    TRINE_TRY_ASSIGN(Value v, get_item(heap, from, key));
    const bool replace = v.is_undefined() && otherwise != nullptr && !otherwise->is(Kind::kNone);
    return replace ? *otherwise : v;
  };
  if (!path.is_string()) {
    return step(obj, path);
  }
  Value v = obj;
  const std::string_view text = path.str->text;
  for (std::size_t pos = 0; pos <= text.size();) {
    const std::size_t dot = std::min(text.find('.', pos), text.size());
    const std::string_view part = text.substr(pos, dot - pos);
    pos = dot + 1;
    Value key;
    if (!part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos) {
      TRINE_TRY_ASSIGN(const auto number, parse_int(part, 10));
      key = Value::of_int(number.value_or(0));
    } else {
      TRINE_TRY_ASSIGN(key, heap.string(part));
    }
    TRINE_TRY_ASSIGN(v, step(v, key));
  }
  return v;
}

Result<Value> call_value(Heap& heap, const Value& callee, CallArgs& args) {
  TRINE_TRY(heap.step());
  if (callee.is(Kind::kCallable)) {
    return callee.callable->call(args);
  }
  if (callee.is(Kind::kLoop)) {
    return callee.loop->recurse(args);
  }
  if (callee.is_undefined()) {
    return undefined_error(callee);
  }
  return type_error("a {} cannot be called", kind_name(callee));
}

Value make_builtin(Heap& heap, std::string_view name, BuiltinFn fn, const Value& self) {
  Builtin* f = heap.make<Builtin>();
  f->name = std::string(name);
  f->heap = &heap;
  f->self = self;
  f->fn = fn;
  return Value::of(f);
}

}  // namespace trine::text::jinja
