#include <array>
#include <cmath>
#include <type_traits>
#include <utility>

#include "base/printable.h"
#include "format/gguf.h"

namespace trine {
namespace {

// Index of an alternative of GgufValue is its GgufType except after kArray, which GGUF numbers
// before the 64-bit types.
constexpr std::array<GgufType, 13> kValueTypes{
    GgufType::kU8,  GgufType::kI8,  GgufType::kU16,  GgufType::kI16,    GgufType::kU32,
    GgufType::kI32, GgufType::kF32, GgufType::kBool, GgufType::kString, GgufType::kU64,
    GgufType::kI64, GgufType::kF64, GgufType::kArray};

static_assert(std::variant_size_v<GgufValue> == kValueTypes.size());
static_assert(std::variant_size_v<GgufArray> + 1 == std::variant_size_v<GgufValue>);

template <typename T>
constexpr bool kIsInteger = std::is_integral_v<T> && !std::is_same_v<T, bool>;

template <typename T>
std::string elem_type_name() {
  return gguf_type_name(gguf_array_elem_type(GgufArray(std::vector<T>{})));
}

tl::unexpected<Error> wrong_type(std::string_view key, const GgufValue& value,
                                 std::string_view wanted) {
  return fail(ErrorCode::kCorruptData, "metadata key {} is {}, wanted {}", printable(key),
              gguf_value_type_name(value), wanted);
}

std::string array_text(std::string_view elem, std::optional<std::uint64_t> count) {
  return count.has_value() ? fmt::format("{}[{}]", elem, *count) : fmt::format("{}[]", elem);
}

}  // namespace

std::string gguf_type_name(GgufType type) {
  switch (type) {
    case GgufType::kU8:
      return "u8";
    case GgufType::kI8:
      return "i8";
    case GgufType::kU16:
      return "u16";
    case GgufType::kI16:
      return "i16";
    case GgufType::kU32:
      return "u32";
    case GgufType::kI32:
      return "i32";
    case GgufType::kF32:
      return "f32";
    case GgufType::kBool:
      return "bool";
    case GgufType::kString:
      return "string";
    case GgufType::kArray:
      return "array";
    case GgufType::kU64:
      return "u64";
    case GgufType::kI64:
      return "i64";
    case GgufType::kF64:
      return "f64";
  }
  return fmt::format("type {}", static_cast<std::uint32_t>(type));
}

GgufType gguf_value_type(const GgufValue& value) {
  return kValueTypes[value.index()];
}

GgufType gguf_array_elem_type(const GgufArray& array) {
  return kValueTypes[array.index()];
}

std::size_t gguf_array_size(const GgufArray& array) {
  return std::visit([](const auto& items) { return items.size(); }, array);
}

std::string gguf_value_type_name(const GgufValue& value) {
  if (const auto* array = std::get_if<GgufArray>(&value)) {
    return array_text(gguf_type_name(gguf_array_elem_type(*array)), gguf_array_size(*array));
  }
  return gguf_type_name(gguf_value_type(value));
}

Result<GgufMetadata> GgufMetadata::build(std::vector<Pair> pairs) {
  GgufMetadata out;
  out.index_.reserve(pairs.size());
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const std::string& key = pairs[i].first;
    if (key.empty()) {
      return fail(ErrorCode::kCorruptData, "metadata pair {}: empty key", i);
    }
    if (!out.index_.emplace(key, i).second) {
      return fail(ErrorCode::kCorruptData, "metadata key {} occurs twice", printable(key));
    }
  }
  out.pairs_ = std::move(pairs);
  return out;
}

const GgufValue* GgufMetadata::find(std::string_view key) const {
  const auto it = index_.find(std::string(key));
  return it == index_.end() ? nullptr : &pairs_[it->second].second;
}

Result<const GgufValue*> GgufMetadata::require(std::string_view key,
                                               std::string_view wanted) const {
  if (const GgufValue* value = find(key)) {
    return value;
  }
  return fail(ErrorCode::kCorruptData, "metadata key {} is missing, wanted {}", printable(key),
              wanted);
}

Result<std::uint64_t> GgufMetadata::get_uint(std::string_view key, std::uint64_t max) const {
  TRINE_TRY_ASSIGN(const GgufValue* value, require(key, "an unsigned integer"));
  return std::visit(
      [&](const auto& held) -> Result<std::uint64_t> {
        using T = std::decay_t<decltype(held)>;
        if constexpr (kIsInteger<T>) {
          if (!std::in_range<std::uint64_t>(held) || static_cast<std::uint64_t>(held) > max) {
            return fail(ErrorCode::kCorruptData, "metadata key {} is {} {}, wanted 0 to {}",
                        printable(key), gguf_value_type_name(*value), +held, max);
          }
          return static_cast<std::uint64_t>(held);
        } else {
          return wrong_type(key, *value, "an unsigned integer");
        }
      },
      *value);
}

