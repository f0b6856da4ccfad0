// ModelText from the files beside safetensors weights.
#include <algorithm>
#include <cmath>
#include <utility>

#include <dirent.h>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/printable.h"
#include "engine/bundle.h"
#include "format/json_fields.h"
#include "platform/mapped_file.h"

namespace trine {

namespace {

using Json = nlohmann::ordered_json;

// A text file, or nullopt when there is none of that name.
Result<std::optional<std::string>> read_optional(const std::string& path) {
  auto file = MappedFile::open(path);
  if (!file.has_value()) {
    if (file.error().code == ErrorCode::kNotFound) {
      return std::nullopt;
    }
    return tl::unexpected(std::move(file).error());
  }
  const auto bytes = (*file)->bytes();
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

Result<Json> parse_object(const std::string& path, std::string_view text) {
  auto parsed = parse_json(text);
  if (!parsed.has_value()) {
    return tl::unexpected(std::move(parsed).error().with_context(path));
  }
  if (!parsed->is_object()) {
    return fail(ErrorCode::kCorruptData, "{}: a JSON object is expected", path);
  }
  return parsed;
}

// "bos_token" is a string, null, or an object with the string in "content".
std::string special_token(const Json& config, const char* key) {
  const auto found = config.find(key);
  if (found == config.end()) {
    return "";
  }
  if (found->is_string()) {
    return found->get<std::string>();
  }
  if (found->is_object() && found->contains("content") && (*found)["content"].is_string()) {
    return (*found)["content"].get<std::string>();
  }
  return "";
}

Result<std::optional<double>> optional_number(const std::string& path, const Json& config,
                                              const char* key) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) {
    return std::nullopt;
  }
  if (!found->is_number()) {
    return fail(ErrorCode::kCorruptData, "{}: {} is not a number", path, key);
  }
  return found->get<double>();
}

Result<std::optional<std::int64_t>> optional_whole(const std::string& path, const Json& config,
                                                   const char* key) {
  TRINE_TRY_ASSIGN(const std::optional<double> number, optional_number(path, config, key));
  if (!number.has_value()) {
    return std::nullopt;
  }
  constexpr double kMax = 9007199254740992.0;
  if (*number != std::floor(*number) || std::fabs(*number) > kMax) {
    return fail(ErrorCode::kCorruptData, "{}: {} is not a whole number", path, key);
  }
  return static_cast<std::int64_t>(*number);
}

Status read_eos_ids(const std::string& path, const Json& config, std::vector<std::int32_t>& out) {
  const auto found = config.find("eos_token_id");
  if (found == config.end() || found->is_null()) {
    return {};
  }
  const Json list = found->is_array() ? *found : Json::array({*found});
  for (const Json& id : list) {
    if (!id.is_number_integer() || id < 0 || id > INT32_MAX) {
      return fail(ErrorCode::kCorruptData,
                  "{}: eos_token_id is neither a token id nor a list of them", path);
    }
    out.push_back(id.get<std::int32_t>());
  }
  return {};
}

Result<GenerationDefaults> read_generation(const std::string& path, std::string_view text) {
  TRINE_TRY_ASSIGN(const Json config, parse_object(path, text));
  GenerationDefaults out;
  out.source = "generation_config.json";
  TRINE_TRY_ASSIGN(out.temperature, optional_number(path, config, "temperature"));
  TRINE_TRY_ASSIGN(out.top_k, optional_whole(path, config, "top_k"));
  TRINE_TRY_ASSIGN(out.top_p, optional_number(path, config, "top_p"));
  TRINE_TRY_ASSIGN(out.min_p, optional_number(path, config, "min_p"));
  TRINE_TRY_ASSIGN(out.repetition_penalty, optional_number(path, config, "repetition_penalty"));
  TRINE_TRY_ASSIGN(out.max_tokens, optional_whole(path, config, "max_new_tokens"));
  TRINE_TRY(read_eos_ids(path, config, out.eos_ids));
  return out;
}

// Names (without ".jinja") of the files in a directory, sorted; empty when there is no such
// directory.
std::vector<std::string> jinja_files(const std::string& directory) {
  std::vector<std::string> names;
  DIR* handle = ::opendir(directory.c_str());
  if (handle == nullptr) {
    return names;
  }
  while (const dirent* entry = ::readdir(handle)) {
    const std::string name = entry->d_name;
    if (name.size() > 6 && name.ends_with(".jinja")) {
      names.push_back(name.substr(0, name.size() - 6));
    }
  }
  ::closedir(handle);
  std::sort(names.begin(), names.end());
  return names;
}

// A chat_template value: one source, or several as a list of {"name", "template"} or by name.
Result<std::vector<std::pair<std::string, std::string>>> templates_of(const Json& value) {
  std::vector<std::pair<std::string, std::string>> out;
  if (value.is_string()) {
    out.emplace_back("default", value.get<std::string>());
  } else if (value.is_array()) {
    for (const Json& entry : value) {
      if (entry.is_object() && entry.contains("name") && entry["name"].is_string() &&
          entry.contains("template") && entry["template"].is_string()) {
        out.emplace_back(entry["name"].get<std::string>(), entry["template"].get<std::string>());
      } else {
        return fail(ErrorCode::kCorruptData,
                    "an entry is {}, wanted an object with the strings \"name\" and \"template\"",
                    show_json(entry));
      }
    }
  } else if (value.is_object()) {
    for (const auto& [name, source] : value.items()) {
      if (!source.is_string()) {
        return fail(ErrorCode::kCorruptData, "template {} is {}, wanted a string", printable(name),
                    show_json(source));
      }
      out.emplace_back(name, source.get<std::string>());
    }
  } else if (!value.is_null()) {
    return fail(ErrorCode::kCorruptData, "is {}, wanted a string or a list of templates",
                show_json(value));
  }
  return out;
}

}  // namespace

