// Inside of the evaluator, shared by its two source files (statements, expressions).
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/evaluator.h"
#include "text/jinja/str_builder.h"

namespace trine::text::jinja {

// Variables of one block. Loops, macros, call, filter and set blocks open one; if does not.
struct Scope final : Object {
  Scope* parent = nullptr;
  std::vector<std::pair<std::string_view, Value>> vars;  // names live in the syntax tree

  const Value* find(std::string_view name) const {
    for (const auto& [n, v] : vars) {
      if (n == name) {
        return &v;
      }
    }
    return nullptr;
  }

  void set(std::string_view name, const Value& value) {
    for (auto& [n, v] : vars) {
      if (n == name) {
        v = value;
        return;
      }
    }
    vars.emplace_back(name, value);
  }
};

enum class Flow : std::uint8_t { kNext, kBreak, kContinue };

class Evaluator {
 public:
  Evaluator(const Ast& ast, Heap& heap, const Variables& variables);

  Result<const Str*> run(const Ast& ast);

  Heap& heap() { return heap_; }

  // ---- statements (eval_stmt.cpp)
  Result<Flow> block(const Block& b, Scope& scope);
  Result<Flow> statement(const Node& n, Scope& scope);
  // Output of a block as a value.
  Result<Value> capture(const Block& b, Scope& scope, Flow* flow = nullptr);
  Result<Value> recurse_loop(const Node& n, Scope& outer, const Value& items, std::int64_t depth0);
  Result<Value> call_macro(const Node& n, Scope& defined_in, CallArgs& args);
  Status assign(const Node& target, const Value& value, Scope& scope);
  Scope* new_scope(Scope* parent);

  // ---- expressions (eval_expr.cpp)
  Result<Value> eval(const Node& n, Scope& scope);
  Result<CallArgs> eval_args(const CallSpec& spec, Scope& scope);
  // n is a chain of filters; the innermost takes `input`.
  Result<Value> apply_filters(const Node& n, const Value& input, Scope& scope);
  // Puts line and column on an error that has none yet.
  tl::unexpected<Error> at(const Node& n, Error error);

 private:
  Result<Flow> statement_inner(const Node& n, Scope& scope);
  Status output(const Node& n, Scope& scope);
  Result<Flow> for_loop(const Node& n, Scope& scope);
  Result<Flow> run_loop(const Node& n, Scope& outer, const Value& items, std::int64_t depth0);
  Result<Flow> set_block(const Node& n, Scope& scope);
  Status define_macro(const Node& n, Scope& scope);
  Status call_block(const Node& n, Scope& scope);
  Value make_macro(const Node& n, Scope& scope);

  Result<Value> eval_inner(const Node& n, Scope& scope);
  Result<Value> lookup(const std::string& name, Scope& scope);
  Result<Value> eval_items(const Node& n, Scope& scope);
  Result<Value> eval_dict(const Node& n, Scope& scope);
  Result<Value> eval_get_item(const Node& n, Scope& scope);
  Result<Value> eval_compare(const Node& n, Scope& scope);
  Result<Value> eval_concat(const Node& n, Scope& scope);
  Result<Value> eval_test(const Node& n, Scope& scope);
  Result<Value> eval_call(const Node& n, Scope& scope);
  Result<Value> eval_logic(const Node& n, Scope& scope);

  Heap& heap_;
  const Variables& variables_;
  std::map<std::string, Value, std::less<>> globals_;
  StrBuilder* out_ = nullptr;
  bool located_ = false;
  friend struct OutputTo;
};

// Redirects output while it lives.
struct OutputTo {
  OutputTo(Evaluator& e, StrBuilder& to) : evaluator(e), before(e.out_) { e.out_ = &to; }

  OutputTo(const OutputTo&) = delete;
  OutputTo& operator=(const OutputTo&) = delete;

  ~OutputTo() { evaluator.out_ = before; }

  Evaluator& evaluator;
  StrBuilder* before;
};

}  // namespace trine::text::jinja
