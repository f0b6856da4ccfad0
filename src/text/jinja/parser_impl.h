// Inside of the parser, shared by its source files: tokens and nodes here, expressions in
// parser_expr.cpp, statements in parser.cpp.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/parser.h"

namespace trine::text::jinja {

using NodeResult = Result<Node*>;

// Binding powers, weakest first, in Jinja's order: '~' binds tighter than '+', and '**' groups to
// the left.
enum Power : int {
  kOrPower = 1,
  kAndPower,
  kNotPower,
  kComparePower,
  kAddPower,
  kConcatPower,
  kMulPower,
  kPowPower
};

struct BinaryOp {
  Op op;
  int power;
};

// What enclosing macros need to know about names used inside them.
struct Function {
  bool caller = false;
  bool varargs = false;
  bool kwargs = false;
  int outer_loops = 0;
};

// The stream of tokens and the making of nodes.
class ParserBase {
 public:
  ParserBase(std::vector<Token> tokens, Ast& ast) : tokens_(std::move(tokens)), ast_(ast) {}

 protected:
  // ---- tokens
  const Token& peek(std::size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }

  Token take() {
    Token t = peek();
    at_ = std::min(at_ + 1, tokens_.size() - 1);
    return t;
  }

  bool is_name(std::string_view name, std::size_t ahead = 0) const {
    return peek(ahead).type == TokenType::kName && peek(ahead).text == name;
  }

  bool is_op(std::string_view op, std::size_t ahead = 0) const {
    return peek(ahead).type == TokenType::kOperator && peek(ahead).text == op;
  }

  bool skip_name(std::string_view name) {
    const bool hit = is_name(name);
    at_ += hit ? 1U : 0U;
    return hit;
  }

  bool skip_op(std::string_view op) {
    const bool hit = is_op(op);
    at_ += hit ? 1U : 0U;
    return hit;
  }

  static std::string describe(const Token& t) {
    switch (t.type) {
      case TokenType::kBlockEnd:
        return "the end of the statement";
      case TokenType::kVariableEnd:
        return "the end of the expression";
      case TokenType::kEnd:
        return "the end of the template";
      case TokenType::kString:
        return "a text literal";
      default:
        return fmt::format("'{}'", t.text);
    }
  }

  static tl::unexpected<Error> fail_at(Pos pos, std::string_view message,
                                       ErrorCode code = ErrorCode::kCorruptData) {
    return tl::unexpected<Error>(located(Error{code, message}, pos));
  }

  Status expect_op(std::string_view op) {
    if (!skip_op(op)) {
      return fail_at(peek().pos, fmt::format("expected '{}', got {}", op, describe(peek())));
    }
    return {};
  }

  Result<std::string> expect_name(std::string_view what) {
    if (peek().type != TokenType::kName) {
      return fail_at(peek().pos, fmt::format("expected {}, got {}", what, describe(peek())));
    }
    return take().text;
  }

  Status expect_keyword(std::string_view name) {
    if (!skip_name(name)) {
      return fail_at(peek().pos, fmt::format("expected '{}', got {}", name, describe(peek())));
    }
    return {};
  }

  Status expect_end(TokenType type) {
    if (peek().type != type) {
      return fail_at(peek().pos, fmt::format("unexpected {}", describe(peek())));
    }
    take();
    return {};
  }

  // ---- nodes
  Node* make(NodeKind kind, Pos pos) {
    ast_.nodes.push_back(std::make_unique<Node>());
    Node* n = ast_.nodes.back().get();
    n->kind = kind;
    n->pos = pos;
    return n;
  }

  static int height_of(const CallSpec& call) {
    int h = 0;
    for (const Node* x : call.args) {
      h = std::max(h, x->height);
    }
    for (const auto& [name, x] : call.named) {
      h = std::max(h, x->height);
    }
    for (const Node* x : {call.star, call.star_star}) {
      h = std::max(h, x != nullptr ? x->height : 0);
    }
    return h;
  }

  // Every node passes here once its children are known: bounds the evaluator's recursion.
  static NodeResult done(Node* n) {
    int h = height_of(n->call);
    for (const Node* x : {n->a, n->b, n->c}) {
      h = std::max(h, x != nullptr ? x->height : 0);
    }
    for (const Node* x : n->items) {
      h = std::max(h, x != nullptr ? x->height : 0);
    }
    for (const Block& block : n->blocks) {
      for (const Node* x : block.nodes) {
        h = std::max(h, x->height);
      }
    }
    n->height = h + 1;
    if (n->height > kMaxHeight) {
      return too_deep(n->pos);
    }
    return n;
  }

  static tl::unexpected<Error> too_deep(Pos pos) {
    return fail_at(pos, fmt::format("the template nests deeper than {}", kMaxHeight),
                   ErrorCode::kExhausted);
  }

  struct Depth {
    explicit Depth(int& d) : depth(d) { ++depth; }

    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;

    ~Depth() { --depth; }

    int& depth;
  };

  std::vector<Token> tokens_;
  Ast& ast_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

// Everything inside {{ }}, and the expressions of statements.
class ExpressionParser : public ParserBase {
 public:
  using ParserBase::ParserBase;

 protected:
  struct TupleMode {
    bool simplified = false;  // targets: names and literals only
    bool cond = true;         // inline if allowed
    bool parentheses = false;
    bool with_namespace = false;
    std::string_view end_name = {};
  };

  NodeResult expression();
  std::optional<BinaryOp> peek_binary() const;
  void take_binary(const BinaryOp& op);
  NodeResult binary(int min_power);
  // a < b <= c and a ~ b ~ c are one node each.
  NodeResult chain(Node* first, int power, Pos pos);
  NodeResult unary(bool with_filter);
  NodeResult literal(Value v, Pos pos);
  void note_name(const std::string& name);
  NodeResult primary(bool with_namespace);
  NodeResult list();
  NodeResult dict();
  bool tuple_ends(const TupleMode& mode) const;
  // One expression, or a tuple when commas follow.
  NodeResult tuple(const TupleMode& mode);
  NodeResult postfix(Node* node);
  NodeResult attribute(Node* node);
  NodeResult subscript(Node* node);
  NodeResult slice();
  Result<CallSpec> call_args();
  NodeResult call(Node* callee);
  Result<std::string> dotted_name(std::string_view what);
  // x | f | g(1); `input` is null where a block's text is the input.
  NodeResult filter_chain(Node* input, bool start_inline);
  NodeResult filters_and_tests(Node* node);
  NodeResult test(Node* node);

  std::vector<Function> functions_;  // macros around the current place, outermost first
};

}  // namespace trine::text::jinja
