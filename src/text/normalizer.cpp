#include "text/normalizer.h"

#include <array>
#include <utility>

#include "text/charsmap.h"
#include "text/json_fields.h"
#include "text/pattern.h"
#include "text/unicode.h"

namespace trine::text {
namespace {

constexpr std::string_view kEscapedSpace = "\xe2\x96\x81";  // U+2581
// A Replace step may make text longer; this bounds what a hostile file can make of it.
constexpr std::size_t kMaxText = std::size_t{1} << 28;
constexpr int kMaxNesting = 8;

Status check_size(std::size_t size) {
  if (size > kMaxText) {
    return fail(ErrorCode::kExhausted, "the normalizer makes {} bytes of the text, at most {}",
                size, kMaxText);
  }
  return {};
}

class Unicode final : public Normalizer {
 public:
  explicit Unicode(NormalForm form) : form_(form) {}

  Status apply(std::string& text) const override {
    text = normalize_utf8(text, form_);
    return {};
  }

 private:
  NormalForm form_;
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}

  Status apply(std::string& text) const override {
    if (!text.empty()) {
      text.insert(0, prefix_);
    }
    return {};
  }

 private:
  std::string prefix_;
};

class Replace final : public Normalizer {
 public:
  Replace(Pattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}

  Status apply(std::string& text) const override {
    TRINE_TRY_ASSIGN(const auto stretches, pattern_.find(text));
    std::string out;
    for (const Stretch& s : stretches) {
      out += s.match ? std::string_view(content_)
                     : std::string_view(text).substr(s.begin, s.end - s.begin);
      TRINE_TRY(check_size(out.size()));
    }
    text = std::move(out);
    return {};
  }

 private:
  Pattern pattern_;
  std::string content_;
};

class Strip final : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}

  Status apply(std::string& text) const override {
    std::size_t end = text.size();
    while (right_ && end > 0) {
      const std::size_t start = previous_start(text, end);
      if (!is_space(code_point_at(text, start).value)) {
        break;
      }
      end = start;
    }
    std::size_t begin = 0;
    while (left_ && begin < end && is_space(code_point_at(text, begin).value)) {
      begin += code_point_at(text, begin).size;
    }
    text = text.substr(begin, end - begin);
    return {};
  }

 private:
  bool left_;
  bool right_;
};

// Lowercase and StripAccents: one character at a time.
class PerCharacter final : public Normalizer {
 public:
  explicit PerCharacter(void (*put)(std::string&, char32_t)) : put_(put) {}

  Status apply(std::string& text) const override {
    std::string out;
    out.reserve(text.size());
    for (std::size_t pos = 0; pos < text.size();) {
      const CodePoint c = code_point_at(text, pos);
      put_(out, c.value);
      pos += c.size;
    }
    text = std::move(out);
    return {};
  }

 private:
  void (*put_)(std::string&, char32_t);
};

void put_unless_mark(std::string& out, char32_t value) {
  if ((char_class(value) & kMark) == 0) {
    append_utf8(out, value);
  }
}

// tokenizer.json's "Precompiled": grapheme clusters of up to five bytes as a whole, all else by
// character, and of an entry's prefixes the shortest, as the Hugging Face library has it.
class Precompiled final : public Normalizer {
 public:
  explicit Precompiled(CharsMap map) : map_(std::move(map)) {}

  Status apply(std::string& text) const override {
    std::string out;
    out.reserve(text.size());
    const std::string_view in = text;
    for (std::size_t pos = 0; pos < in.size();) {
      const std::size_t end = grapheme_end(in, pos);
      if (end - pos < 6 && put_mapped(in.substr(pos, end - pos), out)) {
        pos = end;
        continue;
      }
      while (pos < end) {
        const std::string_view c = in.substr(pos, code_point_at(in, pos).size);
        if (!put_mapped(c, out)) {
          out += c;
        }
        pos += c.size();
      }
      TRINE_TRY(check_size(out.size()));
    }
    text = std::move(out);
    return {};
  }

 private:
  bool put_mapped(std::string_view chunk, std::string& out) const {
    const auto hit = map_.shortest(chunk);
    if (hit) {
      out += hit->replacement;
    }
    return hit.has_value();
  }

  CharsMap map_;
};

class SpmNormalizer final : public Normalizer {
 public:
  SpmNormalizer(std::optional<CharsMap> map, const SpmNormalizerOptions& options)
      : map_(std::move(map)), options_(options) {}

  Status apply(std::string& text) const override {
    std::string out;
    out.reserve(text.size() + kEscapedSpace.size());
    const std::string_view in = text;
    bool in_word = false;
    bool prefixed = false;
    for (std::size_t pos = 0; pos < in.size();) {
      const CharsMap::Hit piece = first_piece(in.substr(pos));
      for (const char c : piece.replacement) {
        if (c == ' ') {
          in_word = false;
          if (!options_.remove_extra_whitespaces) {
            out += kEscapedSpace;
          }
          continue;
        }
        if (!in_word) {
          in_word = true;
          if ((options_.add_space_prefix && !prefixed) ||
              (options_.remove_extra_whitespaces && !out.empty())) {
            out += kEscapedSpace;
          }
          prefixed = true;
        }
        out.push_back(c);
      }
      pos += piece.size;
      TRINE_TRY(check_size(out.size()));
    }
    text = std::move(out);
    return {};
  }

