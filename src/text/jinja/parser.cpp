// The grammar of statements; parser_expr.cpp has that of expressions.
#include "text/jinja/parser.h"

#include <algorithm>
#include <array>

#include "text/jinja/parser_impl.h"
#include "text/jinja/unicode.h"

namespace trine::text::jinja {

namespace {

class Parser final : public ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Status run() {
    TRINE_TRY_ASSIGN(ast_.root, block_until({}));
    return {};
  }

 private:
  using Ends = std::vector<std::string_view>;

  Result<Block> block_until(const Ends& ends) {
    Block block;
    Node* output = nullptr;
    const auto flush = [&]() -> Status {
      if (output != nullptr) {
        TRINE_TRY_ASSIGN(Node * n, done(output));
        block.nodes.push_back(n);
        output = nullptr;
      }
      return {};
    };
    const auto emit = [&](Node* n) {
      if (output == nullptr) {
        output = make(NodeKind::kOutput, n->pos);
      }
      output->items.push_back(n);
    };
    while (peek().type != TokenType::kEnd) {
      const Token t = take();
      if (t.type == TokenType::kData) {
        TRINE_TRY_ASSIGN(Value v, ast_.constants->string(t.text));
        TRINE_TRY_ASSIGN(Node * n, literal(v, t.pos));
        emit(n);
      } else if (t.type == TokenType::kVariableBegin) {
        TRINE_TRY_ASSIGN(Node * n, tuple({}));
        TRINE_TRY(expect_end(TokenType::kVariableEnd));
        emit(n);
      } else {
        TRINE_TRY(flush());
        const bool closes = std::any_of(ends.begin(), ends.end(),
                                        [&](std::string_view end) { return is_name(end); });
        if (closes) {
          return block;
        }
        TRINE_TRY_ASSIGN(Node * n, statement());
        block.nodes.push_back(n);
        TRINE_TRY(expect_end(TokenType::kBlockEnd));
      }
    }
    TRINE_TRY(flush());
    if (!ends.empty()) {
      return fail_at(peek().pos,
                     fmt::format("the template ends where '{}' is expected", ends.back()));
    }
    return block;
  }

  // The body of a statement up to one of `ends`, which stays the current token.
  Result<Block> body(const Ends& ends) {
    skip_op(":");
    TRINE_TRY(expect_end(TokenType::kBlockEnd));
    return block_until(ends);
  }

  NodeResult statement() {
    const Depth guard(depth_);
    const Token t = peek();
    if (depth_ > kMaxHeight) {
      return too_deep(t.pos);
    }
    if (t.type != TokenType::kName) {
      return fail_at(t.pos, fmt::format("expected a statement name, got {}", describe(t)));
    }
    take();
    static constexpr std::array<std::string_view, 7> kRefused = {
        "include", "import", "from", "extends", "block", "autoescape", "do"};
    if (std::find(kRefused.begin(), kRefused.end(), t.text) != kRefused.end()) {
      return fail_at(t.pos,
                     fmt::format("the statement '{}' is not supported in chat templates", t.text),
                     ErrorCode::kUnsupported);
    }
    using Method = NodeResult (Parser::*)(Pos);

    struct Entry {
      std::string_view name;
      Method parse;
    };

    static constexpr std::array<Entry, 11> kStatements = {
        {{"if", &Parser::if_statement},
         {"for", &Parser::for_statement},
         {"set", &Parser::set_statement},
         {"with", &Parser::with_statement},
         {"macro", &Parser::macro_statement},
         {"call", &Parser::call_statement},
         {"filter", &Parser::filter_statement},
         {"generation", &Parser::generation_statement},
         {"print", &Parser::print_statement},
         {"break", &Parser::break_statement},
         {"continue", &Parser::continue_statement}}};
    for (const Entry& e : kStatements) {
      if (e.name == t.text) {
        return (this->*e.parse)(t.pos);
      }
    }
    return fail_at(t.pos, fmt::format("unknown statement '{}'", t.text));
  }

