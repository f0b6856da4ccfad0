// Filters over sequences and mappings, and the filter table.
#include <algorithm>

#include "text/jinja/filters.h"
#include "text/jinja/print.h"

namespace trine::text::jinja {

namespace {

// Keys of sort, min, max and unique ignore case unless told otherwise.
Result<Value> fold_case(Heap& heap, const Value& v, bool case_sensitive) {
  if (case_sensitive || !v.is_string()) {
    return v;
  }
  return change_case(heap, *v.str, Case::kLower);
}

bool flag(const Value* v) {
  return v != nullptr && truthy(*v);
}

Result<Value> filter_length(Heap&, const Value& input, CallArgs& args) {
  TRINE_TRY(bind("length", args, {}, 0));
  TRINE_TRY_ASSIGN(const std::int64_t n, length(input));
  return Value::of_int(n);
}

Result<Value> filter_default(Heap& heap, const Value& input, CallArgs& args) {
  TRINE_TRY_ASSIGN(const auto a, bind("default", args, {"default_value", "boolean"}, 0));
  if (input.is_undefined() || (flag(a[1]) && !truthy(input))) {
    return a[0] != nullptr ? Result<Value>(*a[0]) : heap.string("");
  }
  return input;
}

Result<Value> filter_list(Heap& heap, const Value& input, CallArgs& args) {
  TRINE_TRY(bind("list", args, {}, 0));
  TRINE_TRY_ASSIGN(auto items, iterate(heap, input));
  return heap.list(std::move(items));
}

Result<Value> filter_first(Heap& heap, const Value& input, CallArgs& args) {
  TRINE_TRY(bind("first", args, {}, 0));
  if (input.is(Kind::kIterator) && !input.iterator->produce &&
      input.iterator->next < input.iterator->items.size()) {
    return input.iterator->items[input.iterator->next++];
  }
  if (input.is(Kind::kIterator)) {
    // Takes one element and leaves the others, as next() does.
    TRINE_TRY_ASSIGN(auto items, iterate(heap, input));
    if (items.empty()) {
      return heap.undefined("the sequence is empty, it has no first item");
    }
    input.iterator->items = std::move(items);
    input.iterator->next = 1;
    return input.iterator->items[0];
  }
  if (input.is_string() || input.is(Kind::kList) || input.is(Kind::kTuple)) {
    TRINE_TRY_ASSIGN(const std::int64_t n, length(input));
    return n > 0 ? get_item(heap, input, Value::of_int(0))
                 : heap.undefined("the sequence is empty, it has no first item");
  }
  TRINE_TRY_ASSIGN(const auto items, iterate(heap, input));
  return items.empty() ? heap.undefined("the sequence is empty, it has no first item") : items[0];
}

Result<Value> filter_last(Heap& heap, const Value& input, CallArgs& args) {
  TRINE_TRY(bind("last", args, {}, 0));
  if (input.is(Kind::kIterator)) {
    return type_error("a generator has no last item, turn it into a list first");
  }
  if (input.is_string() || input.is(Kind::kList) || input.is(Kind::kTuple)) {
    TRINE_TRY_ASSIGN(const std::int64_t n, length(input));
    return n > 0 ? get_item(heap, input, Value::of_int(-1))
                 : heap.undefined("the sequence is empty, it has no last item");
  }
  TRINE_TRY_ASSIGN(const auto items, iterate(heap, input));
  return items.empty() ? heap.undefined("the sequence is empty, it has no last item")
                       : items.back();
}

Result<Value> filter_items(Heap& heap, const Value& input, CallArgs& args) {
  TRINE_TRY(bind("items", args, {}, 0));
  return heap.iterator([&heap, input]() -> Result<std::vector<Value>> {
    if (input.is_undefined()) {
      return std::vector<Value>();
    }
    if (!input.is(Kind::kDict)) {
      return type_error("items needs a mapping, not {}", kind_name(input));
    }
    View view;
    view.dict = input.dict;
    view.what = ViewKind::kItems;
    Value v;
    v.kind = Kind::kView;
    v.view = &view;
    return iterate(heap, v);
  });
}

Result<Value> filter_dictsort(Heap& heap, const Value& input, CallArgs& args) {
  TRINE_TRY_ASSIGN(const auto a, bind("dictsort", args, {"case_sensitive", "by", "reverse"}, 0));
  TRINE_TRY_ASSIGN(const Str* by, str_arg(a[1], "the 'by' of dictsort"));
  const std::string_view field = by != nullptr ? std::string_view(by->text) : "key";
  if (field != "key" && field != "value") {
    return type_error("dictsort sorts by key or value");
  }
  if (input.is_undefined()) {
    return undefined_error(input);
  }
  if (!input.is(Kind::kDict)) {
    return type_error("dictsort needs a mapping, not {}", kind_name(input));
  }
  std::vector<Value> keys;
  for (const auto& [key, value] : input.dict->items) {
    TRINE_TRY_ASSIGN(Value k, fold_case(heap, field == "key" ? key : value, flag(a[0])));
    keys.push_back(k);
  }
  TRINE_TRY_ASSIGN(const auto order, sort_order(heap, keys, flag(a[2])));
  std::vector<Value> out;
  for (const std::size_t i : order) {
    const auto& [key, value] = input.dict->items[i];
    TRINE_TRY_ASSIGN(Value pair, heap.list({key, value}, input.dict->user, true));
    out.push_back(pair);
  }
  return heap.list(std::move(out));
}

// Key of one element: a list of the attributes named in "a.b,c", or of the element itself.
Result<Value> multi_key(Heap& heap, const Value& item, const Value* attribute,
                        bool case_sensitive) {
  std::vector<Value> parts;
  if (attribute == nullptr || !attribute->is_string()) {
    TRINE_TRY_ASSIGN(Value v,
                     get_path(heap, item, attribute != nullptr ? *attribute : Value::none()));
    TRINE_TRY_ASSIGN(v, fold_case(heap, v, case_sensitive));
    parts.push_back(v);
  } else {
    TRINE_TRY_ASSIGN(const Value comma, heap.string(","));
    TRINE_TRY_ASSIGN(const auto names, split_text(heap, *attribute->str, comma.str, -1, false));
    for (const Value& name : names) {
      TRINE_TRY_ASSIGN(Value v, get_path(heap, item, name));
      TRINE_TRY_ASSIGN(v, fold_case(heap, v, case_sensitive));
      parts.push_back(v);
    }
  }
  return heap.list(std::move(parts));
}

Result<Value> filter_sort(Heap& heap, const Value& input, CallArgs& args) {
  TRINE_TRY_ASSIGN(const auto a, bind("sort", args, {"reverse", "case_sensitive", "attribute"}, 0));
  TRINE_TRY_ASSIGN(const auto items, iterate(heap, input));
  std::vector<Value> keys;
  for (const Value& item : items) {
    TRINE_TRY_ASSIGN(Value key, multi_key(heap, item, a[2], flag(a[1])));
    keys.push_back(key);
  }
  TRINE_TRY_ASSIGN(const auto order, sort_order(heap, keys, flag(a[0])));
  std::vector<Value> out;
  out.reserve(order.size());
  for (const std::size_t i : order) {
    out.push_back(items[i]);
  }
  return heap.list(std::move(out));
}

Result<Value> filter_unique(Heap& heap, const Value& input, CallArgs& args) {
  TRINE_TRY_ASSIGN(const auto a, bind("unique", args, {"case_sensitive", "attribute"}, 0));
  const bool case_sensitive = flag(a[0]);
  const Value path = a[1] != nullptr ? *a[1] : Value::none();
  return heap.iterator([&heap, input, path, case_sensitive]() -> Result<std::vector<Value>> {
    TRINE_TRY_ASSIGN(const auto items, iterate(heap, input));
    Dict* seen = heap.make<Dict>();
    std::vector<Value> out;
    for (const Value& item : items) {
      TRINE_TRY_ASSIGN(Value key, get_path(heap, item, path));
      TRINE_TRY_ASSIGN(key, fold_case(heap, key, case_sensitive));
      TRINE_TRY_ASSIGN(const std::size_t at, dict_find(heap, *seen, key));
      if (at == kNotFound) {
        TRINE_TRY(dict_set(heap, *seen, key, Value::none()));
        out.push_back(item);
      }
    }
    return out;
  });
}

template <bool maximum>
Result<Value> filter_extreme(Heap& heap, const Value& input, CallArgs& args) {
  TRINE_TRY_ASSIGN(const auto a, bind("min", args, {"case_sensitive", "attribute"}, 0));
  TRINE_TRY_ASSIGN(const auto items, iterate(heap, input));
  if (items.empty()) {
    return heap.undefined("the sequence is empty, it has no extreme");
  }
  std::size_t best = 0;
  Value best_key;
  for (std::size_t i = 0; i < items.size(); ++i) {
    TRINE_TRY_ASSIGN(Value key, get_path(heap, items[i], a[1] != nullptr ? *a[1] : Value::none()));
    TRINE_TRY_ASSIGN(key, fold_case(heap, key, flag(a[0])));
    if (i == 0) {
      best_key = key;
      continue;
    }
    TRINE_TRY_ASSIGN(const bool better, maximum ? compare_op(heap, Op::kGt, key, best_key)
                                                : compare_op(heap, Op::kLt, key, best_key));
    if (better) {
      best = i;
      best_key = key;
    }
  }
  return items[best];
}

Result<Value> filter_sum(Heap& heap, const Value& input, CallArgs& args) {
  TRINE_TRY_ASSIGN(const auto a, bind("sum", args, {"attribute", "start"}, 0));
  TRINE_TRY_ASSIGN(const auto items, iterate(heap, input));
  Value total = a[1] != nullptr ? *a[1] : Value::of_int(0);
  if (total.is_string()) {
    return type_error("sum cannot add texts, use join");
  }
  for (const Value& item : items) {
    Value v = item;
    if (a[0] != nullptr) {
      TRINE_TRY_ASSIGN(v, get_path(heap, item, *a[0]));
    }
    TRINE_TRY(heap.step());
    TRINE_TRY_ASSIGN(total, binary_op(heap, Op::kAdd, total, v));
  }
  return total;
}

Result<Value> filter_reverse(Heap& heap, const Value& input, CallArgs& args) {
  TRINE_TRY(bind("reverse", args, {}, 0));
  if (input.is_string()) {
    Value minus_one = Value::of_int(-1);
    return get_slice(heap, input, {Value::none(), Value::none(), minus_one});
  }
  TRINE_TRY_ASSIGN(auto items, iterate(heap, input));
  std::reverse(items.begin(), items.end());
  if (input.is(Kind::kIterator)) {
    return heap.list(std::move(items));
  }
  TRINE_TRY(heap.charge(items.size() * sizeof(Value)));
  return heap.iterator(
      [items = std::move(items)]() -> Result<std::vector<Value>> { return items; });
}

Result<Value> filter_attr(Heap& heap, const Value& input, CallArgs& args) {
  TRINE_TRY_ASSIGN(const auto a, bind("attr", args, {"name"}, 1));
  TRINE_TRY_ASSIGN(const Str* name, to_str(heap, *a[0]));
  if (input.is(Kind::kDict) && find_method(input, name->text) == nullptr) {
    return heap.undefined(
        fmt::format("a dict has no attribute '{}'", std::string_view(name->text).substr(0, 80)));
  }
  return get_attr(heap, input, name->text);
}

Result<Value> filter_batch(Heap& heap, const Value& input, CallArgs& args) {
  TRINE_TRY_ASSIGN(const auto a, bind("batch", args, {"linecount", "fill_with"}, 1));
  TRINE_TRY_ASSIGN(const std::int64_t size, int_arg(a[0], 0));
  const Value fill = a[1] != nullptr ? *a[1] : Value::none();
  return heap.iterator([&heap, input, size, fill]() -> Result<std::vector<Value>> {
    TRINE_TRY_ASSIGN(const auto items, iterate(heap, input));
    std::vector<Value> out;
    std::vector<Value> row;
    for (const Value& item : items) {
      if (static_cast<std::int64_t>(row.size()) == size) {
        TRINE_TRY_ASSIGN(Value v, heap.list(std::move(row)));
        out.push_back(v);
        row.clear();
      }
      row.push_back(item);
    }
    if (!row.empty()) {
      const auto have = static_cast<std::int64_t>(row.size());
      if (!fill.is(Kind::kNone) && have < size) {
        TRINE_TRY(heap.charge(static_cast<std::size_t>(size - have) >= heap.limits().heap_bytes
                                  ? heap.limits().heap_bytes + 1
                                  : static_cast<std::size_t>(size - have) * sizeof(Value)));
        row.insert(row.end(), static_cast<std::size_t>(size - have), fill);
      }
      TRINE_TRY_ASSIGN(Value v, heap.list(std::move(row)));
      out.push_back(v);
    }
    return out;
  });
}

Result<Value> filter_slice(Heap& heap, const Value& input, CallArgs& args) {
  TRINE_TRY_ASSIGN(const auto a, bind("slice", args, {"slices", "fill_with"}, 1));
  TRINE_TRY_ASSIGN(const std::int64_t slices, int_arg(a[0], 0));
  const Value fill = a[1] != nullptr ? *a[1] : Value::none();
  return heap.iterator([&heap, input, slices, fill]() -> Result<std::vector<Value>> {
    TRINE_TRY_ASSIGN(const auto items, iterate(heap, input));
    if (slices == 0) {
      return type_error("slice into zero parts");
    }
    std::vector<Value> out;
    const auto n = static_cast<std::int64_t>(items.size());
    const std::int64_t count = std::max<std::int64_t>(0, slices);
    const std::int64_t each = count > 0 ? n / count : 0;
    const std::int64_t extra = count > 0 ? n % count : 0;
    std::int64_t pos = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      TRINE_TRY(heap.step());
      const std::int64_t end = pos + each + (i < extra ? 1 : 0);
      std::vector<Value> part(items.begin() + pos, items.begin() + end);
      pos = end;
      if (!fill.is(Kind::kNone) && i >= extra) {
        part.push_back(fill);
      }
      TRINE_TRY_ASSIGN(Value v, heap.list(std::move(part)));
      out.push_back(v);
    }
    return out;
  });
}

Result<Value> filter_groupby(Heap& heap, const Value& input, CallArgs& args) {
  TRINE_TRY_ASSIGN(const auto a,
                   bind("groupby", args, {"attribute", "default", "case_sensitive"}, 1));
  TRINE_TRY_ASSIGN(const auto items, iterate(heap, input));
  std::vector<Value> keys;
  std::vector<Value> shown;
  for (const Value& item : items) {
    TRINE_TRY_ASSIGN(Value key, get_path(heap, item, *a[0], a[1]));
    shown.push_back(key);
    TRINE_TRY_ASSIGN(key, fold_case(heap, key, flag(a[2])));
    keys.push_back(key);
  }
  TRINE_TRY_ASSIGN(const auto order, sort_order(heap, keys, false));
  std::vector<Value> out;
  for (std::size_t i = 0; i < order.size();) {
    std::vector<Value> members;
    const std::size_t first = order[i];
    while (i < order.size()) {
      TRINE_TRY_ASSIGN(const bool same, equals(heap, keys[first], keys[order[i]]));
      if (!same) {
        break;
      }
      members.push_back(items[order[i++]]);
    }
    TRINE_TRY_ASSIGN(Value group, heap.list(std::move(members)));
    TRINE_TRY_ASSIGN(Value pair, heap.list({shown[first], group}, false, true));
    pair.list->group = true;
    out.push_back(pair);
    if (keys[first].is(Kind::kFloat) && keys[first].d != keys[first].d) {
      ++i;  // NaN equals nothing, not even itself
    }
  }
  return heap.list(std::move(out));
}

Result<Value> filter_map(Heap& heap, const Value& input, CallArgs& args) {
  return heap.iterator([&heap, input, args]() mutable -> Result<std::vector<Value>> {
    std::vector<Value> out;
    if (!truthy(input)) {
      return out;
    }
    const Value* attribute = args.pos.empty() ? args.find_named("attribute") : nullptr;
    const Value* otherwise = args.find_named("default");
    Value name;
    if (attribute != nullptr) {
      if (args.named.size() != (otherwise != nullptr ? 2U : 1U)) {
        return type_error("map(attribute=) takes only 'default' besides");
      }
    } else if (args.pos.empty() || !args.pos[0].is_string()) {
      return type_error("map needs the name of a filter or attribute=");
    } else {
      name = args.pos[0];
      args.pos.erase(args.pos.begin());
    }
    TRINE_TRY_ASSIGN(const auto items, iterate(heap, input));
    for (const Value& item : items) {
      TRINE_TRY(heap.step());
      TRINE_TRY_ASSIGN(Value v, attribute != nullptr
                                    ? get_path(heap, item, *attribute, otherwise)
                                    : call_filter(heap, name.str->text, item, args));
      out.push_back(v);
    }
    return out;
  });
}

template <bool keep, bool by_attribute>
Result<Value> filter_select(Heap& heap, const Value& input, CallArgs& args) {
  return heap.iterator([&heap, input, args]() mutable -> Result<std::vector<Value>> {
    std::vector<Value> out;
    if (!truthy(input)) {
      return out;
    }
    Value attribute;
    if (by_attribute) {
      if (args.pos.empty()) {
        return type_error("selectattr needs the name of an attribute");
      }
      attribute = args.pos[0];
      args.pos.erase(args.pos.begin());
    }
    const bool tested = !args.pos.empty();
    Value test;
    if (tested) {
      test = args.pos[0];
      args.pos.erase(args.pos.begin());
      if (!test.is_string()) {
        return type_error("the name of a test must be text, not {}", kind_name(test));
      }
    }
    TRINE_TRY_ASSIGN(const auto items, iterate(heap, input));
    for (const Value& item : items) {
      TRINE_TRY(heap.step());
      Value subject = item;
      if (by_attribute) {
        TRINE_TRY_ASSIGN(subject, get_path(heap, item, attribute));
      }
      bool hit = truthy(subject);
      if (tested) {
        TRINE_TRY_ASSIGN(hit, call_test(heap, test.str->text, subject, args));
      }
      if (hit == keep) {
        out.push_back(item);
      }
    }
    return out;
  });
}

constexpr FilterEntry kSequenceFilters[] = {
    {"length", filter_length},
    {"count", filter_length},
    {"default", filter_default},
    {"d", filter_default},
    {"list", filter_list},
    {"first", filter_first},
    {"last", filter_last},
    {"items", filter_items},
    {"dictsort", filter_dictsort},
    {"sort", filter_sort},
    {"unique", filter_unique},
    {"min", filter_extreme<false>},
    {"max", filter_extreme<true>},
    {"sum", filter_sum},
    {"reverse", filter_reverse},
    {"attr", filter_attr},
    {"batch", filter_batch},
    {"slice", filter_slice},
    {"groupby", filter_groupby},
    {"map", filter_map},
    {"select", filter_select<true, false>},
    {"reject", filter_select<false, false>},
    {"selectattr", filter_select<true, true>},
    {"rejectattr", filter_select<false, true>},
};

BuiltinFn find_filter(std::string_view name) {
  for (const auto& table : {text_filters(), sequence_filters()}) {
    for (const FilterEntry& e : table) {
      if (e.name == name) {
        return e.fn;
      }
    }
  }
  return nullptr;
}

}  // namespace

std::span<const FilterEntry> sequence_filters() {
  return kSequenceFilters;
}

bool has_filter(std::string_view name) {
  return find_filter(name) != nullptr;
}

Result<Value> call_filter(Heap& heap, std::string_view name, const Value& input, CallArgs& args) {
  TRINE_TRY(heap.step());
  const BuiltinFn fn = find_filter(name);
  if (fn == nullptr) {
    return fail(ErrorCode::kUnsupported, "there is no filter '{}'", name.substr(0, 80));
  }
  return fn(heap, input, args);
}

}  // namespace trine::text::jinja
