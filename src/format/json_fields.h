// Typed, ranged access to one JSON object of an untrusted file; every error names key, value and
// limit. Errors: corrupt_data. Thread rule: a reader belongs to one thread.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace trine {

// A value as an error message shows it.
inline std::string show_json(const nlohmann::ordered_json& value) {
  std::string text = value.dump();
  if (text.size() > 60) {
    text.resize(57);
    while (!text.empty() && (static_cast<unsigned char>(text.back()) & 0xC0U) == 0x80U) {
      text.pop_back();
    }
    text += "...";
  }
  return text;
}

// Typed access to one JSON object. The first error sticks, so that a list of reads needs one check.
class JsonFields {
 public:
  using Json = nlohmann::ordered_json;

  JsonFields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {}

  const Json* find(std::string_view key) const {
    const auto it = object_.find(key);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }

  bool has(std::string_view key) const { return find(key) != nullptr; }

  std::string name(std::string_view key) const { return fmt::format("{}{}", where_, key); }

  std::int64_t integer(std::string_view key, std::optional<std::int64_t> fallback, std::int64_t low,
                       std::int64_t high) {
    const Json* value = find(key);
    if (value == nullptr) {
      if (!fallback.has_value()) {
        set(fail(ErrorCode::kCorruptData, "key {} is missing", name(key)));
        return low;
      }
      return *fallback;
    }
    return integer_value(*value, key, low, high);
  }

  std::int64_t integer_value(const Json& value, std::string_view key, std::int64_t low,
                             std::int64_t high) {
    double number = std::numeric_limits<double>::quiet_NaN();
    if (value.is_number()) {
      number = value.get<double>();
    }
    // 2^53 bounds every limit used here, so the double holds the integer exactly.
    if (!(number == std::floor(number))) {
      set(fail(ErrorCode::kCorruptData, "key {} = {}: must be a whole number", name(key),
               show_json(value)));
      return low;
    }
    if (number < static_cast<double>(low) || number > static_cast<double>(high)) {
      set(fail(ErrorCode::kCorruptData, "key {} = {}: must lie in {}..{}", name(key),
               show_json(value), low, high));
      return low;
    }
    return static_cast<std::int64_t>(number);
  }

  double number(std::string_view key, std::optional<double> fallback, double low, double high) {
    const Json* value = find(key);
    if (value == nullptr) {
      if (!fallback.has_value()) {
        set(fail(ErrorCode::kCorruptData, "key {} is missing", name(key)));
        return low;
      }
      return *fallback;
    }
    const double number =
        value->is_number() ? value->get<double>() : std::numeric_limits<double>::quiet_NaN();
    if (!(number >= low && number <= high)) {
      set(fail(ErrorCode::kCorruptData, "key {} = {}: must be a number in {}..{}", name(key),
               show_json(*value), low, high));
      return low;
    }
    return number;
  }

  std::optional<double> optional_number(std::string_view key, double low, double high) {
    return has(key) ? std::optional<double>(number(key, low, low, high)) : std::nullopt;
  }

  bool boolean(std::string_view key, bool fallback) {
    const Json* value = find(key);
    if (value == nullptr) {
      return fallback;
    }
    if (!value->is_boolean()) {
      set(fail(ErrorCode::kCorruptData, "key {} = {}: must be true or false", name(key),
               show_json(*value)));
      return fallback;
    }
    return value->get<bool>();
  }

  std::string text(std::string_view key, std::string_view fallback) {
    const Json* value = find(key);
    if (value == nullptr) {
      return std::string(fallback);
    }
    if (!value->is_string()) {
      set(fail(ErrorCode::kCorruptData, "key {} = {}: must be a string", name(key),
               show_json(*value)));
      return std::string(fallback);
    }
    return value->get<std::string>();
  }

  // A list of at most `max_count` values; empty when absent.
  std::vector<Json> list(std::string_view key, std::size_t max_count) {
    const Json* value = find(key);
    if (value == nullptr) {
      return {};
    }
    if (!value->is_array() || value->size() > max_count) {
      set(fail(ErrorCode::kCorruptData, "key {} = {}: must be a list of at most {} values",
               name(key), show_json(*value), max_count));
      return {};
    }
    return {value->begin(), value->end()};
  }

  void set(tl::unexpected<Error> error) {
    if (status_.has_value()) {
      status_ = std::move(error);
    }
  }

  bool ok() const { return status_.has_value(); }

  Status status() { return std::move(status_); }

  const Json& object() const { return object_; }

 private:
  const Json& object_;
  std::string where_;
  Status status_;
};

}  // namespace trine
