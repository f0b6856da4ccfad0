// The grammar of expressions.
#include <algorithm>
#include <array>

#include "text/jinja/parser_impl.h"

namespace trine::text::jinja {

NodeResult ExpressionParser::expression() {
  const Depth guard(depth_);
  if (depth_ > kMaxHeight) {
    return too_deep(peek().pos);
  }
  const Pos pos = peek().pos;
  TRINE_TRY_ASSIGN(Node * value, binary(kOrPower));
  while (skip_name("if")) {
    Node* n = make(NodeKind::kCond, pos);
    n->b = value;
    TRINE_TRY_ASSIGN(n->a, binary(kOrPower));
    if (skip_name("else")) {
      TRINE_TRY_ASSIGN(n->c, expression());
    }
    TRINE_TRY_ASSIGN(value, done(n));
  }
  return value;
}

std::optional<BinaryOp> ExpressionParser::peek_binary() const {
  const Token& t = peek();
  if (t.type == TokenType::kName) {
    if (t.text == "or") {
      return BinaryOp{Op::kOr, kOrPower};
    }
    if (t.text == "and") {
      return BinaryOp{Op::kAnd, kAndPower};
    }
    if (t.text == "in") {
      return BinaryOp{Op::kIn, kComparePower};
    }
    if (t.text == "not" && is_name("in", 1)) {
      return BinaryOp{Op::kNotIn, kComparePower};
    }
    return std::nullopt;
  }
  if (t.type != TokenType::kOperator) {
    return std::nullopt;
  }

  struct Entry {
    std::string_view text;
    BinaryOp op;
  };

  static constexpr std::array<Entry, 14> kTable = {{{"+", {Op::kAdd, kAddPower}},
                                                    {"-", {Op::kSub, kAddPower}},
                                                    {"~", {Op::kAdd, kConcatPower}},
                                                    {"*", {Op::kMul, kMulPower}},
                                                    {"/", {Op::kDiv, kMulPower}},
                                                    {"//", {Op::kFloorDiv, kMulPower}},
                                                    {"%", {Op::kMod, kMulPower}},
                                                    {"**", {Op::kPow, kPowPower}},
                                                    {"==", {Op::kEq, kComparePower}},
                                                    {"!=", {Op::kNe, kComparePower}},
                                                    {"<", {Op::kLt, kComparePower}},
                                                    {"<=", {Op::kLe, kComparePower}},
                                                    {">", {Op::kGt, kComparePower}},
                                                    {">=", {Op::kGe, kComparePower}}}};
  for (const Entry& e : kTable) {
    if (e.text == t.text) {
      return e.op;
    }
  }
  return std::nullopt;
}

void ExpressionParser::take_binary(const BinaryOp& op) {
  take();
  if (op.op == Op::kNotIn) {
    take();
  }
}

NodeResult ExpressionParser::binary(int min_power) {
  const Depth guard(depth_);
  if (depth_ > kMaxHeight) {
    return too_deep(peek().pos);
  }
  Node* left = nullptr;
  if (min_power <= kNotPower && is_name("not")) {
    Node* n = make(NodeKind::kUnary, take().pos);
    n->op = Op::kNot;
    TRINE_TRY_ASSIGN(n->a, binary(kNotPower));
    TRINE_TRY_ASSIGN(left, done(n));
  } else {
    TRINE_TRY_ASSIGN(left, unary(true));
  }
  for (auto op = peek_binary(); op.has_value() && op->power >= min_power; op = peek_binary()) {
    const Pos pos = peek().pos;
    if (op->power == kComparePower || op->power == kConcatPower) {
      TRINE_TRY_ASSIGN(left, chain(left, op->power, pos));
      continue;
    }
    take_binary(*op);
    const bool logic = op->op == Op::kOr || op->op == Op::kAnd;
    Node* n = make(logic ? NodeKind::kLogic : NodeKind::kBinary, pos);
    n->op = op->op;
    n->a = left;
    if (op->power == kPowPower) {
      TRINE_TRY_ASSIGN(n->b, unary(true));
    } else {
      TRINE_TRY_ASSIGN(n->b, binary(op->power + 1));
    }
    TRINE_TRY_ASSIGN(left, done(n));
  }
  return left;
}

NodeResult ExpressionParser::chain(Node* first, int power, Pos pos) {
  Node* n = make(power == kComparePower ? NodeKind::kCompare : NodeKind::kConcat, pos);
  n->items.push_back(first);
  for (auto op = peek_binary(); op.has_value() && op->power == power; op = peek_binary()) {
    take_binary(*op);
    n->ops.push_back(op->op);
    TRINE_TRY_ASSIGN(Node * operand, binary(power + 1));
    n->items.push_back(operand);
  }
  return done(n);
}

NodeResult ExpressionParser::unary(bool with_filter) {
  const Depth guard(depth_);
  if (depth_ > kMaxHeight) {
    return too_deep(peek().pos);
  }
  Node* node = nullptr;
  if (is_op("-") || is_op("+")) {
    const Token sign = take();
    Node* n = make(NodeKind::kUnary, sign.pos);
    n->op = sign.text == "-" ? Op::kNeg : Op::kPos;
    TRINE_TRY_ASSIGN(n->a, unary(false));
    TRINE_TRY_ASSIGN(node, done(n));
  } else {
    TRINE_TRY_ASSIGN(node, primary(false));
  }
  TRINE_TRY_ASSIGN(node, postfix(node));
  return with_filter ? filters_and_tests(node) : NodeResult(node);
}

NodeResult ExpressionParser::literal(Value v, Pos pos) {
  Node* n = make(NodeKind::kLiteral, pos);
  n->value = v;
  return n;
}

void ExpressionParser::note_name(const std::string& name) {
  for (Function& f : functions_) {
    f.caller |= name == "caller";
    f.varargs |= name == "varargs";
    f.kwargs |= name == "kwargs";
  }
}

NodeResult ExpressionParser::primary(bool with_namespace) {
  const Token t = peek();
  switch (t.type) {
    case TokenType::kName: {
      take();
      if (t.text == "true" || t.text == "True" || t.text == "false" || t.text == "False") {
        return literal(Value::of_bool(t.text == "true" || t.text == "True"), t.pos);
      }
      if (t.text == "none" || t.text == "None") {
        return literal(Value::none(), t.pos);
      }
      const bool ns = with_namespace && skip_op(".");
      Node* n = make(ns ? NodeKind::kNsRef : NodeKind::kName, t.pos);
      n->name = t.text;
      if (ns) {
        TRINE_TRY_ASSIGN(n->attr, expect_name("an attribute name"));
      }
      note_name(t.text);
      return n;
    }
    case TokenType::kString: {
      std::string text;
      while (peek().type == TokenType::kString) {
        text += take().text;
      }
      TRINE_TRY_ASSIGN(Value v, ast_.constants->string(text));
      return literal(v, t.pos);
    }
    case TokenType::kInteger:
      take();
      return literal(Value::of_int(t.integer), t.pos);
    case TokenType::kFloat:
      take();
      return literal(Value::of_float(t.number), t.pos);
    default:
      break;
  }
  if (skip_op("(")) {
    TRINE_TRY_ASSIGN(Node * inner, tuple({.parentheses = true}));
    TRINE_TRY(expect_op(")"));
    return inner;
  }
  if (is_op("[")) {
    return list();
  }
  if (is_op("{")) {
    return dict();
  }
  return fail_at(t.pos, fmt::format("unexpected {}", describe(t)));
}

NodeResult ExpressionParser::list() {
  Node* n = make(NodeKind::kList, take().pos);
  while (!is_op("]")) {
    if (!n->items.empty()) {
      TRINE_TRY(expect_op(","));
      if (is_op("]")) {
        break;
      }
    }
    TRINE_TRY_ASSIGN(Node * item, expression());
    n->items.push_back(item);
  }
  TRINE_TRY(expect_op("]"));
  return done(n);
}

NodeResult ExpressionParser::dict() {
  Node* n = make(NodeKind::kDict, take().pos);
  while (!is_op("}")) {
    if (!n->items.empty()) {
      TRINE_TRY(expect_op(","));
      if (is_op("}")) {
        break;
      }
    }
    TRINE_TRY_ASSIGN(Node * key, expression());
    TRINE_TRY(expect_op(":"));
    TRINE_TRY_ASSIGN(Node * value, expression());
    n->items.push_back(key);
    n->items.push_back(value);
  }
  TRINE_TRY(expect_op("}"));
  return done(n);
}

bool ExpressionParser::tuple_ends(const TupleMode& mode) const {
  const TokenType t = peek().type;
  return t == TokenType::kVariableEnd || t == TokenType::kBlockEnd || is_op(")") ||
         (!mode.end_name.empty() && is_name(mode.end_name));
}

NodeResult ExpressionParser::tuple(const TupleMode& mode) {
  const Pos pos = peek().pos;
  std::vector<const Node*> items;
  Node* last = nullptr;
  bool is_tuple = false;
  while (true) {
    if (!items.empty()) {
      TRINE_TRY(expect_op(","));
    }
    if (tuple_ends(mode)) {
      break;
    }
    if (mode.simplified) {
      const Depth guard(depth_);
      if (depth_ > kMaxHeight) {
        return too_deep(pos);
      }
      TRINE_TRY_ASSIGN(last, primary(mode.with_namespace));
    } else if (mode.cond) {
      TRINE_TRY_ASSIGN(last, expression());
    } else {
      TRINE_TRY_ASSIGN(last, binary(kOrPower));
    }
    items.push_back(last);
    if (!is_op(",")) {
      break;
    }
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!items.empty()) {
      return last;
    }
    if (!mode.parentheses) {
      return fail_at(peek().pos, fmt::format("expected an expression, got {}", describe(peek())));
    }
  }
  Node* n = make(NodeKind::kTuple, pos);
  n->items = std::move(items);
  return done(n);
}