  NodeResult if_statement(Pos pos) {
    Node* n = make(NodeKind::kIf, pos);
    while (true) {
      TRINE_TRY_ASSIGN(Node * condition, tuple({.cond = false}));
      n->items.push_back(condition);
      TRINE_TRY_ASSIGN(Block then, body({"elif", "else", "endif"}));
      n->blocks.push_back(std::move(then));
      const std::string end = take().text;
      if (end == "elif") {
        continue;
      }
      if (end == "else") {
        TRINE_TRY_ASSIGN(Block otherwise, body({"endif"}));
        n->blocks.push_back(std::move(otherwise));
        n->has_else = true;
        take();
      }
      return done(n);
    }
  }

  NodeResult target(bool with_namespace, std::string_view end_name = {}) {
    TRINE_TRY_ASSIGN(
        Node * t,
        tuple({.simplified = true, .with_namespace = with_namespace, .end_name = end_name}));
    TRINE_TRY(check_target(*t));
    return t;
  }

  static Status check_target(const Node& t) {
    if (t.kind == NodeKind::kName || t.kind == NodeKind::kNsRef) {
      return {};
    }
    if (t.kind != NodeKind::kTuple) {
      return fail_at(t.pos, "cannot assign to this expression");
    }
    for (const Node* item : t.items) {
      TRINE_TRY(check_target(*item));
    }
    return {};
  }

  static bool names(const Node& t, std::string_view name) {
    return (t.kind == NodeKind::kName && t.name == name) ||
           std::any_of(t.items.begin(), t.items.end(),
                       [&](const Node* x) { return names(*x, name); });
  }

  NodeResult for_statement(Pos pos) {
    Node* n = make(NodeKind::kFor, pos);
    TRINE_TRY_ASSIGN(n->a, target(false, "in"));
    if (names(*n->a, "loop")) {
      return fail_at(pos, "a for statement cannot assign to 'loop'");
    }
    TRINE_TRY(expect_keyword("in"));
    TRINE_TRY_ASSIGN(n->b, tuple({.cond = false, .end_name = "recursive"}));
    if (skip_name("if")) {
      TRINE_TRY_ASSIGN(n->c, expression());
    }
    n->flag = skip_name("recursive");
    ++loops_;
    auto first = body({"endfor", "else"});
    --loops_;
    TRINE_TRY_ASSIGN(Block loop_body, std::move(first));
    n->blocks.push_back(std::move(loop_body));
    if (take().text == "else") {
      TRINE_TRY_ASSIGN(Block otherwise, body({"endfor"}));
      n->blocks.push_back(std::move(otherwise));
      n->has_else = true;
      take();
    }
    return done(n);
  }

  NodeResult set_statement(Pos pos) {
    TRINE_TRY_ASSIGN(Node * t, target(true));
    const bool assigns = skip_op("=");
    Node* n = make(assigns ? NodeKind::kSet : NodeKind::kSetBlock, pos);
    n->a = t;
    if (assigns) {
      TRINE_TRY_ASSIGN(n->b, tuple({}));
      return done(n);
    }
    TRINE_TRY_ASSIGN(n->b, filter_chain(nullptr, false));
    TRINE_TRY_ASSIGN(Block inner, body({"endset"}));
    n->blocks.push_back(std::move(inner));
    take();
    return done(n);
  }

  NodeResult with_statement(Pos pos) {
    Node* n = make(NodeKind::kWith, pos);
    while (peek().type != TokenType::kBlockEnd) {
      if (!n->items.empty()) {
        TRINE_TRY(expect_op(","));
      }
      TRINE_TRY_ASSIGN(Node * t, target(false));
      TRINE_TRY(expect_op("="));
      TRINE_TRY_ASSIGN(Node * value, expression());
      n->items.push_back(t);
      n->items.push_back(value);
    }
    TRINE_TRY_ASSIGN(Block inner, body({"endwith"}));
    n->blocks.push_back(std::move(inner));
    take();
    return done(n);
  }

