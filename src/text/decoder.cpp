#include "text/decoder.h"

#include <utility>

#include "text/json_fields.h"
#include "text/pretokenizer.h"
#include "text/unicode.h"
#include "text/vocab.h"

namespace trine::text {
namespace {

constexpr int kMaxNesting = 8;
constexpr std::int64_t kMaxStrip = 1024;

std::string replace_all(const Pattern& pattern, std::string_view text, std::string_view content) {
  const auto stretches = pattern.find(text);
  if (!stretches.has_value()) {  // the pattern gave up: the token stays as it is
    return std::string(text);
  }
  std::string out;
  for (const Stretch& s : *stretches) {
    out += s.match ? content : text.substr(s.begin, s.end - s.begin);
  }
  return out;
}

std::string_view strip(std::string_view text, std::string_view c, std::int64_t start,
                       std::int64_t stop) {
  for (; start > 0 && text.starts_with(c); --start) {
    text.remove_prefix(c.size());
  }
  for (; stop > 0 && text.ends_with(c); --stop) {
    text.remove_suffix(c.size());
  }
  return text;
}

}  // namespace

Status Decoder::add_replace(const Json& json, bool fused) {
  TRINE_TRY_ASSIGN(PatternField field, pattern_field(json));
  TRINE_TRY_ASSIGN(std::string content, string_field(json, "content"));
  if (fused) {
    return fail(ErrorCode::kUnsupported,
                "decoder Replace after the tokens are joined is not supported");
  }
  Step step{Kind::kReplace, {}, std::move(content), 0, 0, false};
  if (field.regex) {
    TRINE_TRY_ASSIGN(step.pattern, Pattern::regex(field.text));
  } else {
    step.pattern = Pattern::literal(std::move(field.text));
  }
  steps_.push_back(std::move(step));
  return {};
}

Status Decoder::add_strip(const Json& json, bool fused) {
  TRINE_TRY_ASSIGN(std::string content, string_field(json, "content"));
  TRINE_TRY_ASSIGN(const std::int64_t start, int_field(json, "start", kMaxStrip));
  TRINE_TRY_ASSIGN(const std::int64_t stop, int_field(json, "stop", kMaxStrip));
  if (content.empty() || code_point_at(content, 0).size != content.size()) {
    return fail(ErrorCode::kCorruptData, "decoder Strip: field \"content\" is not one character");
  }
  if (!fused) {
    steps_.push_back({Kind::kStrip, {}, std::move(content), start, stop, false});
    return {};
  }
  if (stop != 0 || content.size() != 1 || strip_start_ != 0) {
    return fail(ErrorCode::kUnsupported,
                "decoder Strip after the tokens are joined: only one, of an ASCII character at the "
                "start, is supported");
  }
  strip_start_ = static_cast<int>(start);
  strip_char_ = content[0];
  return {};
}

Status Decoder::add(const Json& json, int depth, bool& fused) {
  if (depth > kMaxNesting) {
    return fail(ErrorCode::kCorruptData, "decoders nested deeper than {}", kMaxNesting);
  }
  TRINE_TRY_ASSIGN(const std::string type, string_field(json, "type"));
  if (type == "Sequence") {
    TRINE_TRY_ASSIGN(const Json* list, array_field(json, "decoders"));
    for (const Json& item : *list) {
      TRINE_TRY(add(item, depth + 1, fused));
    }
    return {};
  }
  if (type == "Replace") {
    return add_replace(json, fused);
  }
  if (type == "Strip") {
    return add_strip(json, fused);
  }
  if (type == "Fuse") {
    fused = true;
    return {};
  }
  if (type != "ByteLevel" && type != "ByteFallback" && type != "Metaspace") {
    return fail(ErrorCode::kUnsupported, "decoder type \"{}\" is not supported",
                type.substr(0, 80));
  }
  if (fused) {
    return fail(ErrorCode::kUnsupported, "decoder {} after the tokens are joined is not supported",
                type);
  }
  if (type == "Metaspace") {
    TRINE_TRY_ASSIGN(std::string replacement, string_field(json, "replacement"));
    const Json* scheme = find_field(json, "prepend_scheme");
    TRINE_TRY_ASSIGN(const bool legacy_add, bool_field(json, "add_prefix_space", true));
    const bool drop = scheme != nullptr ? *scheme != "never" : legacy_add;
    steps_.push_back({Kind::kMetaspace, Pattern::literal(replacement), replacement, 0, 0, drop});
    return {};
  }
  if (type == "ByteLevel") {
    fused = true;
  }
  steps_.push_back(
      {type == "ByteLevel" ? Kind::kByteLevel : Kind::kByteFallback, {}, {}, 0, 0, false});
  return {};
}

Result<Decoder> Decoder::from_json(const Json& json) {
  Decoder out;
  if (json.is_null()) {
    out.join_with_space_ = true;
    return out;
  }
  bool fused = false;
  TRINE_TRY(out.add(json, 0, fused));
  return out;
}

Decoder Decoder::byte_level() {
  Decoder out;
  out.steps_.push_back({Kind::kByteLevel, {}, {}, 0, 0, false});
  return out;
}

Decoder Decoder::sentencepiece(bool strip_first) {
  Decoder out;
  out.steps_.push_back({Kind::kReplace, Pattern::literal("\xe2\x96\x81"), " ", 0, 0, false});
  out.steps_.push_back({Kind::kByteFallback, {}, {}, 0, 0, false});
  out.strip_start_ = strip_first ? 1 : 0;
  return out;
}

std::string Decoder::bytes(std::string_view piece, bool first, bool added) const {
  std::string text(piece);
  bool is_bytes = false;  // no longer text: what follows applies to characters only
  for (const Step& step : steps_) {
    if (is_bytes) {
      break;
    }
    switch (step.kind) {
      case Kind::kByteLevel:
        if (!added) {
          if (auto raw = bytes_of_byte_level(text)) {
            text = std::move(*raw);
            is_bytes = true;
          }
        }
        break;
      case Kind::kByteFallback:
        if (const auto byte = parse_byte_token(text); byte && !added) {
          text = std::string(1, static_cast<char>(*byte));
          is_bytes = true;
        }
        break;
      case Kind::kReplace:
        text = replace_all(step.pattern, text, step.content);
        break;
      case Kind::kMetaspace:
        text = replace_all(step.pattern, text,
                           std::string_view(" ").substr(first && step.drop_first ? 1 : 0));
        break;
      case Kind::kStrip:
        text = strip(text, step.content, step.start, step.stop);
        break;
    }
  }
  if (join_with_space_ && !first) {
    text.insert(text.begin(), ' ');
  }
  return text;
}

}  // namespace trine::text