 private:
  // What the map makes of the start of `rest`, or its first code point as it is.
  CharsMap::Hit first_piece(std::string_view rest) const {
    if (map_.has_value()) {
      if (const auto hit = map_->longest(rest)) {
        return *hit;
      }
    }
    const std::size_t size = code_point_at(rest, 0).size;
    return {size, rest.substr(0, size)};
  }

  std::optional<CharsMap> map_;
  SpmNormalizerOptions options_;
};

class Sequence final : public Normalizer {
 public:
  explicit Sequence(std::vector<NormalizerPtr> steps) : steps_(std::move(steps)) {}

  Status apply(std::string& text) const override {
    for (const auto& step : steps_) {
      TRINE_TRY(step->apply(text));
    }
    return {};
  }

 private:
  std::vector<NormalizerPtr> steps_;
};

Result<std::string> decode_base64(std::string_view text) {
  std::string out;
  std::uint32_t bits = 0;
  int count = 0;
  while (!text.empty() && text.back() == '=') {
    text.remove_suffix(1);
  }
  for (const char c : text) {
    std::uint32_t value = 0;
    if (c >= 'A' && c <= 'Z') {
      value = static_cast<std::uint32_t>(c - 'A');
    } else if (c >= 'a' && c <= 'z') {
      value = static_cast<std::uint32_t>(c - 'a') + 26;
    } else if (c >= '0' && c <= '9') {
      value = static_cast<std::uint32_t>(c - '0') + 52;
    } else if (c == '+' || c == '/') {
      value = c == '+' ? 62 : 63;
    } else {
      return fail(ErrorCode::kCorruptData, "field \"precompiled_charsmap\" is not base64");
    }
    bits = bits << 6 | value;
    count += 6;
    if (count >= 8) {
      count -= 8;
      out.push_back(static_cast<char>(bits >> count & 0xffU));
    }
  }
  return out;
}

Result<NormalizerPtr> parse(const Json& json, int depth) {
  if (depth > kMaxNesting) {
    return fail(ErrorCode::kCorruptData, "normalizers nested deeper than {}", kMaxNesting);
  }
  TRINE_TRY_ASSIGN(const std::string type, string_field(json, "type"));
  constexpr std::array<std::pair<std::string_view, NormalForm>, 4> kForms{
      {{"NFC", NormalForm::kNfc},
       {"NFD", NormalForm::kNfd},
       {"NFKC", NormalForm::kNfkc},
       {"NFKD", NormalForm::kNfkd}}};
  for (const auto& [name, form] : kForms) {
    if (type == name) {
      return std::make_shared<const Unicode>(form);
    }
  }
  if (type == "Prepend") {
    TRINE_TRY_ASSIGN(std::string prefix, string_field(json, "prepend"));
    return make_prepend(std::move(prefix));
  }
  if (type == "Replace") {
    TRINE_TRY_ASSIGN(PatternField field, pattern_field(json));
    TRINE_TRY_ASSIGN(std::string content, string_field(json, "content"));
    if (!field.regex) {
      return make_replace_literal(std::move(field.text), std::move(content));
    }
    TRINE_TRY_ASSIGN(Pattern pattern, Pattern::regex(field.text));
    return std::make_shared<const Replace>(std::move(pattern), std::move(content));
  }
  if (type == "Strip") {
    TRINE_TRY_ASSIGN(const bool left, bool_field(json, "strip_left", true));
    TRINE_TRY_ASSIGN(const bool right, bool_field(json, "strip_right", true));
    return std::make_shared<const Strip>(left, right);
  }
  if (type == "Lowercase" || type == "StripAccents") {
    return std::make_shared<const PerCharacter>(type == "Lowercase" ? append_lowercase
                                                                    : put_unless_mark);
  }
  if (type == "Precompiled") {
    TRINE_TRY_ASSIGN(const std::string base64, string_field(json, "precompiled_charsmap"));
    TRINE_TRY_ASSIGN(const std::string bytes, decode_base64(base64));
    TRINE_TRY_ASSIGN(CharsMap map, CharsMap::parse(bytes));
    return std::make_shared<const Precompiled>(std::move(map));
  }
  if (type == "Sequence") {
    TRINE_TRY_ASSIGN(const Json* list, array_field(json, "normalizers"));
    std::vector<NormalizerPtr> steps;
    for (const Json& item : *list) {
      TRINE_TRY_ASSIGN(auto step, parse(item, depth + 1));
      steps.push_back(std::move(step));
    }
    return make_normalizer_sequence(std::move(steps));
  }
  return fail(ErrorCode::kUnsupported, "normalizer type \"{}\" is not supported",
              type.substr(0, 80));
}

}  // namespace

Result<NormalizerPtr> normalizer_from_json(const nlohmann::ordered_json& json) {
  return parse(json, 0);
}

NormalizerPtr make_prepend(std::string prefix) {
  return std::make_shared<const Prepend>(std::move(prefix));
}

NormalizerPtr make_replace_literal(std::string from, std::string to) {
  return std::make_shared<const Replace>(Pattern::literal(std::move(from)), std::move(to));
}

NormalizerPtr make_normalizer_sequence(std::vector<NormalizerPtr> steps) {
  return std::make_shared<const Sequence>(std::move(steps));
}

Result<NormalizerPtr> make_spm_normalizer(std::string_view charsmap,
                                          const SpmNormalizerOptions& options) {
  std::optional<CharsMap> map;
  if (!charsmap.empty()) {
    TRINE_TRY_ASSIGN(map, CharsMap::parse(charsmap));
  }
  return std::make_shared<const SpmNormalizer>(std::move(map), options);
}

}  // namespace trine::text
