#include "text/pretokenizer.h"

#include <array>
#include <utility>

#include "text/json_fields.h"
#include "text/splitters.h"
#include "text/unicode.h"

namespace trine::text {
namespace {

constexpr int kMaxNesting = 8;

class Split final : public PreTokenizer {
 public:
  Split(Pattern pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  Status apply(PieceList& list) const override {
    std::vector<Piece> out;
    for (const Piece& piece : list.pieces) {
      TRINE_TRY_ASSIGN(auto stretches, pattern_.find(list.view(piece)));
      if (invert_) {
        for (Stretch& s : stretches) {
          s.match = !s.match;
        }
      }
      append_pieces(stretches, behavior_, piece.begin, out);
    }
    list.pieces = std::move(out);
    return {};
  }

 private:
  Pattern pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

class ByteLevel final : public PreTokenizer {
 public:
  ByteLevel(bool add_prefix_space, bool use_regex)
      : add_prefix_space_(add_prefix_space), use_regex_(use_regex) {}

  Status apply(PieceList& list) const override {
    PieceList out;
    out.at_origin = list.at_origin;
    out.text.reserve(list.text.size() * 2);
    out.pieces.reserve(list.pieces.size());
    std::string prefixed;
    for (const Piece& piece : list.pieces) {
      std::string_view text = list.view(piece);
      if (add_prefix_space_ && !text.starts_with(' ')) {
        prefixed.assign(1, ' ').append(text);
        text = prefixed;
      }
      for (std::size_t pos = 0; pos < text.size();) {
        const std::size_t end =
            use_regex_ ? next_piece(SplitPattern::kGpt2, text, pos) : text.size();
        const std::size_t begin = out.text.size();
        append_byte_level(out.text, text.substr(pos, end - pos));
        out.pieces.push_back({begin, out.text.size()});
        pos = end;
      }
    }
    list = std::move(out);
    return {};
  }

 private:
  bool add_prefix_space_;
  bool use_regex_;
};

enum class PrependScheme : std::uint8_t { kAlways, kFirst, kNever };

class Metaspace final : public PreTokenizer {
 public:
  Metaspace(std::string replacement, PrependScheme prepend, bool split)
      : replacement_(std::move(replacement)),
        prepend_(prepend),
        split_(split),
        pattern_(Pattern::literal(replacement_)) {}

  Status apply(PieceList& list) const override {
    PieceList out;
    out.at_origin = list.at_origin;
    for (const Piece& piece : list.pieces) {
      std::string text;
      for (const char c : list.view(piece)) {
        if (c == ' ') {
          text += replacement_;
        } else {
          text.push_back(c);
        }
      }
      const bool first = list.at_origin && piece.begin == 0;
      if ((prepend_ == PrependScheme::kAlways || (prepend_ == PrependScheme::kFirst && first)) &&
          !text.starts_with(replacement_)) {
        text.insert(0, replacement_);
      }
      const std::size_t begin = out.text.size();
      if (split_) {
        TRINE_TRY_ASSIGN(const auto stretches, pattern_.find(text));
        append_pieces(stretches, SplitBehavior::kMergedWithNext, begin, out.pieces);
      } else if (!text.empty()) {
        out.pieces.push_back({begin, begin + text.size()});
      }
      out.text += text;
    }
    list = std::move(out);
    return {};
  }

 private:
  std::string replacement_;
  PrependScheme prepend_;
  bool split_;
  Pattern pattern_;
};

class Sequence final : public PreTokenizer {
 public:
  explicit Sequence(std::vector<PreTokenizerPtr> steps) : steps_(std::move(steps)) {}

  Status apply(PieceList& list) const override {
    for (const auto& step : steps_) {
      TRINE_TRY(step->apply(list));
    }
    return {};
  }

 private:
  std::vector<PreTokenizerPtr> steps_;
};

bool is_number(char32_t c) {
  return (char_class(c) & kNumber) != 0;
}

bool is_punctuation(char32_t c) {
  const bool ascii = c < 0x80 && c > 0x20 && c != 0x7f;
  return (ascii && (char_class(c) & (kLetter | kNumber)) == 0) ||
         (char_class(c) & kPunctuation) != 0;
}

// What "Whitespace" keeps: runs of \w, and runs of what is neither \w nor space.
class WordsAndSymbols final : public PreTokenizer {
 public:
  Status apply(PieceList& list) const override {
    std::vector<Piece> out;
    for (const Piece& piece : list.pieces) {
      int previous = 0;  // 0 space, 1 word, 2 symbol
      const std::string_view text = list.view(piece);
      for (std::size_t pos = 0; pos < text.size();) {
        const CodePoint c = code_point_at(text, pos);
        const unsigned bits = char_class(c.value);
        const int now = (bits & kWord) != 0 ? 1 : (bits & kSpace) != 0 ? 0 : 2;
        if (now != 0 && now == previous) {
          out.back().end += c.size;
        } else if (now != 0) {
          out.push_back({piece.begin + pos, piece.begin + pos + c.size});
        }
        previous = now;
        pos += c.size;
      }
    }
    list.pieces = std::move(out);
    return {};
  }
};

Result<SplitBehavior> behavior_field(const Json& json) {
  TRINE_TRY_ASSIGN(const std::string name, string_field(json, "behavior"));
  constexpr std::array<std::pair<std::string_view, SplitBehavior>, 5> kNames{
      {{"Removed", SplitBehavior::kRemoved},
       {"Isolated", SplitBehavior::kIsolated},
       {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
       {"MergedWithNext", SplitBehavior::kMergedWithNext},
       {"Contiguous", SplitBehavior::kContiguous}}};
  for (const auto& [known, behavior] : kNames) {
    if (known == name) {
      return behavior;
    }
  }
  return fail(ErrorCode::kUnsupported, "split behavior \"{}\" is not supported",
              name.substr(0, 80));
}

Result<PreTokenizerPtr> parse_metaspace(const Json& json) {
  TRINE_TRY_ASSIGN(std::string replacement, string_field(json, "replacement"));
  if (replacement.empty() || code_point_at(replacement, 0).size != replacement.size()) {
    return fail(ErrorCode::kCorruptData, "field \"replacement\" is not one character");
  }
  PrependScheme prepend = PrependScheme::kAlways;
  if (find_field(json, "prepend_scheme") != nullptr) {
    TRINE_TRY_ASSIGN(const std::string scheme, string_field(json, "prepend_scheme"));
    if (scheme == "first") {
      prepend = PrependScheme::kFirst;
    } else if (scheme == "never") {
      prepend = PrependScheme::kNever;
    } else if (scheme != "always") {
      return fail(ErrorCode::kUnsupported, "prepend_scheme \"{}\" is not supported",
                  scheme.substr(0, 80));
    }
  } else {  // files before tokenizers 0.15
    TRINE_TRY_ASSIGN(const bool add, bool_field(json, "add_prefix_space", true));
    prepend = add ? PrependScheme::kAlways : PrependScheme::kNever;
  }
  TRINE_TRY_ASSIGN(const bool split, bool_field(json, "split", true));
  return std::make_shared<const Metaspace>(std::move(replacement), prepend, split);
}

PreTokenizerPtr split_at(bool (*test)(char32_t), SplitBehavior behavior) {
  return std::make_shared<const Split>(Pattern::characters(test), behavior, false);
}

Result<PreTokenizerPtr> parse(const Json& json, int depth) {
  if (depth > kMaxNesting) {
    return fail(ErrorCode::kCorruptData, "pre-tokenizers nested deeper than {}", kMaxNesting);
  }
  TRINE_TRY_ASSIGN(const std::string type, string_field(json, "type"));
  if (type == "Sequence") {
    TRINE_TRY_ASSIGN(const Json* list, array_field(json, "pretokenizers"));
    std::vector<PreTokenizerPtr> steps;
    for (const Json& item : *list) {
      TRINE_TRY_ASSIGN(auto step, parse(item, depth + 1));
      steps.push_back(std::move(step));
    }
    return std::make_shared<const Sequence>(std::move(steps));
  }
  if (type == "Split") {
    TRINE_TRY_ASSIGN(PatternField field, pattern_field(json));
    TRINE_TRY_ASSIGN(const SplitBehavior behavior, behavior_field(json));
    TRINE_TRY_ASSIGN(const bool invert, bool_field(json, "invert", false));
    if (!field.regex) {
      return std::make_shared<const Split>(Pattern::literal(std::move(field.text)), behavior,
                                           invert);
    }
    TRINE_TRY_ASSIGN(Pattern pattern, Pattern::regex(field.text));
    return std::make_shared<const Split>(std::move(pattern), behavior, invert);
  }
  if (type == "ByteLevel") {
    TRINE_TRY_ASSIGN(const bool prefix, bool_field(json, "add_prefix_space", true));
    TRINE_TRY_ASSIGN(const bool regex, bool_field(json, "use_regex", true));
    return std::make_shared<const ByteLevel>(prefix, regex);
  }
  if (type == "Digits") {
    TRINE_TRY_ASSIGN(const bool individual, bool_field(json, "individual_digits", false));
    return split_at(is_number, individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous);
  }
  if (type == "Punctuation") {
    SplitBehavior behavior = SplitBehavior::kIsolated;
    if (find_field(json, "behavior") != nullptr) {
      TRINE_TRY_ASSIGN(behavior, behavior_field(json));
    }
    return split_at(is_punctuation, behavior);
  }
  if (type == "Whitespace") {
    return std::make_shared<const WordsAndSymbols>();
  }
  if (type == "WhitespaceSplit") {
    return split_at(is_space, SplitBehavior::kRemoved);
  }
  if (type == "Metaspace") {
    return parse_metaspace(json);
  }
  return fail(ErrorCode::kUnsupported, "pre-tokenizer type \"{}\" is not supported",
              type.substr(0, 80));
}

// ---- GGUF names ----

// What each name of tokenizer.ggml.pre means: the expressions that cut the text one after the
// other.
struct PreEntry {
  std::string_view names;  // separated by spaces
  std::string_view family;
  std::array<std::string_view, 4> regexes;
  bool ignore_merges = false;
  bool add_bos = false;
};

// GPT-2's pattern as `default` and its kin have it. The last alternative of the original (\s+)
// matters only for what is left between matches, which is a piece as well.
constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

const std::array<PreEntry, 9>& pre_entries() {
  static const std::array<PreEntry, 9> entries{{
      {"default", "default", {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2, R"(\p{N}+)", "[0-9][0-9][0-9]"}},
      {"gpt-2 phi-2 mpt olmo jais exaone4 trillion granite-docling", "gpt-2", {kGpt2}},
      {"llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2",
       "llama3",
       {pattern_regex(SplitPattern::kLlama3)},
       true,
       true},
      {"dbrx smaug-bpe", "llama3", {pattern_regex(SplitPattern::kLlama3)}},
      {"qwen2 stablelm2 deepseek-r1-qwen megrez hunyuan",
       "qwen2",
       {pattern_regex(SplitPattern::kQwen2)}},
      {"smollm starcoder refact command-r codeshell exaone minerva-7b",
       "smollm",
       {R"(\p{N})", kGpt2}},
      {"gpt-4o llama4 kanana2", "gpt-4o", {pattern_regex(SplitPattern::kO200k)}},
      {"tekken", "tekken", {pattern_regex(SplitPattern::kTekken)}, true, true},
      {"deepseek-v3",
       "deepseek-v3",
       {R"(\p{N}{1,3})",
        "[\xe4\xb8\x80-\xe9\xbe\xa5\xe3\x81\x80-\xe3\x82\x9f\xe3\x82\xa0-\xe3\x83\xbf]+",
        R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}},
  }};
  return entries;
}

}  // namespace

Result<PreTokenizerPtr> pretokenizer_from_json(const nlohmann::ordered_json& json) {
  return parse(json, 0);
}

Result<GgufPre> gguf_pretokenizer(std::string_view pre) {
  std::string known;
  for (const PreEntry& entry : pre_entries()) {
    const std::string padded = fmt::format(" {} ", entry.names);
    known += known.empty() ? "" : " ";
    known += entry.names;
    if (pre.empty() || pre.find(' ') != std::string_view::npos ||
        padded.find(fmt::format(" {} ", pre)) == std::string::npos) {
      continue;
    }
    std::vector<PreTokenizerPtr> steps;
    for (const std::string_view regex : entry.regexes) {
      if (!regex.empty()) {
        TRINE_TRY_ASSIGN(Pattern pattern, Pattern::regex(regex));
        steps.push_back(
            std::make_shared<const Split>(std::move(pattern), SplitBehavior::kIsolated, false));
      }
    }
    steps.push_back(std::make_shared<const ByteLevel>(false, false));
    return GgufPre{std::make_shared<const Sequence>(std::move(steps)), entry.ignore_merges,
                   entry.add_bos, entry.family};
  }
  return fail(ErrorCode::kUnsupported, "tokenizer.ggml.pre \"{}\" is not supported; known are: {}",
              pre.substr(0, 80), known);
}

namespace {

// Appends the expressions by which a pre-tokenizer cuts, until (and with) the step that makes bytes
// of it, to `out`. Errors: unsupported naming the part that GGUF has no word for.
Status cutting_regexes(const Json& json, int depth, bool& bytes, std::vector<std::string>& out) {
  if (depth > kMaxNesting) {
    return fail(ErrorCode::kCorruptData, "pre-tokenizers nested deeper than {}", kMaxNesting);
  }
  TRINE_TRY_ASSIGN(const std::string type, string_field(json, "type"));
  if (bytes) {
    return fail(ErrorCode::kUnsupported,
                "pre-tokenizer {} after ByteLevel: a GGUF file cannot say that",
                type.substr(0, 80));
  }
  if (type == "Sequence") {
    TRINE_TRY_ASSIGN(const Json* list, array_field(json, "pretokenizers"));
    for (const Json& item : *list) {
      TRINE_TRY(cutting_regexes(item, depth + 1, bytes, out));
    }
    return {};
  }
  if (type == "ByteLevel") {
    TRINE_TRY_ASSIGN(const bool prefix, bool_field(json, "add_prefix_space", true));
    if (prefix) {
      return fail(ErrorCode::kUnsupported,
                  "pre-tokenizer ByteLevel with add_prefix_space: a GGUF file cannot say that");
    }
    TRINE_TRY_ASSIGN(const bool regex, bool_field(json, "use_regex", true));
    if (regex) {
      out.emplace_back(kGpt2);
    }
    bytes = true;
    return {};
  }
  if (type == "Digits") {
    TRINE_TRY_ASSIGN(const bool individual, bool_field(json, "individual_digits", false));
    out.emplace_back(individual ? R"(\p{N})" : R"(\p{N}+)");
    return {};
  }
  if (type == "Split") {
    TRINE_TRY_ASSIGN(const PatternField field, pattern_field(json));
    TRINE_TRY_ASSIGN(const SplitBehavior behavior, behavior_field(json));
    TRINE_TRY_ASSIGN(const bool invert, bool_field(json, "invert", false));
    // What a pattern that covers every text matches is a piece whether it is called the match or
    // the rest.
    const auto known = known_pattern(field.text);
    const bool isolates = behavior == SplitBehavior::kIsolated && !invert;
    if (field.regex &&
        (isolates || (known.has_value() && invert && behavior == SplitBehavior::kRemoved))) {
      out.emplace_back(known.has_value() ? pattern_regex(*known) : std::string_view(field.text));
      return {};
    }
  }
  return fail(ErrorCode::kUnsupported, "pre-tokenizer {}: a GGUF file cannot say that",
              type.substr(0, 80));
}

// The name that llama.cpp's own files have, of those that mean the same.
std::string_view usual_name(const PreEntry& entry) {
  if (entry.family == "llama3") {
    return entry.ignore_merges ? "llama-bpe" : "smaug-bpe";
  }
  return entry.names.substr(0, entry.names.find(' '));
}

}  // namespace

Result<std::string_view> gguf_pre_name(const nlohmann::ordered_json& pre_tokenizer,
                                       bool ignore_merges) {
  std::vector<std::string> regexes;
  bool bytes = false;
  if (!pre_tokenizer.is_null()) {
    TRINE_TRY(cutting_regexes(pre_tokenizer, 0, bytes, regexes));
  }
  if (!bytes) {
    return fail(ErrorCode::kUnsupported,
                "a pre-tokenizer without ByteLevel: a GGUF file has no word for this kind of BPE");
  }
  const PreEntry* other = nullptr;
  for (const PreEntry& entry : pre_entries()) {
    std::vector<std::string> own;
    for (const std::string_view regex : entry.regexes) {
      if (!regex.empty()) {
        own.emplace_back(regex);
      }
    }
    if (own != regexes) {
      continue;
    }
    if (entry.ignore_merges == ignore_merges) {
      return usual_name(entry);
    }
    other = &entry;
  }
  if (other != nullptr) {
    return usual_name(*other);
  }
  std::string shown;
  for (const std::string& regex : regexes) {
    shown += (shown.empty() ? "" : " then ") + regex;
  }
  return fail(ErrorCode::kUnsupported,
              "the pre-tokenizer cuts by \"{}\", which no known GGUF splitter does",
              shown.substr(0, 300));
}

namespace {

struct ByteAlphabet {
  std::array<std::string, 256> spelling;
  std::array<std::int16_t, 0x150> byte;  // by code point; -1: not in the alphabet
};

// Printable Latin-1 stands for itself; the other bytes take the code points from U+0100 on, in
// order.
const ByteAlphabet& byte_alphabet() {
  static const ByteAlphabet alphabet = [] {
    ByteAlphabet out;
    out.byte.fill(-1);
    char32_t next = 0x100;
    for (std::size_t b = 0; b < 256; ++b) {
      const bool printable = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
      const char32_t c = printable ? static_cast<char32_t>(b) : next++;
      append_utf8(out.spelling[b], c);
      out.byte[c] = static_cast<std::int16_t>(b);
    }
    return out;
  }();
  return alphabet;
}

}  // namespace

void append_byte_level(std::string& out, std::string_view bytes) {
  const auto& spelling = byte_alphabet().spelling;
  for (const char c : bytes) {
    out += spelling[static_cast<unsigned char>(c)];
  }
}

std::optional<std::string> bytes_of_byte_level(std::string_view spelling) {
  const auto& byte = byte_alphabet().byte;
  std::string out;
  for (std::size_t pos = 0; pos < spelling.size();) {
    const CodePoint c = code_point_at(spelling, pos);
    if (c.value >= byte.size() || byte[c.value] < 0) {
      return std::nullopt;
    }
    out.push_back(static_cast<char>(byte[c.value]));
    pos += c.size;
  }
  return out;
}

}  // namespace trine::text
