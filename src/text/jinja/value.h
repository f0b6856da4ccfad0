// Values of the template language: Python's data model as far as chat templates see it, with a mark
// on every character and scalar that says whether it came from a user.
//
// A Heap owns every object of one render and is thrown away as a whole: containers may refer to
// each other in cycles without a leak, and one byte count bounds all memory. Values are small
// handles into it. Numeric contract: integers are 64-bit and overflow is reported, floats are IEEE
// doubles with Python's shortest text. Errors: exhausted for a limit, corrupt_data for what Python
// would raise; the evaluator adds line and column. Thread rule: a Heap and its values belong to one
// thread. Constants of a parsed template are read-only and shared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace trine::text::jinja {

struct Limits {
  std::int64_t steps =
      20'000'000;  // evaluated nodes, visited elements and each 64 bytes of text work
  std::size_t heap_bytes = std::size_t{256}
                           << 20;  // everything a render allocates, freed at its end
  std::size_t output_bytes = std::size_t{64} << 20;
  int depth = 400;               // nested evaluations: expressions, blocks, macro calls
  std::int64_t range = 100'000;  // elements of one range(), as Jinja's sandbox has it
};

// Nesting of containers when they are compared or printed; Python gives up near its recursion
// limit.
inline constexpr int kMaxDataDepth = 150;
inline constexpr std::size_t kNotFound = static_cast<std::size_t>(-1);

enum class Kind : std::uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kView,  // dict.keys(), values(), items()
  kRange,
  kIterator,  // what a lazy filter returns: may be walked once
  kNamespace,
  kCallable,
  kLoop,
};

struct Object {
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;
};

class Heap;
struct Str;
struct List;
struct Dict;
struct View;
struct Range;
struct Iterator;
struct Namespace;
struct Callable;
struct Loop;
struct UndefinedInfo;

struct Value {
  Kind kind = Kind::kUndefined;
  bool user = false;  // for scalars: computed from something a user sent

  union {
    bool b;
    std::int64_t i;
    double d;
    const Str* str;
    List* list;  // kList and kTuple
    Dict* dict;
    View* view;
    Range* range;
    Iterator* iterator;
    Namespace* ns;
    Callable* callable;
    Loop* loop;
    const UndefinedInfo* undefined = nullptr;
  };

  static Value none() {
    Value v;
    v.kind = Kind::kNone;
    return v;
  }

  static Value of_bool(bool x, bool from_user = false) {
    Value v;
    v.kind = Kind::kBool;
    v.user = from_user;
    v.b = x;
    return v;
  }

  static Value of_int(std::int64_t x, bool from_user = false) {
    Value v;
    v.kind = Kind::kInt;
    v.user = from_user;
    v.i = x;
    return v;
  }

  static Value of_float(double x, bool from_user = false) {
    Value v;
    v.kind = Kind::kFloat;
    v.user = from_user;
    v.d = x;
    return v;
  }

  static Value of(const Str* x) {
    Value v;
    v.kind = Kind::kString;
    v.str = x;
    return v;
  }

  static Value of(List* x, bool tuple = false) {
    Value v;
    v.kind = tuple ? Kind::kTuple : Kind::kList;
    v.list = x;
    return v;
  }

  static Value of(Dict* x) {
    Value v;
    v.kind = Kind::kDict;
    v.dict = x;
    return v;
  }

  static Value of(Callable* x) {
    Value v;
    v.kind = Kind::kCallable;
    v.callable = x;
    return v;
  }

  bool is(Kind k) const { return kind == k; }

  bool is_undefined() const { return kind == Kind::kUndefined; }

  bool is_string() const { return kind == Kind::kString; }

  // Python counts bool as an integer.
  bool is_integral() const { return kind == Kind::kInt || kind == Kind::kBool; }

  bool is_number() const { return is_integral() || kind == Kind::kFloat; }

  std::int64_t as_int() const { return kind == Kind::kBool ? (b ? 1 : 0) : i; }

  double as_double() const { return kind == Kind::kFloat ? d : static_cast<double>(as_int()); }
};

// A stretch of text up to byte `end`, all of one origin.
struct Run {
  std::size_t end = 0;
  bool user = false;
};

// Immutable UTF-8 text. Indexes seen by templates count code points, as in Python.
struct Str final : Object {
  std::string text;
  std::vector<Run> runs;  // cover the text without gaps; neighbours differ; empty for empty text
  std::size_t num_chars = 0;
  bool markup = false;  // result of |safe or |escape

  bool ascii() const { return num_chars == text.size(); }

  bool any_user() const;
  bool user_at(std::size_t byte) const;
};

struct List final : Object {
  std::vector<Value> items;
  bool user = false;   // built from input: its brackets count as the user's text
  bool group = false;  // element of groupby: .grouper and .list
};

struct Dict final : Object {
  std::vector<std::pair<Value, Value>> items;     // insertion order
  std::map<std::string_view, std::size_t> index;  // string keys, kept once there are many
  bool user = false;

  std::size_t find_index(std::string_view key) const;  // kNotFound when absent
  const Value* find(std::string_view key) const;
  void rebuild_index();
};

enum class ViewKind : std::uint8_t { kKeys, kValues, kItems };

struct View final : Object {
  Dict* dict = nullptr;
  ViewKind what = ViewKind::kKeys;
};

