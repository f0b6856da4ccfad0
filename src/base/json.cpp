#include "base/json.h"

#include <cstdint>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/printable.h"

namespace trine {
namespace {

using Json = nlohmann::ordered_json;

// Builds the value while the parser reports events, so that limits apply before memory is spent.
class StrictBuilder {
 public:
  explicit StrictBuilder(const JsonLimits& limits) : limits_(limits) {}

  bool null() { return add(Json(nullptr)); }

  bool boolean(bool value) { return add(Json(value)); }

  bool number_integer(Json::number_integer_t value) { return add(Json(value)); }

  bool number_unsigned(Json::number_unsigned_t value) {
    if (value > static_cast<std::uint64_t>(INT64_MAX) && limits_.refuse_big_integers) {
      return refuse_integer(std::to_string(value));
    }
    return add(Json(value));
  }

  // The parser sends integers beyond 64 bits here.
  bool number_float(Json::number_float_t value, const Json::string_t& text) {
    if (limits_.refuse_big_integers && text.find_first_of(".eE") == std::string::npos) {
      return refuse_integer(text);
    }
    return add(Json(value));
  }

  bool string(Json::string_t& value) { return add(Json(std::move(value))); }

  bool binary(Json::binary_t& /*value*/) { return false; }

  bool start_object(std::size_t /*count*/) { return open(Json::object()); }

  bool key(Json::string_t& name) {
    if (!frames_.back().keys.insert(name).second) {
      error_ = fmt::format("duplicate key \"{}\"", printable(name, 80));
      return false;
    }
    frames_.back().pending_key = std::move(name);
    return true;
  }

  bool end_object() { return close(); }

  bool start_array(std::size_t /*count*/) { return open(Json::array()); }

  bool end_array() { return close(); }

  bool parse_error(std::size_t /*position*/, const std::string& token,
                   const nlohmann::detail::exception& e) {
    constexpr int kOverflow = 406;
    if (error_.empty() && e.id == kOverflow) {
      tell_number(token);
    }
    if (error_.empty()) {
      const std::string_view text =
          e.what();  // "[json.exception.parse_error.101] parse error at line ..."
      const std::size_t prefix = text.find("] ");
      error_ = text.substr(prefix == std::string_view::npos ? 0 : prefix + 2);
    }
    return false;
  }

  const std::string& error() const { return error_; }

  Json take() { return std::move(root_); }

 private:
  struct Frame {
    Json value;
    std::unordered_set<std::string> keys;
    std::string pending_key;
  };

  // Where the parser is: messages[0].id
  std::string place() const {
    std::string out;
    for (const Frame& frame : frames_) {
      if (frame.value.is_object()) {
        out += fmt::format("{}{}", out.empty() ? "" : ".", printable(frame.pending_key, 80));
      } else {
        out += fmt::format("[{}]", frame.value.size());
      }
    }
    return out.empty() ? "the value" : out;
  }

  static std::string shorten(std::string_view digits) {
    constexpr std::size_t kMostShown = 40;
    return fmt::format("{}{}", printable(digits.substr(0, kMostShown)),
                       digits.size() > kMostShown ? "..." : "");
  }

  void tell_number(std::string_view digits) const {
    if (limits_.refused_number != nullptr && !frames_.empty()) {
      *limits_.refused_number = {.place = place(), .text = shorten(digits)};
    }
  }

  bool refuse_integer(std::string_view digits) {
    error_ = fmt::format("{} is {}, integers must be in [{}, {}]; write it as a string", place(),
                         shorten(digits), INT64_MIN, INT64_MAX);
    tell_number(digits);
    return false;
  }

  bool open(Json value) {
    if (frames_.size() >= static_cast<std::size_t>(limits_.max_depth)) {
      error_ = fmt::format("nesting deeper than {}", limits_.max_depth);
      return false;
    }
    frames_.push_back(Frame{std::move(value), {}, {}});
    return true;
  }

  bool close() {
    Json value = std::move(frames_.back().value);
    frames_.pop_back();
    return add(std::move(value));
  }

  bool add(Json value) {
    if (frames_.empty()) {
      root_ = std::move(value);
      return true;
    }
    Frame& frame = frames_.back();
    if (frame.value.is_object()) {
      // Keys are unique (checked in key()), so appending avoids ordered_map's linear search per
      // insertion.
      frame.value.get_ref<Json::object_t&>().push_back(
          {std::move(frame.pending_key), std::move(value)});
    } else {
      frame.value.push_back(std::move(value));
    }
    return true;
  }

  const JsonLimits limits_;
  std::vector<Frame> frames_;
  Json root_;
  std::string error_;
};

}  // namespace

Result<Json> parse_json(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    return fail(ErrorCode::kExhausted, "JSON text of {} bytes, at most {}", text.size(),
                limits.max_bytes);
  }
  StrictBuilder builder(limits);
  // Library boundary: nlohmann may throw bad_alloc and type errors.
  try {
    if (Json::sax_parse(text.begin(), text.end(), &builder)) {
      return builder.take();
    }
  } catch (const std::exception& e) {
    return fail(ErrorCode::kCorruptData, "JSON: {}", e.what());
  }
  return fail(ErrorCode::kCorruptData, "JSON: {}", builder.error());
}

}  // namespace trine
