// Longer than a file should be: the grammar is one recursive class whose pieces call each other in
// all directions.
#include "text/jinja/parser.h"

#include <algorithm>
#include <array>
#include <optional>

#include "text/jinja/unicode.h"

namespace trine::text::jinja {

namespace {

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

class Parser {
 public:
  Parser(std::vector<Token> tokens, Ast& ast) : tokens_(std::move(tokens)), ast_(ast) {}

  Status run() {
    TRINE_TRY_ASSIGN(ast_.root, block_until({}));
    return {};
  }

 private:
  using Ends = std::vector<std::string_view>;

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

  static tl::unexpected<Error> fail_at(Pos pos, std::string message,
                                       ErrorCode code = ErrorCode::kCorruptData) {
    return tl::unexpected<Error>(located(Error{code, std::move(message)}, pos));
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

  // ---- expressions
  NodeResult expression() {
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

  std::optional<BinaryOp> peek_binary() const {
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

  void take_binary(const BinaryOp& op) {
    take();
    if (op.op == Op::kNotIn) {
      take();
    }
  }

  NodeResult binary(int min_power) {
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

  // a < b <= c and a ~ b ~ c are one node each.
  NodeResult chain(Node* first, int power, Pos pos) {
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

  NodeResult unary(bool with_filter) {
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

  NodeResult literal(Value v, Pos pos) {
    Node* n = make(NodeKind::kLiteral, pos);
    n->value = v;
    return n;
  }

  void note_name(const std::string& name) {
    for (Function& f : functions_) {
      f.caller |= name == "caller";
      f.varargs |= name == "varargs";
      f.kwargs |= name == "kwargs";
    }
  }

  NodeResult primary(bool with_namespace) {
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

  NodeResult list() {
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

  NodeResult dict() {
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

  struct TupleMode {
    bool simplified = false;  // targets: names and literals only
    bool cond = true;         // inline if allowed
    bool parentheses = false;
    bool with_namespace = false;
    std::string_view end_name = {};
  };

  bool tuple_ends(const TupleMode& mode) const {
    const TokenType t = peek().type;
    return t == TokenType::kVariableEnd || t == TokenType::kBlockEnd || is_op(")") ||
           (!mode.end_name.empty() && is_name(mode.end_name));
  }

  // One expression, or a tuple when commas follow.
  NodeResult tuple(const TupleMode& mode) {
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

  NodeResult postfix(Node* node) {
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

  NodeResult attribute(Node* node) {
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

  NodeResult subscript(Node* node) {
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

  NodeResult slice() {
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

  Result<CallSpec> call_args() {
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

  NodeResult call(Node* callee) {
    Node* n = make(NodeKind::kCall, peek().pos);
    n->a = callee;
    TRINE_TRY_ASSIGN(n->call, call_args());
    return done(n);
  }

  Result<std::string> dotted_name(std::string_view what) {
    TRINE_TRY_ASSIGN(std::string name, expect_name(what));
    while (skip_op(".")) {
      TRINE_TRY_ASSIGN(const std::string part, expect_name(what));
      name += "." + part;
    }
    return name;
  }

  // x | f | g(1); `input` is null where a block's text is the input.
  NodeResult filter_chain(Node* input, bool start_inline) {
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

  NodeResult filters_and_tests(Node* node) {
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

  NodeResult test(Node* node) {
    const Pos pos = take().pos;
    const bool negated = skip_name("not");
    Node* n = make(NodeKind::kTest, pos);
    n->a = node;
    TRINE_TRY_ASSIGN(n->name, dotted_name("a test name"));
    const Token& t = peek();
    const bool operand = t.type == TokenType::kName || t.type == TokenType::kString ||
                         t.type == TokenType::kInteger || t.type == TokenType::kFloat ||
                         is_op("[") || is_op("{");
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

  // ---- statements
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

  std::vector<Token> tokens_;
  Ast& ast_;
  std::size_t at_ = 0;
  int depth_ = 0;
  int loops_ = 0;
  std::vector<Function> functions_;
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