Status ModelText::load_directory(const std::string& directory) {
  const std::string base = directory.ends_with('/') ? directory : directory + "/";
  const std::string tokenizer_path = base + "tokenizer.json";
  const std::string config_path = base + "tokenizer_config.json";
  TRINE_TRY_ASSIGN(const std::optional<std::string> tokenizer_text, read_optional(tokenizer_path));
  TRINE_TRY_ASSIGN(const std::optional<std::string> config_text, read_optional(config_path));
  Json config = Json::object();
  if (config_text.has_value()) {
    TRINE_TRY_ASSIGN(config, parse_object(config_path, *config_text));
    bos_token_ = special_token(config, "bos_token");
    eos_token_ = special_token(config, "eos_token");
  }
  if (tokenizer_text.has_value()) {
    auto tokenizer = text::Tokenizer::from_json(*tokenizer_text, config_text.value_or(""));
    if (!tokenizer.has_value()) {
      tokenizer = tl::unexpected(std::move(tokenizer).error().with_context(tokenizer_path));
    }
    set_tokenizer(std::move(tokenizer));
  } else {
    tokenizer_error_ =
        Error{ErrorCode::kUnsupported,
              fmt::format("{}: no such file, so the model has no tokenizer; only token ids work",
                          tokenizer_path)};
  }

  // A value of another kind is an error when a template is needed, not a model without one.
  const auto add_templates = [this](const Json& value, const std::string& where) {
    auto sources = templates_of(value);
    if (!sources.has_value()) {
      if (templates_.empty()) {
        templates_.push_back(
            {"default", "", tl::unexpected(std::move(sources).error().with_context(where))});
      }
      return;
    }
    for (const auto& [name, source] : *sources) {
      add_template(name, source, where);
    }
  };
  // In falling precedence, as the transformers library reads them.
  TRINE_TRY_ASSIGN(const std::optional<std::string> jinja,
                   read_optional(base + "chat_template.jinja"));
  if (jinja.has_value()) {
    add_template("default", *jinja, base + "chat_template.jinja");
  }
  for (const std::string& name : jinja_files(base + "additional_chat_templates")) {
    const std::string path = fmt::format("{}additional_chat_templates/{}.jinja", base, name);
    TRINE_TRY_ASSIGN(const std::optional<std::string> source, read_optional(path));
    add_template(name, source.value_or(""), path);
  }
  if (config.contains("chat_template")) {
    add_templates(config["chat_template"], config_path + ": chat_template");
  }
  const std::string old_path = base + "chat_template.json";
  TRINE_TRY_ASSIGN(const std::optional<std::string> old_text, read_optional(old_path));
  if (old_text.has_value()) {
    TRINE_TRY_ASSIGN(const Json old, parse_object(old_path, *old_text));
    if (old.contains("chat_template")) {
      add_templates(old["chat_template"], old_path);
    }
  }

  const std::string generation_path = base + "generation_config.json";
  TRINE_TRY_ASSIGN(const std::optional<std::string> generation_text,
                   read_optional(generation_path));
  if (generation_text.has_value()) {
    TRINE_TRY_ASSIGN(generation_, read_generation(generation_path, *generation_text));
  }
  return {};
}

}  // namespace trine