struct Range final : Object {
  std::int64_t start = 0;
  std::int64_t stop = 0;
  std::int64_t step = 1;
  std::int64_t size = 0;
  bool user = false;

  std::int64_t at(std::int64_t i) const { return start + i * step; }
};

// Filled at first use, as Python's generators run when they are asked.
struct Iterator final : Object {
  std::function<Result<std::vector<Value>>()> produce;
  std::vector<Value> items;
  std::size_t next = 0;
};

struct Namespace final : Object {
  std::map<std::string, Value, std::less<>> attrs;
  std::vector<std::string> order;

  // Refuses names with a leading underscore, as Transformers does.
  Status set(Heap& heap, std::string_view attribute, const Value& value);
};

struct UndefinedInfo final : Object {
  std::string message;
  bool from_input = false;  // something the caller's messages lack, so the caller is to blame
};

struct CallArgs {
  std::vector<Value> pos;
  std::vector<std::pair<std::string, Value>> named;

  const Value* find_named(std::string_view name) const;
};

struct Callable : Object {
  std::string name;
  virtual Result<Value> call(CallArgs& args) = 0;
  // Undefined when there is no such attribute.
  virtual Result<Value> attr(Heap& heap, std::string_view attribute);
  // Python's repr of the object.
  virtual std::string describe() const = 0;
};

// Owner and bookkeeper of one render.
class Heap {
 public:
  explicit Heap(const Limits& limits) : limits_(limits), steps_left_(limits.steps) {}

  const Limits& limits() const { return limits_; }

  // Counts work. `n` steps.
  Status step(std::int64_t n = 1) {
    steps_left_ -= n;
    if (steps_left_ < 0) [[unlikely]] {
      return out_of_steps();
    }
    return {};
  }

  // Work on text of that many bytes.
  Status text_work(std::size_t bytes) { return step(1 + static_cast<std::int64_t>(bytes / 64)); }

  // Counts memory; fails before it is allocated when asked first.
  Status charge(std::size_t bytes) {
    if (bytes > limits_.heap_bytes - used_) [[unlikely]] {
      used_ = limits_.heap_bytes;
      return out_of_memory();
    }
    used_ += bytes;
    return {};
  }

  // True when `bytes` more would not fit.
  bool would_exceed(std::size_t bytes) const { return bytes > limits_.heap_bytes - used_; }

  template <typename T>
  T* make() {
    return adopt(std::make_unique<T>());
  }

  template <typename T>
  T* adopt(std::unique_ptr<T> owned) {
    T* raw = owned.get();
    objects_.push_back(std::move(owned));
    // With what its containers allocate at least. Cannot fail here, so the next step does.
    constexpr std::size_t kCost = sizeof(T) + 64;
    if (would_exceed(kCost)) [[unlikely]] {
      used_ = limits_.heap_bytes;
      steps_left_ = -1;
    } else {
      used_ += kCost;
    }
    return raw;
  }

  Result<Value> list(std::vector<Value> items, bool user = false, bool tuple = false);
  Value undefined(std::string message, bool from_input = false);
  // Short ASCII or UTF-8 text of one origin.
  Result<Value> string(std::string_view text, bool user = false);
  Value iterator(std::function<Result<std::vector<Value>>()> produce);

  std::int64_t steps_left() const { return steps_left_; }

  // One level of recursion while it lives: evaluation, macro calls, lazy filters feeding lazy
  // filters.
  class Level {
   public:
    explicit Level(Heap& heap) : heap_(heap) { ++heap_.depth_; }

    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

    ~Level() { --heap_.depth_; }

    Status check() const;

   private:
    Heap& heap_;
  };

 private:
  Status out_of_steps() const;
  Status out_of_memory() const;

  Limits limits_;
  std::int64_t steps_left_;
  std::size_t used_ = 0;
  int depth_ = 0;
  std::vector<std::unique_ptr<Object>> objects_;
};

std::string_view kind_name(const Value& v);  // Python's type name, for messages
bool truthy(const Value& v);
// Characters of scalars count as the user's when the scalar does.
Result<bool> equals(Heap& heap, const Value& a, const Value& b, int depth = 0);
// -1, 0, 1. Refuses what Python cannot order.
Result<int> compare(Heap& heap, const Value& a, const Value& b, int depth = 0);
// Position in dict.items, or kNotFound. Refuses unhashable keys.
Result<std::size_t> dict_find(Heap& heap, const Dict& dict, const Value& key);
Status dict_set(Heap& heap, Dict& dict, const Value& key, const Value& value);
Status check_hashable(const Value& key, int depth = 0);
// Elements in order; refuses what Python cannot iterate. Iterators are used up.
Result<std::vector<Value>> iterate(Heap& heap, const Value& v);
bool is_iterable(const Value& v);
// len(); refuses what has none.
Result<std::int64_t> length(const Value& v);
// Stable; `less` order given by compare() on `keys`.
Result<std::vector<std::size_t>> sort_order(Heap& heap, const std::vector<Value>& keys,
                                            bool reverse);

template <typename... Args>
[[nodiscard]] tl::unexpected<Error> type_error(fmt::format_string<Args...> text, Args&&... args) {
  return fail(ErrorCode::kCorruptData, text, std::forward<Args>(args)...);
}

// Using an undefined value where Python's Jinja raises UndefinedError.
tl::unexpected<Error> undefined_error(const Value& v);

}  // namespace trine::text::jinja
