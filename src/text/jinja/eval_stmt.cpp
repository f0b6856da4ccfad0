// Statements: blocks, loops, assignments, macros.
#include <algorithm>
#include <optional>

#include "text/jinja/evaluator_impl.h"
#include "text/jinja/print.h"
#include "text/jinja/str_builder.h"

namespace trine::text::jinja {

namespace {

// The elements of a loop, filtered as they are asked for, because a loop's filter may read what its
// body changes.
class LoopState final : public Loop {
 public:
  LoopState(Evaluator& evaluator, const Node& node, Scope& outer)
      : evaluator_(evaluator), node_(node), outer_(outer) {}

  Status start(const Value& items, std::int64_t depth0) {
    depth0_ = depth0;
    TRINE_TRY_ASSIGN(source_, iterate(evaluator_.heap(), items));
    return evaluator_.heap().charge(source_.size() * sizeof(Value));
  }

  Result<std::optional<Value>> next() {
    std::optional<Value> v;
    if (after_.has_value()) {
      v = after_;
      after_.reset();
    } else {
      TRINE_TRY_ASSIGN(v, pull());
    }
    if (v.has_value()) {
      ++index0_;
      before_ = current_;
      current_ = v;
    }
    return v;
  }

  Result<Value> attr(std::string_view name) override {
    Heap& heap = evaluator_.heap();
    if (name == "index0" || name == "index") {
      return Value::of_int(index0_ + (name == "index" ? 1 : 0));
    }
    if (name == "first") {
      return Value::of_bool(index0_ == 0);
    }
    if (name == "last" || name == "nextitem") {
      TRINE_TRY_ASSIGN(const bool more, peek());
      if (name == "last") {
        return Value::of_bool(!more);
      }
      return after_.has_value() ? *after_ : heap.undefined("there is no next item");
    }
    if (name == "previtem") {
      return before_.has_value() ? *before_ : heap.undefined("there is no previous item");
    }
    if (name == "length" || name == "revindex" || name == "revindex0") {
      TRINE_TRY(drain());
      const std::int64_t size = index0_ + 1 + static_cast<std::int64_t>(source_.size() - at_) +
                                (after_.has_value() ? 1 : 0);
      return Value::of_int(name == "length" ? size : size - index0_ - (name == "revindex" ? 0 : 1));
    }
    if (name == "depth" || name == "depth0") {
      return Value::of_int(depth0_ + (name == "depth" ? 1 : 0));
    }
    if (name == "cycle" || name == "changed") {
      Value self;
      self.kind = Kind::kLoop;
      self.loop = this;
      return make_builtin(heap, name, name == "cycle" ? cycle : changed, self);
    }
    return heap.undefined(fmt::format("loop has no attribute '{}'", name));
  }

  Result<Value> recurse(CallArgs& args) override {
    if (!node_.flag) {
      return type_error("the loop must be marked 'recursive' to be called");
    }
    TRINE_TRY_ASSIGN(const auto a, bind("loop", args, {"iterable"}, 1));
    return evaluator_.recurse_loop(node_, outer_, *a[0], depth0_ + 1);
  }

 private:
  static Result<Value> cycle(Heap&, const Value& self, CallArgs& args) {
    if (args.pos.empty()) {
      return type_error("loop.cycle() needs items");
    }
    const auto i = static_cast<std::size_t>(static_cast<LoopState*>(self.loop)->index0_);
    return args.pos[i % args.pos.size()];
  }

  static Result<Value> changed(Heap& heap, const Value& self, CallArgs& args) {
    auto& last = static_cast<LoopState*>(self.loop)->last_changed_;
    bool same = last.has_value() && last->size() == args.pos.size();
    for (std::size_t i = 0; same && i < args.pos.size(); ++i) {
      TRINE_TRY_ASSIGN(same, equals(heap, (*last)[i], args.pos[i]));
    }
    last = args.pos;
    return Value::of_bool(!same);
  }

  // The next element that passes the loop's filter.
  Result<std::optional<Value>> pull() {
    while (at_ < source_.size()) {
      const Value v = source_[at_++];
      if (node_.c == nullptr || filtered_) {
        return std::optional<Value>(v);
      }
      TRINE_TRY_ASSIGN(const bool pass, passes(v));
      if (pass) {
        return std::optional<Value>(v);
      }
    }
    return std::optional<Value>();
  }

