// Operations of the template language on values: operators, attribute access, methods, filters,
// tests and functions. Names follow Python and Jinja. Errors as value.h. Thread rule: as the heap.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/str_builder.h"
#include "text/jinja/value.h"

namespace trine::text::jinja {

// The `loop` variable; the evaluator implements it.
struct Loop : Object {
  virtual Result<Value> attr(std::string_view name) = 0;
  virtual Result<Value> recurse(CallArgs& args) = 0;
};

Result<Value> unary_op(Op op, const Value& v);
Result<Value> binary_op(Heap& heap, Op op, const Value& a, const Value& b);
// ==, <, in and their relatives.
Result<bool> compare_op(Heap& heap, Op op, const Value& a, const Value& b);
Result<bool> contains(Heap& heap, const Value& container, const Value& item);

// obj.name: methods and attributes before keys. Missing ones give an undefined value.
Result<Value> get_attr(Heap& heap, const Value& obj, std::string_view name);
// obj[key]: keys before methods and attributes.
Result<Value> get_item(Heap& heap, const Value& obj, const Value& key);
Result<Value> get_slice(Heap& heap, const Value& obj, const std::array<Value, 3>& bounds);
// obj.a.b.0 as the attribute= arguments of filters spell it; an integer is one subscript, none the
// object itself. What is missing on the way becomes `otherwise` unless that is null or none.
Result<Value> get_path(Heap& heap, const Value& obj, const Value& path,
                       const Value* otherwise = nullptr);

Result<Value> call_value(Heap& heap, const Value& callee, CallArgs& args);

// A function with a fixed implementation.
using BuiltinFn = Result<Value> (*)(Heap& heap, const Value& self, CallArgs& args);

struct Builtin final : Callable {
  Heap* heap = nullptr;
  Value self;
  BuiltinFn fn = nullptr;

  Result<Value> call(CallArgs& args) override { return fn(*heap, self, args); }

  std::string describe() const override { return "<built-in function " + name + ">"; }
};

Value make_builtin(Heap& heap, std::string_view name, BuiltinFn fn, const Value& self = {});

// A method of str, list or dict by name; null when the type has none.
BuiltinFn find_method(const Value& self, std::string_view name);

bool has_filter(std::string_view name);
bool has_test(std::string_view name);
Result<Value> call_filter(Heap& heap, std::string_view name, const Value& input, CallArgs& args);
Result<bool> call_test(Heap& heap, std::string_view name, const Value& value, CallArgs& args);

// range, namespace, dict, joiner, cycler, raise_exception; strftime_now comes from the caller, who
// owns the clock.
BuiltinFn find_global(std::string_view name);

// Arguments by parameter order; absent ones are null. Refuses too many, unknown or missing ones.
Result<std::vector<const Value*>> bind(std::string_view function, const CallArgs& args,
                                       std::initializer_list<std::string_view> names,
                                       std::size_t required);
// An integral argument or `otherwise`.
Result<std::int64_t> int_arg(const Value* v, std::int64_t otherwise);
Result<const Str*> str_arg(const Value* v, std::string_view what);

// ---- text operations shared by methods and filters
enum class Case : std::uint8_t { kUpper, kLower, kTitle, kCapitalize, kSwap };
Status append_case(Heap& heap, StrBuilder& out, const Str& s, std::size_t from, std::size_t to,
                   Case how);
Result<Value> change_case(Heap& heap, const Str& s, Case how);
// strip(): whitespace, or the characters of `chars`.
Result<Value> strip_text(Heap& heap, const Str& s, const Str* chars, bool left, bool right);
Result<Value> replace_text(Heap& heap, const Str& s, const Str& old, const Str& with,
                           std::int64_t count);
Result<std::vector<Value>> split_lines(Heap& heap, const Str& s, bool keep_ends);
Result<std::vector<Value>> split_text(Heap& heap, const Str& s, const Str* separator,
                                      std::int64_t max_split, bool from_right);
Result<Value> pad_text(Heap& heap, const Str& s, std::int64_t width, const Str* fill, char align);

}  // namespace trine::text::jinja
