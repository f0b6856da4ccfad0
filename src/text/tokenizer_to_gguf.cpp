#include "text/tokenizer_to_gguf.h"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>

#include "base/json.h"
#include "text/json_fields.h"
#include "text/normalizer.h"
#include "text/pretokenizer.h"
#include "text/unicode.h"
#include "text/vocab.h"

namespace trine::text {
namespace {

constexpr std::string_view kSpace = "\xe2\x96\x81";  // U+2581, SentencePiece's space

// Below every score that a merge gives.
constexpr float kNeverMerged = -1e9F;

// Texts on which splitters, normalizers and merges differ from each other.
constexpr std::array<std::string_view, 14> kProbes{
    "Hello, world! It's 3 o'clock, isn't it? WE'LL SEE; they'Re here.",
    " leading space, trailing space ",
    "  two  and   three    spaces\tand\t\ttabs",
    "line\nline\r\nline\n\n\n  indented\n\t\tdeeper\n",
    "def f(x):\n    return {'a': [1, 22, 333, 4444, 55555], \"b\": x**2 != 7}\n",
    "1234567890 3.14159 1e-9 0x1F 12,345.67 $5.00 50%",
    "na\xc3\xafve caf\xc3\xa9 \xc3\x9c"
    "ber stra\xc3\x9f"
    "e \xc2\xbfqu\xc3\xa9? fi\xef\xac\x81",
    "\xd0\x9f\xd1\x80\xd0\xb8\xd0\xb2\xd0\xb5\xd1\x82, \xd0\xbc\xd0\xb8\xd1\x80! "
    "\xce\x93\xce\xb5\xce\xb9\xce\xac \xcf\x83\xce\xb1\xcf\x82 \xd7\xa9\xd7\x9c\xd7\x95\xd7\x9d",
    "\xe6\x88\x91\xe6\x83\xb3\xe5\x9c\xa8\xe8\x8b\xb9\xe6\x9e\x9c\xe5\xb7\xa5\xe4\xbd\x9c"
    "1314151\xe5\xa4\xa9\xef\xbd\x9e \xe3\x81\x93\xe3\x82\x93\xe3\x81\xab\xe3\x81\xa1\xe3\x81\xaf "
    "\xec\x95\x88\xeb\x85\x95",
    "\xf0\x9f\x9a\x80 \xf0\x9f\x98\xb6\xe2\x80\x8d\xf0\x9f\x8c\xab\xef\xb8\x8f "
    "\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x9a\x80 \xe2\x9c\x85",
    "camelCase HTTPServer snake_case kebab-case CONSTANT_2 a1b2c3 x\xc2\xb2+y\xc2\xb2",
    "<div class=\"a\">&amp;</div> // comment /* x */ #include <vector> C:\\path\\to /usr/bin",
    "!!! ... --- ??? ``` \"\" '' ((([[[{{{ }}}]]]))) @@ ## ~~ ^^ ||",
    "\xe0\xa4\xb9\xe0\xa4\xbf\xe0\xa4\xa8\xe0\xa5\x8d\xe0\xa4\xa6\xe0\xa5\x80 "
    "\xd8\xa7\xd9\x84\xd8\xb9\xd8\xb1\xd8\xa8\xd9\x8a\xd8\xa9 \xd9\xa1\xd9\xa2\xd9\xa3",
};

std::string list_text(const std::vector<std::int32_t>& ids) {
  std::string out;
  for (const std::int32_t id : ids) {
    out += out.empty() ? "[" : ", ";
    out += std::to_string(id);
  }
  return out.empty() ? "[]" : out + "]";
}

struct Merge {
  std::string left, right;
};

// As the reader of tokenizer.json has checked them.
std::vector<Merge> merges_of(const Json& model) {
  std::vector<Merge> out;
  const Json* list = find_field(model, "merges");
  if (list == nullptr) {
    return out;
  }
  out.reserve(list->size());
  for (const Json& item : *list) {
    if (item.is_array()) {
      out.push_back({item[0].get<std::string>(), item[1].get<std::string>()});
    } else {
      const auto text = item.get<std::string>();
      const std::size_t space = text.find(' ');
      out.push_back({text.substr(0, space), text.substr(space + 1)});
    }
  }
  return out;
}

// Tokens and kinds; rows without a token get a spelling of their own, as llama.cpp's converter
// gives them.
Status fill_tokens(const Tokenizer& tokenizer, std::int64_t rows, GgufTokenizerData& out) {
  const std::int32_t size = tokenizer.vocab_size();
  if (size > rows) {
    return fail(ErrorCode::kUnsupported,
                "the tokenizer has {} tokens, the model rows for {}: a GGUF file has one token for "
                "each row",
                size, rows);
  }
  for (std::int32_t id = 0; id < rows; ++id) {
    const bool there = id < size && !tokenizer.piece(id).empty();
    out.tokens.push_back(there ? std::string(tokenizer.piece(id)) : fmt::format("[PAD{}]", id));
    out.kinds.push_back(static_cast<std::int32_t>(there ? tokenizer.kind(id) : TokenKind::kUnused));
  }
  return {};
}

std::string type_of(const Json& json) {
  const auto type = string_field(json, "type");
  return type.has_value() ? *type : std::string("of an unknown kind");
}

Status fill_gpt2(const Json& root, const Json& model, GgufTokenizer& out) {
  out.data.model = "gpt2";
  if (const Json* normalizer = find_field(root, "normalizer")) {
    const std::string type = type_of(*normalizer);
    if (type != "NFC") {
      return fail(ErrorCode::kUnsupported, "normalizer {}: a GGUF file cannot say that",
                  type.substr(0, 80));
    }
    out.notes.emplace_back(
        "the tokenizer composes characters (NFC) before it splits; GGUF readers do not, so texts "
        "with decomposed characters get other tokens there");
  }
  TRINE_TRY_ASSIGN(const bool ignore_merges, bool_field(model, "ignore_merges", false));
  const Json* pre = find_field(root, "pre_tokenizer");
  TRINE_TRY_ASSIGN(const std::string_view name,
                   gguf_pre_name(pre == nullptr ? Json() : *pre, ignore_merges));
  out.data.pre = name;
  for (const Merge& merge : merges_of(model)) {
    if (merge.left.find(' ') != std::string::npos || merge.right.find(' ') != std::string::npos) {
      return fail(ErrorCode::kUnsupported,
                  "model.merges has a part with a space, which ends a part in a GGUF file");
    }
    out.data.merges.push_back(fmt::format("{} {}", merge.left, merge.right));
  }
  return {};
}

// How SentencePiece's space gets into the text.
struct SpaceRule {
  bool replaces = false;
  bool prepends = false;
};

Status read_space_normalizer(const Json& json, int depth, SpaceRule& rule) {
  const std::string type = type_of(json);
  if (type == "Sequence" && depth < 4) {
    TRINE_TRY_ASSIGN(const Json* list, array_field(json, "normalizers"));
    for (const Json& item : *list) {
      TRINE_TRY(read_space_normalizer(item, depth + 1, rule));
    }
    return {};
  }
  if (type == "Prepend") {
    TRINE_TRY_ASSIGN(const std::string prefix, string_field(json, "prepend"));
    rule.prepends = prefix == kSpace;
    if (rule.prepends) {
      return {};
    }
  } else if (type == "Replace") {
    TRINE_TRY_ASSIGN(const PatternField field, pattern_field(json));
    TRINE_TRY_ASSIGN(const std::string content, string_field(json, "content"));
    rule.replaces = !field.regex && field.text == " " && content == kSpace;
    if (rule.replaces) {
      return {};
    }
  }
  return fail(ErrorCode::kUnsupported, "normalizer {}: a GGUF file cannot say that",
              type.substr(0, 80));
}

Status read_space_pretokenizer(const Json& json, SpaceRule& rule, GgufTokenizer& out) {
  const std::string type = type_of(json);
  if (type == "Metaspace") {
    TRINE_TRY_ASSIGN(const bool split, bool_field(json, "split", true));
    TRINE_TRY_ASSIGN(const bool legacy, bool_field(json, "add_prefix_space", true));
    const Json* scheme = find_field(json, "prepend_scheme");
    const bool first = scheme != nullptr && *scheme == "first";
    if (split) {
      return fail(ErrorCode::kUnsupported,
                  "pre-tokenizer Metaspace with split: a GGUF file cannot say that");
    }
    rule.replaces = true;
    rule.prepends = scheme == nullptr ? legacy : *scheme != "never";
    if (first) {
      out.notes.emplace_back(
          "the tokenizer puts a space before the first word only; GGUF readers put one after every "
          "control token as well");
    }
    return {};
  }
  // After the normalizer no space is left to split at (Gemma's file).
  if (type == "Split" && rule.replaces) {
    TRINE_TRY_ASSIGN(const PatternField field, pattern_field(json));
    if (!field.regex && field.text == " ") {
      return {};
    }
  }
  return fail(ErrorCode::kUnsupported, "pre-tokenizer {}: a GGUF file cannot say that",
              type.substr(0, 80));
}

// SentencePiece merges by the score of the result, so the rank of the first merge that makes a
// piece becomes its score.
void fill_scores(const std::vector<Merge>& merges, GgufTokenizer& out) {
  std::unordered_map<std::string, float> score;
  score.reserve(merges.size());
  for (const Merge& merge : merges) {
    score.emplace(merge.left + merge.right, -static_cast<float>(score.size()));
  }
  for (const std::string& token : out.data.tokens) {
    const auto it = score.find(token);
    out.data.scores.push_back(it == score.end() ? kNeverMerged : it->second);
  }
}

Status fill_llama(const Json& root, const Json& model, GgufTokenizer& out) {
  out.data.model = "llama";
  out.data.pre = "default";
  SpaceRule rule;
  if (const Json* normalizer = find_field(root, "normalizer")) {
    TRINE_TRY(read_space_normalizer(*normalizer, 0, rule));
  }
  if (const Json* pre = find_field(root, "pre_tokenizer")) {
    TRINE_TRY(read_space_pretokenizer(*pre, rule, out));
  }
  if (!rule.replaces) {
    return fail(ErrorCode::kUnsupported,
                "a BPE with byte fallback that does not write spaces as U+2581: a GGUF file cannot "
                "say that");
  }
  out.data.add_space_prefix = rule.prepends;
  fill_scores(merges_of(model), out);
  // An added token with U+2581 stands in no text that spaces are written in: merges make it, as any
  // other piece.
  for (std::size_t i = 0; i < out.data.tokens.size(); ++i) {
    if (out.data.kinds[i] == static_cast<std::int32_t>(TokenKind::kUserDefined) &&
        out.data.scores[i] > kNeverMerged && out.data.tokens[i].find(kSpace) != std::string::npos) {
      out.data.kinds[i] = static_cast<std::int32_t>(TokenKind::kNormal);
    }
  }
  return {};
}

// What an added token takes along or asks of its neighbours is lost.
void note_added_tokens(const Json& root, GgufTokenizer& out) {
  const Json* list = find_field(root, "added_tokens");
  std::size_t count = 0;
  std::string first;
  for (const Json& token : list == nullptr ? Json::array() : *list) {
    for (const char* flag : {"lstrip", "rstrip", "single_word"}) {
      const auto set = bool_field(token, flag, false);
      if (set.has_value() && *set) {
        first = first.empty() ? string_field(token, "content").value_or("") : first;
        ++count;
        break;
      }
    }
  }
  if (count > 0) {
    out.notes.push_back(fmt::format(
        "{} added token{} ({}{}) strip{} white space or stand{} alone as words; a GGUF file cannot "
        "say that",
        count, count == 1 ? "" : "s", first.substr(0, 80), count == 1 ? "" : ", ...",
        count == 1 ? "s" : "", count == 1 ? "s" : ""));
  }
}

// BOS and EOS as the template puts them.
Status fill_specials(const Tokenizer& tokenizer, const Json& config, GgufTokenizerData& out) {
  out.bos = tokenizer.bos();
  out.eos = tokenizer.eos();
  const auto id_of = [&](const Json* value) -> std::optional<std::int32_t> {
    if (value != nullptr && value->is_object()) {
      value = find_field(*value, "content");
    }
    return value != nullptr && value->is_string() ? tokenizer.find(value->get<std::string>())
                                                  : std::nullopt;
  };
  out.pad = id_of(find_field(config, "pad_token"));
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.kind(id) == TokenKind::kUnknown) {
      out.unk = id;
    }
  }
  TRINE_TRY_ASSIGN(const auto with, tokenizer.encode("a", {true, false}));
  TRINE_TRY_ASSIGN(const auto without, tokenizer.encode("a", {false, false}));
  const auto at = std::search(with.begin(), with.end(), without.begin(), without.end());
  const std::vector<std::int32_t> before(with.begin(), at);
  const auto rest = static_cast<std::size_t>(with.end() - at) - without.size();
  const std::vector<std::int32_t> after(with.end() - static_cast<std::ptrdiff_t>(rest), with.end());
  // The one that is put there is the one that the file has to name.
  if (before.size() == 1 && !out.bos.has_value()) {
    out.bos = before[0];
  }
  if (after.size() == 1 && !out.eos.has_value()) {
    out.eos = after[0];
  }
  out.add_bos = !before.empty();
  out.add_eos = !after.empty();
  if ((out.add_bos.value() && before != std::vector{out.bos.value_or(kNoToken)}) ||
      (out.add_eos.value() && after != std::vector{out.eos.value_or(kNoToken)})) {
    return fail(ErrorCode::kUnsupported,
                "post_processor puts {} before and {} after a text: a GGUF file can say BOS and "
                "EOS only",
                list_text(before), list_text(after));
  }
  return {};
}

