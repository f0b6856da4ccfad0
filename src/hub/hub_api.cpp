#include "hub/hub_api.h"

#include <algorithm>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "hub/files.h"

namespace trine::hub {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxListed = 20;
constexpr std::string_view kIndex = "model.safetensors.index.json";

bool is_root(std::string_view name) {
  return name.find('/') == std::string_view::npos;
}

// Everything beside the weights that the loaders read.
bool is_companion(std::string_view name) {
  const bool tokenizer = name.starts_with("tokenizer") && name.ends_with(".json");
  return is_root(name) && (name == "config.json" || name == "generation_config.json" || tokenizer ||
                           name == "quantize_config.json" || name == "quant_config.json" ||
                           name.starts_with("chat_template"));
}

Result<std::optional<std::uint64_t>> size_of(const Json& object, const char* key,
                                             std::string_view file) {
  const auto it = object.find(key);
  if (it == object.end() || it->is_null()) {
    return std::optional<std::uint64_t>();
  }
  if (!it->is_number_unsigned() || it->get<std::uint64_t>() > (std::uint64_t{1} << 62)) {
    return fail(ErrorCode::kCorruptData, "hub answer: \"{}\" of {} is not a size", key, file);
  }
  return std::optional<std::uint64_t>(it->get<std::uint64_t>());
}

Result<HubFile> parse_sibling(const Json& value) {
  const auto name = value.is_object() ? value.find("rfilename") : value.end();
  if (name == value.end() || !name->is_string()) {
    return fail(ErrorCode::kCorruptData,
                "hub answer: an entry of \"siblings\" has no \"rfilename\"");
  }
  HubFile file;
  file.name = name->get<std::string>();
  if (Status valid = check_file_name(file.name); !valid.has_value()) {
    return tl::unexpected(std::move(valid).error().with_context("hub answer"));
  }
  TRINE_TRY_ASSIGN(file.size, size_of(value, "size", file.name));
  const auto lfs = value.find("lfs");
  if (lfs == value.end() || lfs->is_null()) {
    return file;
  }
  if (!lfs->is_object()) {
    return fail(ErrorCode::kCorruptData, "hub answer: \"lfs\" of {} is not an object", file.name);
  }
  TRINE_TRY_ASSIGN(const std::optional<std::uint64_t> lfs_size, size_of(*lfs, "size", file.name));
  if (file.size.has_value() && lfs_size.has_value() && *file.size != *lfs_size) {
    return fail(ErrorCode::kCorruptData, "hub answer: {} has two sizes, {} and {} bytes", file.name,
                *file.size, *lfs_size);
  }
  if (!file.size.has_value()) {
    file.size = lfs_size;
  }
  if (const auto sha = lfs->find("sha256"); sha != lfs->end() && !sha->is_null()) {
    if (!sha->is_string() || !is_sha256_hex(sha->get_ref<const std::string&>())) {
      return fail(ErrorCode::kCorruptData, "hub answer: sha256 of {} is not 64 hex digits",
                  file.name);
    }
    file.sha256 = to_lower_ascii(sha->get_ref<const std::string&>());
  }
  return file;
}

std::string license_of(const Json& value) {
  if (const auto card = value.find("cardData"); card != value.end() && card->is_object()) {
    if (const auto license = card->find("license");
        license != card->end() && license->is_string()) {
      return license->get<std::string>();
    }
  }
  if (const auto tags = value.find("tags"); tags != value.end() && tags->is_array()) {
    for (const Json& tag : *tags) {
      if (tag.is_string() && tag.get_ref<const std::string&>().starts_with("license:")) {
        return tag.get_ref<const std::string&>().substr(8);
      }
    }
  }
  return "";
}

std::string list_names(const HubRepo& repo, bool (*wanted)(std::string_view)) {
  std::string out;
  std::size_t listed = 0;
  for (const HubFile& file : repo.files) {
    if (!wanted(file.name)) {
      continue;
    }
    if (listed++ == kMaxListed) {
      out += ", ...";
      break;
    }
    out += (out.empty() ? "" : ", ") + file.name;
    if (file.size.has_value()) {
      out += fmt::format(" ({})", format_bytes(*file.size));
    }
  }
  return out.empty() ? "none" : out;
}

const HubFile* find_file(const HubRepo& repo, std::string_view name) {
  const auto it = std::find_if(repo.files.begin(), repo.files.end(),
                               [name](const HubFile& file) { return file.name == name; });
  return it == repo.files.end() ? nullptr : &*it;
}

Result<HubSelection> select_one(const HubRepo& repo, std::string_view file) {
  const bool gguf = file.ends_with(".gguf");
  if (!gguf && !file.ends_with(".safetensors")) {
    return fail(ErrorCode::kInvalidArgument,
                "FILE \"{}\" is no weight file: name a .gguf or a .safetensors", file);
  }
  const HubFile* found = find_file(repo, file);
  if (found == nullptr) {
    return fail(ErrorCode::kNotFound, "the repository has no file \"{}\"; weight files there: {}",
                file, list_names(repo, [](std::string_view name) {
                  return name.ends_with(".gguf") || name.ends_with(".safetensors");
                }));
  }
  HubSelection out;
  if (gguf) {
    if (is_split_gguf(file)) {
      return fail(ErrorCode::kUnsupported,
                  "{} is one part of a split GGUF, which cannot be opened: choose an unsplit file, "
                  "or join the parts with "
                  "`llama-gguf-split --merge` and `trine pull ./joined.gguf`",
                  file);
    }
    out.format = "gguf";
    out.entry = file;
  } else {
    out.format = "safetensors";
    out.entry = ".";
    std::copy_if(repo.files.begin(), repo.files.end(), std::back_inserter(out.files),
                 [](const HubFile& other) { return is_companion(other.name); });
  }
  out.files.push_back(*found);
  return out;
}

}  // namespace

