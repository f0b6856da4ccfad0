// Syntax tree of a template. Nodes live in the Ast and point to each other; the tree is immutable
// after the parser. Thread rule: read-only, any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/lexer.h"
#include "text/jinja/value.h"

namespace trine::text::jinja {

enum class Op : std::uint8_t {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kFloorDiv,
  kMod,
  kPow,
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kIn,
  kNotIn,
  kNeg,
  kPos,
  kNot,
  kAnd,
  kOr,
};

enum class NodeKind : std::uint8_t {
  // expressions
  kLiteral,
  kName,
  kList,
  kTuple,
  kDict,
  kGetAttr,
  kGetItem,
  kSlice,
  kCall,
  kFilter,
  kTest,
  kUnary,
  kBinary,
  kLogic,
  kCompare,
  kConcat,
  kCond,
  // targets
  kNsRef,
  // statements
  kOutput,
  kIf,
  kFor,
  kSet,
  kSetBlock,
  kWith,
  kMacro,
  kCallBlock,
  kFilterBlock,
  kGeneration,
  kBreak,
  kContinue,
};

struct Node;

struct CallSpec {
  std::vector<const Node*> args;
  std::vector<std::pair<std::string, const Node*>> named;
  const Node* star = nullptr;
  const Node* star_star = nullptr;
};

struct Block {
  std::vector<const Node*> nodes;
};

// One shape for all nodes. What each kind uses:
//   Literal value | Name name | List, Tuple, Concat, Output items | Dict items (key, value, key,
//   value ...) GetAttr a, name | GetItem a, b | Slice items[3], null where absent | Call a, call |
//   Filter a (null in blocks), name, call Test a, name, call | Unary op, a | Binary op, a, b |
//   Logic op, a, b | Compare items, ops | Cond a ? b : c (null if absent) NsRef name, attr | If
//   items = conditions, blocks = bodies (one more when there is an else) For a = target, b =
//   iterable, c = filter or null, blocks = body and else, flag = recursive Set a = target, b =
//   value | SetBlock a = target, b = filters or null, blocks | With items = targets and values,
//   blocks Macro, CallBlock name, params, items = defaults (last ones), b = the call, blocks, flags
//   | FilterBlock b, blocks
struct Node {
  NodeKind kind = NodeKind::kLiteral;
  Op op = Op::kAdd;
  Pos pos;
  int height = 1;
  std::string name;
  std::string attr;
  Value value;
  const Node* a = nullptr;
  const Node* b = nullptr;
  const Node* c = nullptr;
  std::vector<const Node*> items;
  std::vector<Op> ops;
  CallSpec call;
  std::vector<Block> blocks;
  std::vector<std::string> params;
  bool flag = false;
  bool has_else = false;
  bool uses_caller = false;
  bool uses_varargs = false;
  bool uses_kwargs = false;
};

struct Ast {
  std::unique_ptr<Heap> constants;  // owns the literals
  std::vector<std::unique_ptr<Node>> nodes;
  Block root;
};

}  // namespace trine::text::jinja
