// Reads the Hugging Face library's tokenizer.json and the neighbouring tokenizer_config.json.
#include <algorithm>
#include <limits>
#include <utility>

#include "base/json.h"
#include "text/json_fields.h"
#include "text/tokenizer_impl.h"
#include "text/unicode.h"

namespace trine::text {
namespace {

constexpr std::int64_t kMaxId = static_cast<std::int64_t>(kMaxVocab);
// A vocabulary may have holes, but one entry with a huge id must not cost gigabytes.
constexpr std::size_t kMaxHoles = 65536;

// The parsed files, and what is learned from them on the way.
struct Reader {
  const Json& root;
  const Json& config;
  TokenizerParts parts;
  std::vector<AddedToken> added;
  std::vector<double> scores;  // unigram, by id
  std::string unk_piece;
};

Status read_added(Reader& reader) {
  const Json* list = find_field(reader.root, "added_tokens");
  if (list == nullptr) {
    return {};
  }
  if (!list->is_array()) {
    return fail(ErrorCode::kCorruptData, "field \"added_tokens\" is no array");
  }
  for (const Json& item : *list) {
    AddedToken token;
    TRINE_TRY_ASSIGN(const std::int64_t id, int_field(item, "id", kMaxId));
    token.id = static_cast<std::int32_t>(id);
    TRINE_TRY_ASSIGN(token.content, string_field(item, "content"));
    TRINE_TRY_ASSIGN(token.single_word, bool_field(item, "single_word", false));
    TRINE_TRY_ASSIGN(token.lstrip, bool_field(item, "lstrip", false));
    TRINE_TRY_ASSIGN(token.rstrip, bool_field(item, "rstrip", false));
    TRINE_TRY_ASSIGN(token.normalized, bool_field(item, "normalized", false));
    TRINE_TRY_ASSIGN(token.special, bool_field(item, "special", false));
    reader.added.push_back(std::move(token));
  }
  return {};
}

// The model's own pieces: (piece, id, score).
struct Entry {
  std::string piece;
  std::int32_t id = 0;
  double score = 0;
};

Result<std::vector<Entry>> read_bpe_vocab(const Json& model) {
  const Json* vocab = find_field(model, "vocab");
  if (vocab == nullptr || !vocab->is_object()) {
    return fail(ErrorCode::kCorruptData, "field \"model.vocab\" is missing or no object");
  }
  std::vector<Entry> out;
  out.reserve(vocab->size());
  for (auto it = vocab->begin(); it != vocab->end(); ++it) {
    if (!it.value().is_number_integer() || it.value().get<std::int64_t>() < 0 ||
        it.value().get<std::int64_t>() >= kMaxId) {
      return fail(ErrorCode::kCorruptData, "model.vocab[\"{}\"]: {} is no id in [0, {})",
                  it.key().substr(0, 80), it.value().dump().substr(0, 40), kMaxId);
    }
    out.push_back({it.key(), static_cast<std::int32_t>(it.value().get<std::int64_t>()), 0});
  }
  return out;
}

Result<std::vector<Entry>> read_unigram_vocab(const Json& model) {
  TRINE_TRY_ASSIGN(const Json* vocab, array_field(model, "vocab"));
  std::vector<Entry> out;
  out.reserve(vocab->size());
  for (const Json& item : *vocab) {
    if (!item.is_array() || item.size() != 2 || !item[0].is_string() || !item[1].is_number()) {
      return fail(ErrorCode::kCorruptData, "model.vocab[{}] is not [piece, score]", out.size());
    }
    out.push_back(
        {item[0].get<std::string>(), static_cast<std::int32_t>(out.size()), item[1].get<double>()});
  }
  return out;
}

// Puts the model's and the added tokens into the vocabulary.
Status build_vocab(Reader& reader, const std::vector<Entry>& entries, bool byte_fallback) {
  std::size_t limit = 0;
  if (__builtin_add_overflow(entries.size() + reader.added.size(), kMaxHoles, &limit)) {
    limit = kMaxVocab;
  }
  Vocab& vocab = *reader.parts.vocab;
  std::unordered_map<std::string_view, std::int32_t> model_ids;
  model_ids.reserve(entries.size());
  std::int32_t last = -1;
  for (const Entry& entry : entries) {
    model_ids.emplace(entry.piece, entry.id);
    last = std::max(last, entry.id);
  }
  std::unordered_map<std::int32_t, const AddedToken*> added_by_id;
  for (const AddedToken& token : reader.added) {
    const auto it = model_ids.find(token.content);
    if (it != model_ids.end() && it->second != token.id) {
      return fail(ErrorCode::kCorruptData, "added token \"{}\" has id {}, but {} in model.vocab",
                  token.content.substr(0, 80), token.id, it->second);
    }
    if (!added_by_id.emplace(token.id, &token).second) {
      return fail(ErrorCode::kCorruptData, "two added tokens have id {}", token.id);
    }
    last = std::max(last, token.id);
  }
  if (last >= 0 && static_cast<std::size_t>(last) >= limit) {
    return fail(ErrorCode::kCorruptData, "id {} in a vocabulary of {} tokens", last,
                entries.size() + reader.added.size());
  }
  for (const Entry& entry : entries) {
    const auto it = added_by_id.find(entry.id);
    TokenKind kind = TokenKind::kNormal;
    if (entry.piece == reader.unk_piece) {
      kind = TokenKind::kUnknown;
    } else if (it != added_by_id.end()) {
      kind = it->second->special ? TokenKind::kControl : TokenKind::kUserDefined;
    } else if (byte_fallback && parse_byte_token(entry.piece)) {
      kind = TokenKind::kByte;
    }
    TRINE_TRY(vocab.add(entry.id, entry.piece, kind));
  }
  for (const AddedToken& token : reader.added) {
    if (!model_ids.contains(token.content)) {
      TRINE_TRY(vocab.add(token.id, token.content,
                          token.special ? TokenKind::kControl : TokenKind::kUserDefined));
    }
  }
  TRINE_TRY(vocab.finish());
  const auto size = static_cast<std::size_t>(vocab.size());
  reader.parts.added.assign(size, false);
  reader.parts.special.assign(size, false);
  for (const AddedToken& token : reader.added) {
    reader.parts.added[static_cast<std::size_t>(token.id)] = true;
    reader.parts.special[static_cast<std::size_t>(token.id)] = token.special;
  }
  reader.scores.assign(size, std::numeric_limits<double>::quiet_NaN());
  for (const Entry& entry : entries) {
    reader.scores[static_cast<std::size_t>(entry.id)] = entry.score;
  }
  return {};
}

Result<std::vector<MergePair>> read_merges(const Json& model) {
  TRINE_TRY_ASSIGN(const Json* list, array_field(model, "merges"));
  std::vector<MergePair> out;
  out.reserve(list->size());
  for (const Json& item : *list) {
    if (item.is_array() && item.size() == 2 && item[0].is_string() && item[1].is_string()) {
      out.emplace_back(item[0].get<std::string>(), item[1].get<std::string>());
      continue;
    }
    const std::string text = item.is_string() ? item.get<std::string>() : "";
    const std::size_t space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
      return fail(ErrorCode::kCorruptData,
                  "model.merges[{}] is neither \"left right\" nor [left, right]", out.size());
    }
    out.emplace_back(text.substr(0, space), text.substr(space + 1));
  }
  return out;
}

// Fields that change the result and that no model here uses.
Status refuse_if_set(const Json& model, std::string_view name) {
  const Json* value = find_field(model, name);
  const bool off = value == nullptr || (value->is_string() && value->get<std::string>().empty()) ||
                   (value->is_number() && value->get<double>() == 0.0);
  if (!off) {
    return fail(ErrorCode::kUnsupported, "model.{} = {} is not supported", name,
                value->dump().substr(0, 40));
  }
  return {};
}

Status read_bpe(Reader& reader, const Json& model) {
  for (const std::string_view name :
       {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
    TRINE_TRY(refuse_if_set(model, name));
  }
  BpeOptions options;
  TRINE_TRY_ASSIGN(options.byte_fallback, bool_field(model, "byte_fallback", false));
  TRINE_TRY_ASSIGN(options.fuse_unk, bool_field(model, "fuse_unk", false));
  TRINE_TRY_ASSIGN(options.ignore_merges, bool_field(model, "ignore_merges", false));
  if (find_field(model, "unk_token") != nullptr) {
    TRINE_TRY_ASSIGN(reader.unk_piece, string_field(model, "unk_token"));
  }
  TRINE_TRY_ASSIGN(const auto entries, read_bpe_vocab(model));
  TRINE_TRY(build_vocab(reader, entries, options.byte_fallback));
  if (!reader.unk_piece.empty()) {
    options.unk = reader.parts.vocab->find(reader.unk_piece);
    if (options.unk == kNoToken) {
      return fail(ErrorCode::kCorruptData, "model.unk_token \"{}\" is not in the vocabulary",
                  reader.unk_piece.substr(0, 80));
    }
  }
  TRINE_TRY_ASSIGN(const auto merges, read_merges(model));
  TRINE_TRY_ASSIGN(reader.parts.model,
                   make_bpe(*reader.parts.vocab, merges, options, "model.merges"));
  reader.parts.description = options.byte_fallback ? "BPE with byte fallback" : "BPE";
  return {};
}

Status read_unigram(Reader& reader, const Json& model) {
  UnigramOptions options;
  TRINE_TRY_ASSIGN(options.byte_fallback, bool_field(model, "byte_fallback", false));
  TRINE_TRY_ASSIGN(const auto entries, read_unigram_vocab(model));
  if (find_field(model, "unk_id") != nullptr) {
    TRINE_TRY_ASSIGN(const std::int64_t unk,
                     int_field(model, "unk_id", static_cast<std::int64_t>(entries.size())));
    options.unk = static_cast<std::int32_t>(unk);
    reader.unk_piece = entries[static_cast<std::size_t>(unk)].piece;
  }
  TRINE_TRY(build_vocab(reader, entries, options.byte_fallback));
  TRINE_TRY_ASSIGN(reader.parts.model, make_unigram(*reader.parts.vocab, reader.scores, options));
  reader.parts.description = options.byte_fallback ? "unigram with byte fallback" : "unigram";
  return {};
}

Status read_model(Reader& reader) {
  const Json* model = find_field(reader.root, "model");
  if (model == nullptr || !model->is_object()) {
    return fail(ErrorCode::kCorruptData, "field \"model\" is missing or no object");
  }
  std::string type;
  if (find_field(*model, "type") != nullptr) {
    TRINE_TRY_ASSIGN(type, string_field(*model, "type"));
  } else {  // files before tokenizers 0.9 tell the models apart by their fields
    type = find_field(*model, "merges") != nullptr ? "BPE" : "without a type";
  }
  if (type == "BPE") {
    return read_bpe(reader, *model);
  }
  if (type == "Unigram") {
    return read_unigram(reader, *model);
  }
  return fail(ErrorCode::kUnsupported, "model type \"{}\" is not supported (BPE and Unigram are)",
              type.substr(0, 80));
}

// One TemplateProcessing: what stands before and after the text.
Status read_template(Reader& reader, const Json& json) {
  TRINE_TRY_ASSIGN(const Json* single, array_field(json, "single"));
  std::vector<std::int32_t> sides[2];
  std::size_t side = 0;
  for (const Json& item : *single) {
    if (find_field(item, "Sequence") != nullptr) {
      if (++side > 1) {
        return fail(ErrorCode::kUnsupported,
                    "post_processor: a template that repeats the text is not supported");
      }
      continue;
    }
    const Json* token = find_field(item, "SpecialToken");
    if (token == nullptr) {
      return fail(ErrorCode::kCorruptData,
                  "post_processor: a template item is neither Sequence nor SpecialToken");
    }
    TRINE_TRY_ASSIGN(const std::string name, string_field(*token, "id"));
    const Json* specials = find_field(json, "special_tokens");
    const Json* special = specials == nullptr ? nullptr : find_field(*specials, name);
    if (special == nullptr) {
      return fail(ErrorCode::kCorruptData, "post_processor: special token \"{}\" is not defined",
                  name.substr(0, 80));
    }
    TRINE_TRY_ASSIGN(const Json* ids, array_field(*special, "ids"));
    for (const Json& id : *ids) {
      if (!id.is_number_integer() || id.get<std::int64_t>() < 0 ||
          id.get<std::int64_t>() >= reader.parts.vocab->size()) {
        return fail(ErrorCode::kCorruptData,
                    "post_processor: id {} of \"{}\" is outside the vocabulary",
                    id.dump().substr(0, 40), name.substr(0, 80));
      }
      sides[side].push_back(static_cast<std::int32_t>(id.get<std::int64_t>()));
    }
  }
  if (side != 1) {
    return fail(ErrorCode::kCorruptData, "post_processor: the template does not contain the text");
  }
  // Of several templates in a sequence, each wraps what the ones before it made.
  auto& [prefix, suffix] = sides;
  reader.parts.prefix.insert(reader.parts.prefix.begin(), prefix.begin(), prefix.end());
  reader.parts.suffix.insert(reader.parts.suffix.end(), suffix.begin(), suffix.end());
  return {};
}

Status read_post_processor(Reader& reader, const Json& json, int depth, bool& has_template) {
  TRINE_TRY_ASSIGN(const std::string type, string_field(json, "type"));
  if (type == "ByteLevel") {  // changes offsets only
    return {};
  }
  if (type == "TemplateProcessing") {
    has_template = true;
    return read_template(reader, json);
  }
  if (type == "Sequence" && depth < 8) {
    TRINE_TRY_ASSIGN(const Json* list, array_field(json, "processors"));
    for (const Json& item : *list) {
      TRINE_TRY(read_post_processor(reader, item, depth + 1, has_template));
    }
    return {};
  }
  return fail(ErrorCode::kUnsupported, "post_processor type \"{}\" is not supported",
              type.substr(0, 80));
}

// "bos_token": "<s>" or {"content": "<s>", ...}.
Result<std::optional<std::int32_t>> config_token(const Reader& reader, std::string_view name) {
  const Json* value = find_field(reader.config, name);
  if (value != nullptr && value->is_object()) {
    value = find_field(*value, "content");
  }
  if (value == nullptr) {
    return std::nullopt;
  }
  if (!value->is_string()) {
    return fail(ErrorCode::kCorruptData, "tokenizer_config.json: field \"{}\" is no token", name);
  }
  const std::int32_t id = reader.parts.vocab->find(value->get<std::string>());
  if (id == kNoToken) {
    return fail(ErrorCode::kCorruptData,
                "tokenizer_config.json: {} \"{}\" is not in the vocabulary", name,
                value->get<std::string>().substr(0, 80));
  }
  return id;
}

Status read_config(Reader& reader, bool has_template) {
  TRINE_TRY_ASSIGN(reader.parts.bos, config_token(reader, "bos_token"));
  TRINE_TRY_ASSIGN(reader.parts.eos, config_token(reader, "eos_token"));
  TRINE_TRY_ASSIGN(const bool add_bos, bool_field(reader.config, "add_bos_token", false));
  TRINE_TRY_ASSIGN(const bool add_eos, bool_field(reader.config, "add_eos_token", false));
  if (has_template) {
    return {};  // the template is the more exact word, and what the library follows
  }
  if (add_bos && reader.parts.bos) {
    reader.parts.prefix.push_back(*reader.parts.bos);
  }
  if (add_eos && reader.parts.eos) {
    reader.parts.suffix.push_back(*reader.parts.eos);
  }
  return {};
}

bool mentions_type(const Json& json, std::string_view type) {
  if (json.is_object()) {
    const Json* value = find_field(json, "type");
    if (value != nullptr && value->is_string() && value->get_ref<const std::string&>() == type) {
      return true;
    }
  }
  return json.is_structured() && std::any_of(json.begin(), json.end(), [&](const Json& item) {
           return mentions_type(item, type);
         });
}

Result<std::shared_ptr<const Tokenizer>> read(const Json& root, const Json& config) {
  if (!root.is_object() || !(config.is_object() || config.is_null())) {
    return fail(ErrorCode::kCorruptData, "not a JSON object");
  }
  Reader reader{root, config, {}, {}, {}, {}};
  TRINE_TRY(read_added(reader));
  TRINE_TRY(read_model(reader));
  if (const Json* json = find_field(root, "normalizer")) {
    TRINE_TRY_ASSIGN(reader.parts.normalizer, normalizer_from_json(*json));
  }
  if (const Json* json = find_field(root, "pre_tokenizer")) {
    TRINE_TRY_ASSIGN(reader.parts.pretokenizer, pretokenizer_from_json(*json));
    if (mentions_type(*json, "ByteLevel")) {
      reader.parts.description = "byte-level " + reader.parts.description;
    }
  }
  bool has_template = false;
  if (const Json* json = find_field(root, "post_processor")) {
    TRINE_TRY(read_post_processor(reader, *json, 0, has_template));
  }
  const Json* decoder = find_field(root, "decoder");
  TRINE_TRY_ASSIGN(reader.parts.decoder,
                   Decoder::from_json(decoder == nullptr ? Json() : *decoder));
  TRINE_TRY(read_config(reader, has_template));
  TRINE_TRY(
      reader.parts.added_tokens.build(std::move(reader.added), reader.parts.normalizer.get()));
  return std::make_shared<const TokenizerImpl>(std::move(reader.parts));
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> Tokenizer::from_json(
    std::string_view tokenizer_json, std::string_view tokenizer_config_json) {
  auto root = parse_json(tokenizer_json);
  if (!root.has_value()) {
    return tl::unexpected(std::move(root).error().with_context("tokenizer.json"));
  }
  Json config;
  if (!tokenizer_config_json.empty()) {
    auto parsed = parse_json(tokenizer_config_json);
    if (!parsed.has_value()) {
      return tl::unexpected(std::move(parsed).error().with_context("tokenizer_config.json"));
    }
    config = std::move(*parsed);
  }
  auto out = read(*root, config);
  if (!out.has_value()) {
    return tl::unexpected(std::move(out).error().with_context("tokenizer.json"));
  }
  return out;
}

}  // namespace trine::text