Status compare(const Tokenizer& from, const Tokenizer& to, std::string_view text, bool special) {
  TRINE_TRY_ASSIGN(const auto wanted, from.encode(text, {special, false}));
  TRINE_TRY_ASSIGN(const auto found, to.encode(text, {special, false}));
  if (wanted == found) {
    return {};
  }
  return fail(ErrorCode::kUnsupported,
              "the text \"{}\" has the tokens {}, but {} by what a GGUF file can say of this "
              "tokenizer",
              text.substr(0, 80), list_text(wanted), list_text(found));
}

// `composes`: the normalizer of a byte-level model, or null. What it changes is noted, not refused.
Status try_out(const Tokenizer& tokenizer, const Normalizer* composes, const GgufTokenizer& made) {
  TRINE_TRY_ASSIGN(const auto back, Tokenizer::from_gguf(made.data));
  for (const std::string_view text : kProbes) {
    TRINE_TRY(compare(tokenizer, *back, text, true));
  }
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    // Added tokens stand in texts as they are spelled, with flags that a file cannot say.
    if (tokenizer.kind(id) != TokenKind::kNormal) {
      continue;
    }
    const std::string bytes = tokenizer.token_bytes(id);
    if (back->token_bytes(id) != bytes) {
      return fail(ErrorCode::kUnsupported,
                  "token {} stands for \"{}\", but for \"{}\" by what a GGUF file can say of this "
                  "tokenizer",
                  id, bytes, back->token_bytes(id));
    }
    // Bytes that are no text cannot be asked for.
    if (find_invalid_utf8(bytes).has_value()) {
      continue;
    }
    std::string composed = bytes;
    if (composes != nullptr) {
      TRINE_TRY(composes->apply(composed));
    }
    if (composed == bytes) {
      TRINE_TRY(compare(tokenizer, *back, bytes, false));
    }
  }
  return {};
}

}  // namespace