NodeResult ExpressionParser::postfix(Node* node) {
  while (true) {
    if (is_op(".")) {
      TRINE_TRY_ASSIGN(node, attribute(node));
    } else if (is_op("[")) {
      TRINE_TRY_ASSIGN(node, subscript(node));
    } else if (is_op("(")) {
      TRINE_TRY_ASSIGN(node, call(node));
    } else {
      return node;
    }
  }
}

NodeResult ExpressionParser::attribute(Node* node) {
  const Pos pos = take().pos;
  const Token t = take();
  if (t.type == TokenType::kName) {
    Node* n = make(NodeKind::kGetAttr, pos);
    n->a = node;
    n->name = t.text;
    return done(n);
  }
  if (t.type != TokenType::kInteger) {
    return fail_at(t.pos, "expected a name or number after '.'");
  }
  Node* n = make(NodeKind::kGetItem, pos);
  n->a = node;
  TRINE_TRY_ASSIGN(n->b, literal(Value::of_int(t.integer), t.pos));
  return done(n);
}

NodeResult ExpressionParser::subscript(Node* node) {
  Node* n = make(NodeKind::kGetItem, take().pos);
  n->a = node;
  Node* index = make(NodeKind::kTuple, n->pos);
  while (!is_op("]")) {
    if (!index->items.empty()) {
      TRINE_TRY(expect_op(","));
    }
    TRINE_TRY_ASSIGN(Node * item, slice());
    index->items.push_back(item);
  }
  TRINE_TRY(expect_op("]"));
  if (index->items.size() == 1) {
    n->b = index->items[0];
  } else {
    TRINE_TRY_ASSIGN(n->b, done(index));
  }
  return done(n);
}