bool is_split_gguf(std::string_view name) {
  if (!name.ends_with(".gguf")) {
    return false;
  }
  name.remove_suffix(5);
  // -00001-of-00003
  if (name.size() < 15) {
    return false;
  }
  const std::string_view tail = name.substr(name.size() - 15);
  const auto digits = [](std::string_view text) {
    return text.find_first_not_of("0123456789") == std::string_view::npos;
  };
  return tail[0] == '-' && digits(tail.substr(1, 5)) && tail.substr(6, 4) == "-of-" &&
         digits(tail.substr(10));
}

Result<HubRepo> parse_hub_repo(std::string_view json) {
  TRINE_TRY_ASSIGN(const Json value, parse_json(json));
  if (!value.is_object()) {
    return fail(ErrorCode::kCorruptData, "hub answer: not a JSON object");
  }
  HubRepo out;
  if (const auto sha = value.find("sha"); sha != value.end() && sha->is_string()) {
    out.commit = sha->get<std::string>();
    // It becomes a part of URLs.
    if (out.commit.empty() || out.commit.size() > 64 ||
        out.commit.find_first_not_of("0123456789abcdef") != std::string::npos) {
      return fail(ErrorCode::kCorruptData, "hub answer: \"sha\" is not a commit");
    }
  }
  out.license = license_of(value);
  const auto siblings = value.find("siblings");
  if (siblings == value.end() || !siblings->is_array()) {
    return fail(ErrorCode::kCorruptData, "hub answer: \"siblings\" is missing or not an array");
  }
  if (siblings->size() > kMaxHubFiles) {
    return fail(ErrorCode::kExhausted, "hub answer: {} files, at most {}", siblings->size(),
                kMaxHubFiles);
  }
  std::set<std::string, std::less<>> names;
  for (const Json& item : *siblings) {
    TRINE_TRY_ASSIGN(HubFile file, parse_sibling(item));
    if (!names.insert(file.name).second) {
      return fail(ErrorCode::kCorruptData, "hub answer: file {} listed twice", file.name);
    }
    out.files.push_back(std::move(file));
  }
  return out;
}

Result<HubSelection> select_files(const HubRepo& repo, std::string_view file) {
  if (!file.empty()) {
    return select_one(repo, file);
  }
  const auto is_weight = [](const HubFile& other) {
    return is_root(other.name) && other.name.ends_with(".safetensors");
  };
  const bool any_weights = std::any_of(repo.files.begin(), repo.files.end(), is_weight);
  const auto gguf = [](std::string_view name) { return name.ends_with(".gguf"); };
  if (!any_weights) {
    if (std::any_of(repo.files.begin(), repo.files.end(),
                    [&gguf](const HubFile& f) { return gguf(f.name); })) {
      return fail(ErrorCode::kInvalidArgument,
                  "the repository holds GGUF files only: name one with :FILE, of {}",
                  list_names(repo, gguf));
    }
    return fail(ErrorCode::kNotFound,
                "the repository has no .safetensors file in its root and no .gguf; files there: {}",
                list_names(repo, [](std::string_view) { return true; }));
  }
  if (find_file(repo, "config.json") == nullptr) {
    return fail(ErrorCode::kNotFound,
                "the repository has weights but no config.json, so its architecture is unknown");
  }
  HubSelection out;
  out.format = "safetensors";
  out.entry = ".";
  std::copy_if(repo.files.begin(), repo.files.end(), std::back_inserter(out.files),
               [](const HubFile& other) { return is_companion(other.name); });
  const HubFile* single = find_file(repo, "model.safetensors");
  if (const HubFile* index = find_file(repo, kIndex); index != nullptr) {
    out.index = kIndex;
    out.files.push_back(*index);
  } else if (single != nullptr) {
    // Repositories often carry the same weights again in another spelling
    // (consolidated.safetensors).
    out.files.push_back(*single);
  } else {
    std::copy_if(repo.files.begin(), repo.files.end(), std::back_inserter(out.files), is_weight);
  }
  return out;
}

Result<std::vector<std::string>> shards_of_index(std::string_view json) {
  TRINE_TRY_ASSIGN(const Json value, parse_json(json));
  const auto map = value.is_object() ? value.find("weight_map") : value.end();
  if (map == value.end() || !map->is_object() || map->empty()) {
    return fail(ErrorCode::kCorruptData, "{}: \"weight_map\" is missing or empty", kIndex);
  }
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : map->items()) {
    if (!shard.is_string()) {
      return fail(ErrorCode::kCorruptData, "{}: the shard of tensor {} is not a string", kIndex,
                  tensor.substr(0, 120));
    }
    const auto& name = shard.get_ref<const std::string&>();
    if (Status valid = check_file_name(name); !valid.has_value()) {
      return tl::unexpected(std::move(valid).error().with_context(kIndex));
    }
    if (!name.ends_with(".safetensors")) {
      return fail(ErrorCode::kCorruptData, "{}: shard \"{}\" is no .safetensors file", kIndex,
                  name);
    }
    shards.insert(name);
  }
  return std::vector<std::string>(shards.begin(), shards.end());
}

Status add_shards(const HubRepo& repo, const std::vector<std::string>& shards,
                  HubSelection& selection) {
  for (const std::string& shard : shards) {
    const HubFile* file = find_file(repo, shard);
    if (file == nullptr) {
      return fail(ErrorCode::kCorruptData,
                  "{} names shard \"{}\", which the repository does not hold", kIndex, shard);
    }
    selection.files.push_back(*file);
  }
  return {};
}

}  // namespace trine::hub
