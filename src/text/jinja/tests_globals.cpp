// Tests (`x is odd`) and global functions.
#include <algorithm>
#include <limits>

#include "text/jinja/filters.h"
#include "text/jinja/print.h"
#include "text/jinja/runtime.h"

namespace trine::text::jinja {

namespace {

using TestFn = Result<bool> (*)(Heap& heap, const Value& v, const Value& arg);

struct TestEntry {
  std::string_view name;
  TestFn fn;
  bool takes_arg = false;
};

template <Kind kind>
Result<bool> is_kind(Heap&, const Value& v, const Value&) {
  return v.is(kind);
}

template <bool which>
Result<bool> is_bool_value(Heap&, const Value& v, const Value&) {
  return v.is(Kind::kBool) && v.b == which;
}

Result<bool> is_defined(Heap&, const Value& v, const Value&) {
  return !v.is_undefined();
}

Result<bool> is_number_test(Heap&, const Value& v, const Value&) {
  return v.is_number();
}

Result<bool> is_sequence(Heap&, const Value& v, const Value&) {
  return v.is_undefined() || v.is_string() || v.is(Kind::kList) || v.is(Kind::kTuple) ||
         v.is(Kind::kDict) || v.is(Kind::kRange);
}

Result<bool> is_iterable_test(Heap&, const Value& v, const Value&) {
  return is_iterable(v);
}

Result<bool> is_callable(Heap&, const Value& v, const Value&) {
  return v.is(Kind::kCallable) || v.is(Kind::kLoop) || v.is_undefined();
}

Result<bool> remainder_is(Heap& heap, const Value& v, const Value& divisor, std::int64_t wanted) {
  TRINE_TRY_ASSIGN(const Value r, binary_op(heap, Op::kMod, v, divisor));
  return equals(heap, r, Value::of_int(wanted));
}

Result<bool> is_odd(Heap& heap, const Value& v, const Value&) {
  return remainder_is(heap, v, Value::of_int(2), 1);
}

Result<bool> is_even(Heap& heap, const Value& v, const Value&) {
  return remainder_is(heap, v, Value::of_int(2), 0);
}

Result<bool> is_divisible(Heap& heap, const Value& v, const Value& arg) {
  return remainder_is(heap, v, arg, 0);
}

template <bool upper>
Result<bool> is_case(Heap& heap, const Value& v, const Value&) {
  TRINE_TRY_ASSIGN(const Str* s, to_str(heap, v));
  CallArgs none;
  TRINE_TRY_ASSIGN(const Value r, find_method(Value::of(s), upper ? "isupper" : "islower")(
                                      heap, Value::of(s), none));
  return r.b;
}

Result<bool> is_same(Heap& heap, const Value& v, const Value& arg) {
  if (v.kind != arg.kind) {
    return false;
  }
  if (v.is(Kind::kList) || v.is(Kind::kTuple)) {
    return v.list == arg.list;
  }
  if (v.is(Kind::kDict)) {
    return v.dict == arg.dict;
  }
  return equals(heap, v, arg);
}

Result<bool> is_escaped(Heap&, const Value& v, const Value&) {
  return v.is_string() && v.str->markup;
}

Result<bool> is_filter_name(Heap&, const Value& v, const Value&) {
  return v.is_string() && has_filter(v.str->text);
}

Result<bool> is_test_name(Heap&, const Value& v, const Value&) {
  return v.is_string() && has_test(v.str->text);
}

template <Op op>
Result<bool> is_compared(Heap& heap, const Value& v, const Value& arg) {
  return compare_op(heap, op, v, arg);
}

Result<bool> is_undefined_test(Heap&, const Value& v, const Value&) {
  return v.is_undefined();
}

constexpr TestEntry kTests[] = {
    {"defined", is_defined},
    {"undefined", is_undefined_test},
    {"none", is_kind<Kind::kNone>},
    {"boolean", is_kind<Kind::kBool>},
    {"integer", is_kind<Kind::kInt>},
    {"float", is_kind<Kind::kFloat>},
    {"string", is_kind<Kind::kString>},
    {"mapping", is_kind<Kind::kDict>},
    {"true", is_bool_value<true>},
    {"false", is_bool_value<false>},
    {"number", is_number_test},
    {"sequence", is_sequence},
    {"iterable", is_iterable_test},
    {"callable", is_callable},
    {"odd", is_odd},
    {"even", is_even},
    {"divisibleby", is_divisible, true},
    {"lower", is_case<false>},
    {"upper", is_case<true>},
    {"sameas", is_same, true},
    {"escaped", is_escaped},
    {"filter", is_filter_name},
    {"test", is_test_name},
    {"in", is_compared<Op::kIn>, true},
    {"eq", is_compared<Op::kEq>, true},
    {"equalto", is_compared<Op::kEq>, true},
    {"==", is_compared<Op::kEq>, true},
    {"ne", is_compared<Op::kNe>, true},
    {"!=", is_compared<Op::kNe>, true},
    {"lt", is_compared<Op::kLt>, true},
    {"lessthan", is_compared<Op::kLt>, true},
    {"<", is_compared<Op::kLt>, true},
    {"le", is_compared<Op::kLe>, true},
    {"<=", is_compared<Op::kLe>, true},
    {"gt", is_compared<Op::kGt>, true},
    {"greaterthan", is_compared<Op::kGt>, true},
    {">", is_compared<Op::kGt>, true},
    {"ge", is_compared<Op::kGe>, true},
    {">=", is_compared<Op::kGe>, true},
};

const TestEntry* find_test(std::string_view name) {
  for (const TestEntry& e : kTests) {
    if (e.name == name) {
      return &e;
    }
  }
  return nullptr;
}

// ---- globals

Result<Value> global_range(Heap& heap, const Value&, CallArgs& args) {
  if (!args.named.empty() || args.pos.empty() || args.pos.size() > 3) {
    return type_error("range() takes one to three integers");
  }
  std::int64_t bounds[3] = {0, 0, 1};
  bool user = false;
  for (std::size_t i = 0; i < args.pos.size(); ++i) {
    TRINE_TRY_ASSIGN(bounds[args.pos.size() == 1 ? 1 : i], int_arg(&args.pos[i], 0));
    user |= args.pos[i].user;
  }
  const auto [start, stop, step] = bounds;
  if (step == 0) {
    return type_error("range() with a step of zero");
  }
  const auto distance = step > 0
                            ? static_cast<std::uint64_t>(stop) - static_cast<std::uint64_t>(start)
                            : static_cast<std::uint64_t>(start) - static_cast<std::uint64_t>(stop);
  const std::uint64_t stride =
      step > 0 ? static_cast<std::uint64_t>(step) : -static_cast<std::uint64_t>(step);
  const bool empty = step > 0 ? stop <= start : stop >= start;
  const std::uint64_t size = empty ? 0 : (distance - 1) / stride + 1;
  if (size > static_cast<std::uint64_t>(heap.limits().range)) {
    return fail(ErrorCode::kExhausted, "range() of {} elements, at most {}", size,
                heap.limits().range);
  }
  Range* r = heap.make<Range>();
  r->start = start;
  r->stop = stop;
  r->step = step;
  r->size = static_cast<std::int64_t>(size);
  r->user = user;
  Value v;
  v.kind = Kind::kRange;
  v.range = r;
  return v;
}

// dict(mapping or pairs, name=value ...)
Result<Value> global_dict(Heap& heap, const Value&, CallArgs& args) {
  if (args.pos.size() > 1) {
    return type_error("dict() takes at most one position");
  }
  Dict* d = heap.make<Dict>();
  if (!args.pos.empty() && args.pos[0].is(Kind::kDict)) {
    for (const auto& [key, value] : args.pos[0].dict->items) {
      TRINE_TRY(dict_set(heap, *d, key, value));
    }
  } else if (!args.pos.empty()) {
    if (args.pos[0].is_undefined()) {
      return undefined_error(args.pos[0]);
    }
    TRINE_TRY_ASSIGN(const auto pairs, iterate(heap, args.pos[0]));
    for (const Value& pair : pairs) {
      TRINE_TRY_ASSIGN(const auto two, iterate(heap, pair));
      if (two.size() != 2) {
        return type_error("dict() needs pairs");
      }
      TRINE_TRY(dict_set(heap, *d, two[0], two[1]));
    }
  }
  for (const auto& [name, value] : args.named) {
    TRINE_TRY_ASSIGN(Value key, heap.string(name));
    TRINE_TRY(dict_set(heap, *d, key, value));
  }
  return Value::of(d);
}

Result<Value> global_namespace(Heap& heap, const Value& self, CallArgs& args) {
  TRINE_TRY_ASSIGN(const Value d, global_dict(heap, self, args));
  Namespace* ns = heap.make<Namespace>();
  for (const auto& [key, value] : d.dict->items) {
    if (!key.is_string()) {
      return type_error("the names of a namespace must be text");
    }
    TRINE_TRY(ns->set(heap, key.str->text, value));
  }
  Value v;
  v.kind = Kind::kNamespace;
  v.ns = ns;
  return v;
}

Result<Value> global_raise(Heap& heap, const Value&, CallArgs& args) {
  TRINE_TRY_ASSIGN(const auto a, bind("raise_exception", args, {"message"}, 1));
  TRINE_TRY_ASSIGN(const Str* message, to_str(heap, *a[0]));
  return fail(ErrorCode::kInvalidArgument, "the chat template refuses the conversation: {}",
              std::string_view(message->text).substr(0, 4096));
}

// joiner(", "): empty text at the first call, the separator afterwards.
struct Joiner final : Callable {
  Value separator;
  Value empty;
  bool used = false;

