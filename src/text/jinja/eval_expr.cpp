// Expressions.
#include <algorithm>

#include "text/jinja/evaluator_impl.h"
#include "text/jinja/print.h"
#include "text/jinja/str_builder.h"

namespace trine::text::jinja {

tl::unexpected<Error> Evaluator::at(const Node& n, Error error) {
  if (!located_) {
    located_ = true;
    error = located(std::move(error), n.pos);
  }
  return tl::unexpected<Error>(std::move(error));
}

Result<Value> Evaluator::eval(const Node& n, Scope& scope) {
  if (n.kind == NodeKind::kLiteral) {
    return n.value;
  }
  const Heap::Level level(heap_);
  Status ready = level.check();
  if (ready.has_value()) {
    ready = heap_.step();
  }
  if (!ready.has_value()) {
    return at(n, std::move(ready).error());
  }
  auto result = eval_inner(n, scope);
  if (!result.has_value()) {
    return at(n, std::move(result).error());
  }
  return result;
}

Result<Value> Evaluator::eval_inner(const Node& n, Scope& scope) {
  switch (n.kind) {
    case NodeKind::kName:
      return lookup(n.name, scope);
    case NodeKind::kList:
    case NodeKind::kTuple:
      return eval_items(n, scope);
    case NodeKind::kDict:
      return eval_dict(n, scope);
    case NodeKind::kGetAttr: {
      TRINE_TRY_ASSIGN(const Value obj, eval(*n.a, scope));
      return get_attr(heap_, obj, n.name);
    }
    case NodeKind::kGetItem:
      return eval_get_item(n, scope);
    case NodeKind::kCall:
      return eval_call(n, scope);
    case NodeKind::kFilter: {
      TRINE_TRY_ASSIGN(const Value input, eval(*n.a, scope));
      TRINE_TRY_ASSIGN(CallArgs args, eval_args(n.call, scope));
      return call_filter(heap_, n.name, input, args);
    }
    case NodeKind::kTest:
      return eval_test(n, scope);
    case NodeKind::kUnary: {
      TRINE_TRY_ASSIGN(const Value v, eval(*n.a, scope));
      return unary_op(n.op, v);
    }
    case NodeKind::kBinary: {
      TRINE_TRY_ASSIGN(const Value a, eval(*n.a, scope));
      TRINE_TRY_ASSIGN(const Value b, eval(*n.b, scope));
      return binary_op(heap_, n.op, a, b);
    }
    case NodeKind::kLogic:
      return eval_logic(n, scope);
    case NodeKind::kCompare:
      return eval_compare(n, scope);
    case NodeKind::kConcat:
      return eval_concat(n, scope);
    case NodeKind::kCond: {
      TRINE_TRY_ASSIGN(const Value condition, eval(*n.a, scope));
      if (truthy(condition)) {
        return eval(*n.b, scope);
      }
      return n.c != nullptr ? eval(*n.c, scope)
                            : Result<Value>(heap_.undefined(
                                  "the inline if has no else and its condition is false"));
    }
    default:
      return type_error("this cannot be evaluated as an expression");
  }
}

Result<Value> Evaluator::lookup(const std::string& name, Scope& scope) {
  for (const Scope* s = &scope; s != nullptr; s = s->parent) {
    if (const Value* v = s->find(name); v != nullptr) {
      return *v;
    }
  }
  if (const auto it = globals_.find(name); it != globals_.end()) {
    return it->second;
  }
  if (const BuiltinFn fn = find_global(name); fn != nullptr) {
    const Value v = make_builtin(heap_, name, fn);
    globals_.emplace(name, v);
    return v;
  }
  return heap_.undefined(fmt::format("'{}' is undefined", name));
}

Result<Value> Evaluator::eval_items(const Node& n, Scope& scope) {
  std::vector<Value> items;
  items.reserve(n.items.size());
  for (const Node* item : n.items) {
    TRINE_TRY_ASSIGN(Value v, eval(*item, scope));
    items.push_back(v);
  }
  return heap_.list(std::move(items), false, n.kind == NodeKind::kTuple);
}

Result<Value> Evaluator::eval_dict(const Node& n, Scope& scope) {
  Dict* d = heap_.make<Dict>();
  for (std::size_t i = 0; i + 1 < n.items.size(); i += 2) {
    TRINE_TRY_ASSIGN(const Value key, eval(*n.items[i], scope));
    TRINE_TRY_ASSIGN(const Value value, eval(*n.items[i + 1], scope));
    TRINE_TRY(dict_set(heap_, *d, key, value));
  }
  return Value::of(d);
}

Result<Value> Evaluator::eval_get_item(const Node& n, Scope& scope) {
  TRINE_TRY_ASSIGN(const Value obj, eval(*n.a, scope));
  if (n.b->kind != NodeKind::kSlice) {
    TRINE_TRY_ASSIGN(const Value key, eval(*n.b, scope));
    return get_item(heap_, obj, key);
  }
  std::array<Value, 3> bounds = {Value::none(), Value::none(), Value::none()};
  for (std::size_t i = 0; i < bounds.size(); ++i) {
    if (n.b->items[i] != nullptr) {
      TRINE_TRY_ASSIGN(bounds[i], eval(*n.b->items[i], scope));
    }
  }
  return get_slice(heap_, obj, bounds);
}

Result<CallArgs> Evaluator::eval_args(const CallSpec& spec, Scope& scope) {
  CallArgs args;
  for (const Node* arg : spec.args) {
    TRINE_TRY_ASSIGN(Value v, eval(*arg, scope));
    args.pos.push_back(v);
  }
  for (const auto& [name, node] : spec.named) {
    TRINE_TRY_ASSIGN(Value v, eval(*node, scope));
    args.named.emplace_back(name, v);
  }
  if (spec.star != nullptr) {
    TRINE_TRY_ASSIGN(const Value v, eval(*spec.star, scope));
    TRINE_TRY_ASSIGN(const auto items, iterate(heap_, v));
    args.pos.insert(args.pos.end(), items.begin(), items.end());
  }
  if (spec.star_star != nullptr) {
    TRINE_TRY_ASSIGN(const Value v, eval(*spec.star_star, scope));
    if (!v.is(Kind::kDict)) {
      return type_error("the argument after ** must be a mapping, not {}", kind_name(v));
    }
    TRINE_TRY(heap_.step(static_cast<std::int64_t>(v.dict->items.size())));
    for (const auto& [key, value] : v.dict->items) {
      if (!key.is_string() || args.find_named(key.str->text) != nullptr) {
        return type_error("names after ** must be texts that are not given twice");
      }
      args.named.emplace_back(key.str->text, value);
    }
  }
  return args;
}

Result<Value> Evaluator::apply_filters(const Node& n, const Value& input, Scope& scope) {
  Value v = input;
  if (n.a != nullptr) {
    TRINE_TRY_ASSIGN(v, apply_filters(*n.a, input, scope));
  }
  auto result = [&]() -> Result<Value> {
    TRINE_TRY_ASSIGN(CallArgs args, eval_args(n.call, scope));
    return call_filter(heap_, n.name, v, args);
  }();
  if (!result.has_value()) {
    return at(n, std::move(result).error());
  }
  return result;
}

Result<Value> Evaluator::eval_test(const Node& n, Scope& scope) {
  TRINE_TRY_ASSIGN(const Value v, eval(*n.a, scope));
  TRINE_TRY_ASSIGN(CallArgs args, eval_args(n.call, scope));
  TRINE_TRY_ASSIGN(const bool hit, call_test(heap_, n.name, v, args));
  return Value::of_bool(hit);
}

Result<Value> Evaluator::eval_call(const Node& n, Scope& scope) {
  TRINE_TRY_ASSIGN(const Value callee, eval(*n.a, scope));
  TRINE_TRY_ASSIGN(CallArgs args, eval_args(n.call, scope));
  return call_value(heap_, callee, args);
}

Result<Value> Evaluator::eval_logic(const Node& n, Scope& scope) {
  TRINE_TRY_ASSIGN(const Value a, eval(*n.a, scope));
  if (truthy(a) == (n.op == Op::kOr)) {
    return a;
  }
  return eval(*n.b, scope);
}

Result<Value> Evaluator::eval_compare(const Node& n, Scope& scope) {
  TRINE_TRY_ASSIGN(Value left, eval(*n.items[0], scope));
  bool all = true;
  for (std::size_t i = 0; all && i < n.ops.size(); ++i) {
    TRINE_TRY_ASSIGN(const Value right, eval(*n.items[i + 1], scope));
    TRINE_TRY_ASSIGN(all, compare_op(heap_, n.ops[i], left, right));
    left = right;
  }
  return Value::of_bool(all);
}

Result<Value> Evaluator::eval_concat(const Node& n, Scope& scope) {
  StrBuilder b(heap_);
  for (const Node* item : n.items) {
    TRINE_TRY_ASSIGN(const Value v, eval(*item, scope));
    TRINE_TRY(append_str(heap_, b, v));
  }
  return b.value();
}

}  // namespace trine::text::jinja