Result<GgufTokenizer> gguf_tokenizer(std::string_view tokenizer_json,
                                     std::string_view tokenizer_config_json, std::int64_t rows) {
  TRINE_TRY_ASSIGN(const auto tokenizer,
                   Tokenizer::from_json(tokenizer_json, tokenizer_config_json));
  TRINE_TRY_ASSIGN(const Json root, parse_json(tokenizer_json));
  Json config;
  if (!tokenizer_config_json.empty()) {
    TRINE_TRY_ASSIGN(config, parse_json(tokenizer_config_json));
  }
  const Json& model = *find_field(root, "model");
  if (find_field(model, "merges") == nullptr) {
    return fail(ErrorCode::kUnsupported,
                "a unigram tokenizer: written are byte-level BPE and SentencePiece BPE");
  }
  GgufTokenizer out;
  TRINE_TRY(fill_tokens(*tokenizer, rows, out.data));
  TRINE_TRY_ASSIGN(const bool byte_fallback, bool_field(model, "byte_fallback", false));
  TRINE_TRY(byte_fallback ? fill_llama(root, model, out) : fill_gpt2(root, model, out));
  TRINE_TRY(fill_specials(*tokenizer, config, out.data));
  note_added_tokens(root, out);
  NormalizerPtr composes;
  if (const Json* normalizer = find_field(root, "normalizer"); !byte_fallback && normalizer) {
    TRINE_TRY_ASSIGN(composes, normalizer_from_json(*normalizer));
  }
  TRINE_TRY(try_out(*tokenizer, composes.get(), out));
  return out;
}

}  // namespace trine::text
