// Strict JSON for untrusted files and requests: nlohmann's parser behind limits it does not have
// itself. Include <nlohmann/json.hpp> in the .cpp that looks inside the value. Thread rule: pure
// function.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "base/error.h"

namespace trine {

// A number that cannot be held.
struct RefusedNumber {
  std::string place;  // messages[0].id; empty: no number was refused
  std::string text;   // as written, at most 40 bytes of it
};

struct JsonLimits {
  int max_depth = 64;
  std::size_t max_bytes = std::size_t{512} << 20;
  // An integer beyond 64 bits with a sign: false makes it a double, as files want that write 10^30
  // for "no limit"; true is for text that is shown again, where digits must not get lost.
  bool refuse_big_integers = false;
  // When not null: gets the number that an error is about, if it is about one inside an object or
  // array.
  RefusedNumber* refused_number = nullptr;
};

// Parses one JSON text. Refuses, with the byte offset: bad syntax, invalid UTF-8, lone surrogates,
// NaN and Infinity literals, numbers outside double range, duplicate object keys, nesting beyond
// `max_depth`, and anything after the value; big integers by their place when `limits` says so. Key
// order is kept (ordered_json).
Result<nlohmann::ordered_json> parse_json(std::string_view text, const JsonLimits& limits = {});

}  // namespace trine