  Result<bool> passes(const Value& v) {
    if (test_scope_ == nullptr) {
      test_scope_ = evaluator_.new_scope(&outer_);
    }
    test_scope_->vars.clear();
    TRINE_TRY(evaluator_.assign(*node_.a, v, *test_scope_));
    TRINE_TRY_ASSIGN(const Value verdict, evaluator_.eval(*node_.c, *test_scope_));
    return truthy(verdict);
  }

  Result<bool> peek() {
    if (!after_.has_value()) {
      TRINE_TRY_ASSIGN(after_, pull());
    }
    return after_.has_value();
  }

  // Runs the filter over all that is left; a length needs it.
  Status drain() {
    if (node_.c == nullptr || filtered_) {
      return {};
    }
    std::vector<Value> rest;
    while (true) {
      TRINE_TRY_ASSIGN(const std::optional<Value> v, pull());
      if (!v.has_value()) {
        break;
      }
      rest.push_back(*v);
    }
    source_ = std::move(rest);
    at_ = 0;
    filtered_ = true;
    return {};
  }

  Evaluator& evaluator_;
  const Node& node_;
  Scope& outer_;
  Scope* test_scope_ = nullptr;
  std::vector<Value> source_;
  std::size_t at_ = 0;
  bool filtered_ = false;
  std::int64_t index0_ = -1;
  std::int64_t depth0_ = 0;
  std::optional<Value> before_;
  std::optional<Value> current_;
  std::optional<Value> after_;
  std::optional<std::vector<Value>> last_changed_;
};

struct Macro final : Callable {
  Evaluator* evaluator = nullptr;
  const Node* node = nullptr;
  Scope* scope = nullptr;

  Result<Value> call(CallArgs& args) override { return evaluator->call_macro(*node, *scope, args); }

  Result<Value> attr(Heap& heap, std::string_view attribute) override {
    if (attribute == "name") {
      return heap.string(name);
    }
    if (attribute == "arguments") {
      std::vector<Value> names;
      for (const std::string& p : node->params) {
        TRINE_TRY_ASSIGN(Value v, heap.string(p));
        names.push_back(v);
      }
      return heap.list(std::move(names), false, true);
    }
    return Value();
  }