  Status signature(Node& n) {
    TRINE_TRY(expect_op("("));
    while (!is_op(")")) {
      if (!n.params.empty()) {
        TRINE_TRY(expect_op(","));
      }
      const Pos pos = peek().pos;
      TRINE_TRY_ASSIGN(std::string name, expect_name("a parameter name"));
      if (std::find(n.params.begin(), n.params.end(), name) != n.params.end()) {
        return fail_at(pos, fmt::format("parameter '{}' is named twice", name));
      }
      n.params.push_back(std::move(name));
      if (skip_op("=")) {
        TRINE_TRY_ASSIGN(Node * value, expression());
        n.items.push_back(value);
      } else if (!n.items.empty()) {
        return fail_at(pos, "a parameter without default follows one with a default");
      }
    }
    return expect_op(")");
  }

  // Body of a macro-like statement: loops outside do not reach in, and special names used inside
  // are noted.
  Status function_body(Node& n, std::string_view end) {
    functions_.push_back({false, false, false, loops_});
    loops_ = 0;
    auto inner = body({end});
    const Function f = functions_.back();
    functions_.pop_back();
    loops_ = f.outer_loops;
    TRINE_TRY_ASSIGN(Block block, std::move(inner));
    n.blocks.push_back(std::move(block));
    take();
    n.uses_caller = f.caller;
    n.uses_varargs = f.varargs;
    n.uses_kwargs = f.kwargs;
    return {};
  }

  NodeResult macro_statement(Pos pos) {
    Node* n = make(NodeKind::kMacro, pos);
    TRINE_TRY_ASSIGN(n->name, expect_name("a macro name"));
    TRINE_TRY(signature(*n));
    TRINE_TRY(function_body(*n, "endmacro"));
    return done(n);
  }

  NodeResult call_statement(Pos pos) {
    Node* n = make(NodeKind::kCallBlock, pos);
    n->name = "caller";
    if (is_op("(")) {
      TRINE_TRY(signature(*n));
    }
    TRINE_TRY_ASSIGN(Node * callee, expression());
    if (callee->kind != NodeKind::kCall) {
      return fail_at(pos, "a call statement needs a call");
    }
    n->b = callee;
    TRINE_TRY(function_body(*n, "endcall"));
    return done(n);
  }

  NodeResult filter_statement(Pos pos) {
    Node* n = make(NodeKind::kFilterBlock, pos);
    TRINE_TRY_ASSIGN(n->b, filter_chain(nullptr, true));
    TRINE_TRY_ASSIGN(Block inner, body({"endfilter"}));
    n->blocks.push_back(std::move(inner));
    take();
    return done(n);
  }

  NodeResult generation_statement(Pos pos) {
    Node* n = make(NodeKind::kGeneration, pos);
    TRINE_TRY(function_body(*n, "endgeneration"));
    return done(n);
  }

  NodeResult print_statement(Pos pos) {
    Node* n = make(NodeKind::kOutput, pos);
    while (peek().type != TokenType::kBlockEnd) {
      if (!n->items.empty()) {
        TRINE_TRY(expect_op(","));
      }
      TRINE_TRY_ASSIGN(Node * value, expression());
      n->items.push_back(value);
    }
    return done(n);
  }

  NodeResult loop_control(NodeKind kind, Pos pos, std::string_view name) {
    if (loops_ == 0) {
      return fail_at(pos, fmt::format("'{}' outside of a loop", name));
    }
    return make(kind, pos);
  }

  NodeResult break_statement(Pos pos) { return loop_control(NodeKind::kBreak, pos, "break"); }

  NodeResult continue_statement(Pos pos) {
    return loop_control(NodeKind::kContinue, pos, "continue");
  }

  int loops_ = 0;
};

}  // namespace

Result<std::shared_ptr<const Ast>> parse_template(std::string_view source) {
  if (source.size() > kMaxTemplateBytes) {
    return fail(ErrorCode::kExhausted, "a chat template of {} bytes is too large, at most {}",
                source.size(), kMaxTemplateBytes);
  }
  if (!is_valid_utf8(source)) {
    return fail(ErrorCode::kCorruptData, "line 1, column 1: the chat template is not UTF-8");
  }
  TRINE_TRY_ASSIGN(auto tokens, tokenize(source));
  auto ast = std::make_shared<Ast>();
  ast->constants = std::make_unique<Heap>(Limits{});
  TRINE_TRY(Parser(std::move(tokens), *ast).run());
  return std::shared_ptr<const Ast>(std::move(ast));
}

}  // namespace trine::text::jinja