Result<std::int64_t> GgufMetadata::get_int(std::string_view key) const {
  TRINE_TRY_ASSIGN(const GgufValue* value, require(key, "an integer"));
  return std::visit(
      [&](const auto& held) -> Result<std::int64_t> {
        using T = std::decay_t<decltype(held)>;
        if constexpr (kIsInteger<T>) {
          if (!std::in_range<std::int64_t>(held)) {
            return fail(ErrorCode::kCorruptData, "metadata key {} is {} {}, wanted at most {}",
                        printable(key), gguf_value_type_name(*value), held, INT64_MAX);
          }
          return static_cast<std::int64_t>(held);
        } else {
          return wrong_type(key, *value, "an integer");
        }
      },
      *value);
}

Result<double> GgufMetadata::get_float(std::string_view key) const {
  TRINE_TRY_ASSIGN(const GgufValue* value, require(key, "f32 or f64"));
  double out = 0.0;
  if (const auto* f32 = std::get_if<float>(value)) {
    out = static_cast<double>(*f32);
  } else if (const auto* f64 = std::get_if<double>(value)) {
    out = *f64;
  } else {
    return wrong_type(key, *value, "f32 or f64");
  }
  if (!std::isfinite(out)) {
    return fail(ErrorCode::kCorruptData, "metadata key {} is {}, wanted a finite number",
                printable(key), out);
  }
  return out;
}

Result<bool> GgufMetadata::get_bool(std::string_view key) const {
  TRINE_TRY_ASSIGN(const GgufValue* value, require(key, "bool"));
  if (const auto* held = std::get_if<bool>(value)) {
    return *held;
  }
  return wrong_type(key, *value, "bool");
}

Result<std::string_view> GgufMetadata::get_string(std::string_view key) const {
  TRINE_TRY_ASSIGN(const GgufValue* value, require(key, "string"));
  if (const auto* held = std::get_if<std::string>(value)) {
    return std::string_view(*held);
  }
  return wrong_type(key, *value, "string");
}

template <typename T>
Result<const std::vector<T>*> GgufMetadata::get_array(std::string_view key,
                                                      std::optional<std::uint64_t> count) const {
  const std::string wanted = array_text(elem_type_name<T>(), count);
  TRINE_TRY_ASSIGN(const GgufValue* value, require(key, wanted));
  if (const auto* array = std::get_if<GgufArray>(value)) {
    const auto* items = std::get_if<std::vector<T>>(array);
    if (items != nullptr && (!count.has_value() || items->size() == *count)) {
      return items;
    }
  }
  return wrong_type(key, *value, wanted);
}

#define TRINE_INSTANTIATE(T)                                         \
  template Result<const std::vector<T>*> GgufMetadata::get_array<T>( \
      std::string_view, std::optional<std::uint64_t>) const
TRINE_INSTANTIATE(std::uint8_t);
TRINE_INSTANTIATE(std::int8_t);
TRINE_INSTANTIATE(std::uint16_t);
TRINE_INSTANTIATE(std::int16_t);
TRINE_INSTANTIATE(std::uint32_t);
TRINE_INSTANTIATE(std::int32_t);
TRINE_INSTANTIATE(float);
TRINE_INSTANTIATE(bool);
TRINE_INSTANTIATE(std::string);
TRINE_INSTANTIATE(std::uint64_t);
TRINE_INSTANTIATE(std::int64_t);
TRINE_INSTANTIATE(double);
#undef TRINE_INSTANTIATE

Result<std::vector<std::int64_t>> GgufMetadata::get_int_array(
    std::string_view key, std::optional<std::uint64_t> count) const {
  const std::string wanted = array_text("integer", count);
  TRINE_TRY_ASSIGN(const GgufValue* value, require(key, wanted));
  const auto* array = std::get_if<GgufArray>(value);
  if (array == nullptr || (count.has_value() && gguf_array_size(*array) != *count)) {
    return wrong_type(key, *value, wanted);
  }
  return std::visit(
      [&](const auto& items) -> Result<std::vector<std::int64_t>> {
        using T = typename std::decay_t<decltype(items)>::value_type;
        if constexpr (kIsInteger<T>) {
          std::vector<std::int64_t> out;
          out.reserve(items.size());
          for (std::size_t i = 0; i < items.size(); ++i) {
            if (!std::in_range<std::int64_t>(items[i])) {
              return fail(ErrorCode::kCorruptData,
                          "metadata key {}: item {} is {}, wanted at most {}", printable(key), i,
                          items[i], INT64_MAX);
            }
            out.push_back(static_cast<std::int64_t>(items[i]));
          }
          return out;
        } else {
          return wrong_type(key, *value, wanted);
        }
      },
      *array);
}

}  // namespace trine