  std::string describe() const override { return fmt::format("<Macro '{}'>", name); }
};

}  // namespace

Evaluator::Evaluator(const Ast&, Heap& heap, const Variables& variables)
    : heap_(heap), variables_(variables) {}

Result<const Str*> Evaluator::run(const Ast& ast) {
  Scope* globals = new_scope(nullptr);
  for (const auto& [name, value] : variables_) {
    globals->set(name, value);
  }
  Scope* root = new_scope(globals);
  StrBuilder out(heap_, heap_.limits().output_bytes);
  const OutputTo redirect(*this, out);
  TRINE_TRY(block(ast.root, *root));
  return out.finish();
}

Scope* Evaluator::new_scope(Scope* parent) {
  Scope* s = heap_.make<Scope>();
  s->parent = parent;
  return s;
}

Result<Flow> Evaluator::block(const Block& b, Scope& scope) {
  for (const Node* n : b.nodes) {
    TRINE_TRY_ASSIGN(const Flow flow, statement(*n, scope));
    if (flow != Flow::kNext) {
      return flow;
    }
  }
  return Flow::kNext;
}

Result<Flow> Evaluator::statement(const Node& n, Scope& scope) {
  const Heap::Level level(heap_);
  Status ready = level.check();
  if (ready.has_value()) {
    ready = heap_.step();
  }
  if (!ready.has_value()) {
    return at(n, std::move(ready).error());
  }
  auto flow = statement_inner(n, scope);
  if (!flow.has_value()) {
    return at(n, std::move(flow).error());
  }
  return flow;
}

Result<Flow> Evaluator::statement_inner(const Node& n, Scope& scope) {
  switch (n.kind) {
    case NodeKind::kOutput:
      TRINE_TRY(output(n, scope));
      return Flow::kNext;
    case NodeKind::kIf:
      for (std::size_t i = 0; i < n.items.size(); ++i) {
        TRINE_TRY_ASSIGN(const Value condition, eval(*n.items[i], scope));
        if (truthy(condition)) {
          return block(n.blocks[i], scope);
        }
      }
      return n.has_else ? block(n.blocks.back(), scope) : Result<Flow>(Flow::kNext);
    case NodeKind::kFor:
      return for_loop(n, scope);
    case NodeKind::kSet: {
      TRINE_TRY_ASSIGN(const Value v, eval(*n.b, scope));
      TRINE_TRY(assign(*n.a, v, scope));
      return Flow::kNext;
    }
    case NodeKind::kSetBlock:
      return set_block(n, scope);
    case NodeKind::kWith: {
      Scope* inner = new_scope(&scope);
      for (std::size_t i = 0; i + 1 < n.items.size(); i += 2) {
        TRINE_TRY_ASSIGN(const Value v, eval(*n.items[i + 1], scope));
        TRINE_TRY(assign(*n.items[i], v, *inner));
      }
      return block(n.blocks[0], *inner);
    }
    case NodeKind::kMacro:
      TRINE_TRY(define_macro(n, scope));
      return Flow::kNext;
    case NodeKind::kCallBlock:
      TRINE_TRY(call_block(n, scope));
      return Flow::kNext;
    case NodeKind::kFilterBlock: {
      Flow flow = Flow::kNext;
      TRINE_TRY_ASSIGN(Value v, capture(n.blocks[0], *new_scope(&scope), &flow));
      if (flow != Flow::kNext) {
        return flow;
      }
      TRINE_TRY_ASSIGN(v, apply_filters(*n.b, v, scope));
      TRINE_TRY(append_str(heap_, *out_, v));
      return Flow::kNext;
    }
    case NodeKind::kGeneration:
      return block(n.blocks[0], *new_scope(&scope));
    case NodeKind::kBreak:
      return Flow::kBreak;
    case NodeKind::kContinue:
      return Flow::kContinue;
    default:
      return type_error("this cannot stand as a statement");
  }
}

Status Evaluator::output(const Node& n, Scope& scope) {
  for (const Node* item : n.items) {
    TRINE_TRY_ASSIGN(const Value v, eval(*item, scope));
    TRINE_TRY(append_str(heap_, *out_, v));
  }
  return {};
}

Result<Value> Evaluator::capture(const Block& b, Scope& scope, Flow* flow) {
  StrBuilder text(heap_);
  {
    const OutputTo redirect(*this, text);
    TRINE_TRY_ASSIGN(const Flow f, block(b, scope));
    if (flow != nullptr) {
      *flow = f;
    }
  }
  return text.value();
}

Result<Flow> Evaluator::set_block(const Node& n, Scope& scope) {
  Flow flow = Flow::kNext;
  TRINE_TRY_ASSIGN(Value v, capture(n.blocks[0], *new_scope(&scope), &flow));
  if (flow != Flow::kNext) {
    return flow;
  }
  if (n.b != nullptr) {
    TRINE_TRY_ASSIGN(v, apply_filters(*n.b, v, scope));
  }
  TRINE_TRY(assign(*n.a, v, scope));
  return Flow::kNext;
}

Status Evaluator::assign(const Node& target, const Value& value, Scope& scope) {
  if (target.kind == NodeKind::kName) {
    TRINE_TRY(heap_.charge(sizeof(Value)));
    scope.set(target.name, value);
    return {};
  }
  if (target.kind == NodeKind::kNsRef) {
    TRINE_TRY_ASSIGN(const Value ns, lookup(target.name, scope));
    if (!ns.is(Kind::kNamespace)) {
      return type_error("'{}' is no namespace, its attributes cannot be set", target.name);
    }
    return ns.ns->set(heap_, target.attr, value);
  }
  TRINE_TRY_ASSIGN(const auto items, iterate(heap_, value));
  if (items.size() != target.items.size()) {
    return type_error("{} values do not fit {} targets", items.size(), target.items.size());
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    TRINE_TRY(assign(*target.items[i], items[i], scope));
  }
  return {};
}

Result<Flow> Evaluator::for_loop(const Node& n, Scope& scope) {
  TRINE_TRY_ASSIGN(const Value items, eval(*n.b, scope));
  return run_loop(n, scope, items, 0);
}

Result<Flow> Evaluator::run_loop(const Node& n, Scope& outer, const Value& items,
                                 std::int64_t depth0) {
  auto* state = heap_.adopt(std::make_unique<LoopState>(*this, n, outer));
  TRINE_TRY(state->start(items, depth0));
  Value loop;
  loop.kind = Kind::kLoop;
  loop.loop = state;
  // One scope for all rounds, emptied each time: what a round sets does not reach the next.
  Scope* scope = new_scope(&outer);
  bool ran = false;
  while (true) {
    TRINE_TRY_ASSIGN(const std::optional<Value> item, state->next());
    if (!item.has_value()) {
      break;
    }
    ran = true;
    TRINE_TRY(heap_.step());
    scope->vars.clear();
    scope->set("loop", loop);
    TRINE_TRY(assign(*n.a, *item, *scope));
    TRINE_TRY_ASSIGN(const Flow flow, block(n.blocks[0], *scope));
    if (flow == Flow::kBreak) {
      break;
    }
  }
  if (!ran && n.has_else) {
    return block(n.blocks[1], *new_scope(&outer));
  }
  return Flow::kNext;
}

Result<Value> Evaluator::recurse_loop(const Node& n, Scope& outer, const Value& items,
                                      std::int64_t depth0) {
  StrBuilder text(heap_);
  {
    const OutputTo redirect(*this, text);
    TRINE_TRY(run_loop(n, outer, items, depth0));
  }
  return text.value();
}

Value Evaluator::make_macro(const Node& n, Scope& scope) {
  Macro* m = heap_.make<Macro>();
  m->name = n.name;
  m->evaluator = this;
  m->node = &n;
  m->scope = &scope;
  return Value::of(m);
}

Status Evaluator::define_macro(const Node& n, Scope& scope) {
  TRINE_TRY(heap_.charge(sizeof(Value)));
  scope.set(n.name, make_macro(n, scope));
  return {};
}

Result<Value> Evaluator::call_macro(const Node& n, Scope& defined_in, CallArgs& args) {
  Scope* scope = new_scope(&defined_in);
  const std::size_t num_params = n.params.size();
  const std::size_t first_default = num_params - n.items.size();
  std::vector<bool> used(args.named.size(), false);
  for (std::size_t i = 0; i < num_params; ++i) {
    const std::string& name = n.params[i];
    std::optional<Value> v;
    if (i < args.pos.size()) {
      v = args.pos[i];
    }
    for (std::size_t k = 0; k < args.named.size() && !v.has_value(); ++k) {
      if (args.named[k].first == name) {
        v = args.named[k].second;
        used[k] = true;
      }
    }
    if (!v.has_value() && i >= first_default) {
      TRINE_TRY_ASSIGN(v, eval(*n.items[i - first_default], *scope));
    }
    scope->set(name, v.has_value()
                         ? *v
                         : heap_.undefined(fmt::format("parameter '{}' was not provided", name)));
  }
  const bool own_caller = std::find(n.params.begin(), n.params.end(), "caller") != n.params.end();
  Value caller = heap_.undefined("no caller is defined");
  Dict* extra = n.uses_kwargs ? heap_.make<Dict>() : nullptr;
  for (std::size_t k = 0; k < args.named.size(); ++k) {
    const auto& [name, value] = args.named[k];
    if (used[k]) {
      continue;
    }
    if (name == "caller" && n.uses_caller && !own_caller) {
      caller = value;
    } else if (extra != nullptr) {
      TRINE_TRY_ASSIGN(const Value key, heap_.string(name));
      TRINE_TRY(dict_set(heap_, *extra, key, value));
    } else {
      return type_error("macro '{}' has no parameter '{}'", n.name, name);
    }
  }
  if (n.uses_caller && !own_caller) {
    scope->set("caller", caller);
  }
  if (extra != nullptr) {
    scope->set("kwargs", Value::of(extra));
  }
  if (n.uses_varargs) {
    const std::size_t from = std::min(num_params, args.pos.size());
    TRINE_TRY_ASSIGN(
        const Value rest,
        heap_.list({args.pos.begin() + static_cast<std::ptrdiff_t>(from), args.pos.end()}, false,
                   true));
    scope->set("varargs", rest);
  } else if (args.pos.size() > num_params) {
    return type_error("macro '{}' takes at most {} arguments, got {}", n.name, num_params,
                      args.pos.size());
  }
  return capture(n.blocks[0], *scope);
}

Status Evaluator::call_block(const Node& n, Scope& scope) {
  TRINE_TRY_ASSIGN(const Value callee, eval(*n.b->a, scope));
  TRINE_TRY_ASSIGN(CallArgs args, eval_args(n.b->call, scope));
  args.named.emplace_back("caller", make_macro(n, scope));
  TRINE_TRY_ASSIGN(const Value v, call_value(heap_, callee, args));
  return append_str(heap_, *out_, v);
}

Result<const Str*> evaluate(const Ast& ast, Heap& heap, const Variables& variables) {
  return Evaluator(ast, heap, variables).run(ast);
}

}  // namespace trine::text::jinja