NodeResult ExpressionParser::slice() {
  const Pos pos = peek().pos;
  Node* start = nullptr;
  if (!is_op(":")) {
    TRINE_TRY_ASSIGN(start, expression());
    if (!is_op(":")) {
      return start;
    }
  }
  take();
  const auto at_end = [&] { return is_op("]") || is_op(",") || is_op(":"); };
  Node* n = make(NodeKind::kSlice, pos);
  n->items = {start, nullptr, nullptr};
  if (!at_end()) {
    TRINE_TRY_ASSIGN(n->items[1], expression());
  }
  if (skip_op(":") && !at_end()) {
    TRINE_TRY_ASSIGN(n->items[2], expression());
  }
  return done(n);
}

Result<CallSpec> ExpressionParser::call_args() {
  const Pos pos = peek().pos;
  TRINE_TRY(expect_op("("));
  CallSpec spec;
  bool comma = false;
  while (!is_op(")")) {
    if (comma) {
      TRINE_TRY(expect_op(","));
      if (is_op(")")) {
        break;
      }
    }
    comma = true;
    bool fine = true;
    if (skip_op("*")) {
      fine = spec.star == nullptr && spec.star_star == nullptr;
      TRINE_TRY_ASSIGN(spec.star, expression());
    } else if (skip_op("**")) {
      fine = spec.star_star == nullptr;
      TRINE_TRY_ASSIGN(spec.star_star, expression());
    } else if (peek().type == TokenType::kName && is_op("=", 1)) {
      fine = spec.star_star == nullptr;
      std::string name = take().text;
      take();
      TRINE_TRY_ASSIGN(Node * value, expression());
      for (const auto& [other, x] : spec.named) {
        fine &= other != name;
      }
      spec.named.emplace_back(std::move(name), value);
    } else {
      fine = spec.star == nullptr && spec.star_star == nullptr && spec.named.empty();
      TRINE_TRY_ASSIGN(Node * value, expression());
      spec.args.push_back(value);
    }
    if (!fine) {
      return fail_at(pos, "the arguments of this call are in a wrong order or given twice");
    }
  }
  TRINE_TRY(expect_op(")"));
  return spec;
}

