#include "text/jinja/from_json.h"

#include <nlohmann/json.hpp>

#include "text/jinja/unicode.h"

namespace trine::text::jinja {

using Json = nlohmann::ordered_json;

namespace {

Result<Value> checked_string(Heap& heap, const std::string& text) {
  if (!is_valid_utf8(text)) {
    return fail(ErrorCode::kInvalidArgument, "a text is not UTF-8");
  }
  return heap.string(text, true);
}

}  // namespace

Result<Value> from_json(Heap& heap, const Json& json, int depth) {
  if (depth > kMaxDataDepth) {
    return fail(ErrorCode::kInvalidArgument, "the input nests deeper than {}", kMaxDataDepth);
  }
  switch (json.type()) {
    case Json::value_t::null:
      return Value::none();
    case Json::value_t::boolean:
      return Value::of_bool(json.get<bool>(), true);
    case Json::value_t::number_integer:
      return Value::of_int(json.get<std::int64_t>(), true);
    case Json::value_t::number_unsigned: {
      const auto n = json.get<std::uint64_t>();
      if (n > static_cast<std::uint64_t>(INT64_MAX)) {
        return fail(ErrorCode::kInvalidArgument, "the integer {} does not fit 64 bits with a sign",
                    n);
      }
      return Value::of_int(static_cast<std::int64_t>(n), true);
    }
    case Json::value_t::number_float:
      return Value::of_float(json.get<double>(), true);
    case Json::value_t::string:
      return checked_string(heap, json.get_ref<const std::string&>());
    case Json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const Json& element : json) {
        TRINE_TRY_ASSIGN(Value v, from_json(heap, element, depth + 1));
        items.push_back(v);
      }
      return heap.list(std::move(items), true);
    }
    case Json::value_t::object: {
      TRINE_TRY(heap.charge(json.size() * sizeof(std::pair<Value, Value>)));
      Dict* d = heap.make<Dict>();
      d->user = true;
      for (const auto& [key, value] : json.items()) {
        TRINE_TRY_ASSIGN(const Value k, checked_string(heap, key));
        TRINE_TRY_ASSIGN(const Value v, from_json(heap, value, depth + 1));
        d->items.emplace_back(k, v);
      }
      d->rebuild_index();
      return Value::of(d);
    }
    default:
      return fail(ErrorCode::kInvalidArgument, "the input holds a value that is not JSON");
  }
}

}  // namespace trine::text::jinja