  Result<Value> call(CallArgs&) override {
    const bool first = !used;
    used = true;
    return first ? empty : separator;
  }

  std::string describe() const override { return "<joiner>"; }
};

Result<Value> global_joiner(Heap& heap, const Value&, CallArgs& args) {
  TRINE_TRY_ASSIGN(const auto a, bind("joiner", args, {"sep"}, 0));
  Joiner* j = heap.make<Joiner>();
  TRINE_TRY_ASSIGN(j->separator, a[0] != nullptr ? Result<Value>(*a[0]) : heap.string(", "));
  TRINE_TRY_ASSIGN(j->empty, heap.string(""));
  return Value::of(j);
}

// cycler("a", "b"): .next(), .reset(), .current
struct Cycler final : Callable {
  std::vector<Value> items;
  std::size_t pos = 0;

  Result<Value> call(CallArgs&) override { return type_error("a cycler is used through next()"); }

  Result<Value> attr(Heap& heap, std::string_view attribute) override;

  std::string describe() const override { return "<cycler>"; }
};

Result<Value> cycler_next(Heap&, const Value& self, CallArgs&) {
  auto* c = static_cast<Cycler*>(self.callable);
  const Value v = c->items[c->pos];
  c->pos = (c->pos + 1) % c->items.size();
  return v;
}

Result<Value> cycler_reset(Heap&, const Value& self, CallArgs&) {
  static_cast<Cycler*>(self.callable)->pos = 0;
  return Value::none();
}

Result<Value> Cycler::attr(Heap& heap, std::string_view attribute) {
  if (attribute == "current") {
    return items[pos];
  }
  if (attribute == "next" || attribute == "reset") {
    return make_builtin(heap, attribute, attribute == "next" ? cycler_next : cycler_reset,
                        Value::of(this));
  }
  return Value();
}

Result<Value> global_cycler(Heap& heap, const Value&, CallArgs& args) {
  if (args.pos.empty() || !args.named.empty()) {
    return type_error("cycler() needs items");
  }
  Cycler* c = heap.make<Cycler>();
  c->items = args.pos;
  return Value::of(c);
}

constexpr FilterEntry kGlobals[] = {
    {"range", global_range},   {"dict", global_dict},     {"namespace", global_namespace},
    {"joiner", global_joiner}, {"cycler", global_cycler}, {"raise_exception", global_raise},
};

}  // namespace

bool has_test(std::string_view name) {
  return find_test(name) != nullptr;
}

Result<bool> call_test(Heap& heap, std::string_view name, const Value& value, CallArgs& args) {
  TRINE_TRY(heap.step());
  const TestEntry* test = find_test(name);
  if (test == nullptr) {
    return fail(ErrorCode::kUnsupported, "there is no test '{}'", name.substr(0, 80));
  }
  if (!args.named.empty() && !(args.named.size() == 1 && args.pos.empty() && test->takes_arg)) {
    return type_error("the test '{}' takes no named argument", name);
  }
  const std::size_t given = args.pos.size() + args.named.size();
  if (given != (test->takes_arg ? 1U : 0U)) {
    return type_error("the test '{}' takes {} argument, got {}", name,
                      test->takes_arg ? "one" : "no", given);
  }
  const Value none{};
  return test->fn(
      heap, value,
      args.pos.empty() ? (args.named.empty() ? none : args.named[0].second) : args.pos[0]);
}

Status Namespace::set(Heap& heap, std::string_view attribute, const Value& value) {
  if (attribute.starts_with("_")) {
    return type_error("a namespace cannot hold '{}', names must not start with an underscore",
                      attribute);
  }
  const auto [it, added] = attrs.insert_or_assign(std::string(attribute), value);
  if (added) {
    order.emplace_back(attribute);
    return heap.charge(2 * attribute.size() + 96);
  }
  return {};
}

BuiltinFn find_global(std::string_view name) {
  for (const FilterEntry& e : kGlobals) {
    if (e.name == name) {
      return e.fn;
    }
  }
  return nullptr;
}

}  // namespace trine::text::jinja