NodeResult ExpressionParser::call(Node* callee) {
  Node* n = make(NodeKind::kCall, peek().pos);
  n->a = callee;
  TRINE_TRY_ASSIGN(n->call, call_args());
  return done(n);
}

Result<std::string> ExpressionParser::dotted_name(std::string_view what) {
  TRINE_TRY_ASSIGN(std::string name, expect_name(what));
  while (skip_op(".")) {
    TRINE_TRY_ASSIGN(const std::string part, expect_name(what));
    name += "." + part;
  }
  return name;
}

NodeResult ExpressionParser::filter_chain(Node* input, bool start_inline) {
  Node* node = input;
  while (start_inline || is_op("|")) {
    if (!start_inline) {
      take();
    }
    start_inline = false;
    Node* n = make(NodeKind::kFilter, peek().pos);
    n->a = node;
    TRINE_TRY_ASSIGN(n->name, dotted_name("a filter name"));
    if (is_op("(")) {
      TRINE_TRY_ASSIGN(n->call, call_args());
    }
    TRINE_TRY_ASSIGN(node, done(n));
  }
  return node;
}

NodeResult ExpressionParser::filters_and_tests(Node* node) {
  while (true) {
    if (is_op("|")) {
      TRINE_TRY_ASSIGN(node, filter_chain(node, false));
    } else if (is_name("is")) {
      TRINE_TRY_ASSIGN(node, test(node));
    } else if (is_op("(")) {
      TRINE_TRY_ASSIGN(node, call(node));
    } else {
      return node;
    }
  }
}

NodeResult ExpressionParser::test(Node* node) {
  const Pos pos = take().pos;
  const bool negated = skip_name("not");
  Node* n = make(NodeKind::kTest, pos);
  n->a = node;
  TRINE_TRY_ASSIGN(n->name, dotted_name("a test name"));
  const Token& t = peek();
  const bool operand = t.type == TokenType::kName || t.type == TokenType::kString ||
                       t.type == TokenType::kInteger || t.type == TokenType::kFloat || is_op("[") ||
                       is_op("{");
  if (is_op("(")) {
    TRINE_TRY_ASSIGN(n->call, call_args());
  } else if (operand && !is_name("else") && !is_name("or") && !is_name("and")) {
    if (is_name("is")) {
      return fail_at(t.pos, "tests cannot be chained with 'is'");
    }
    TRINE_TRY_ASSIGN(Node * arg, primary(false));
    TRINE_TRY_ASSIGN(arg, postfix(arg));
    n->call.args.push_back(arg);
  }
  TRINE_TRY_ASSIGN(Node * result, done(n));
  if (negated) {
    Node* inverted = make(NodeKind::kUnary, pos);
    inverted->op = Op::kNot;
    inverted->a = result;
    return done(inverted);
  }
  return result;
}

}  // namespace trine::text::jinja
