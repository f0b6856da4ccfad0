#include "hub/reference.h"

#include <algorithm>

#include "hub/files.h"

namespace trine::hub {
namespace {

constexpr std::size_t kMaxNameBytes = 200;
constexpr std::string_view kPrefix = "hf:";
constexpr std::string_view kGrammar = "hf:ORG/REPO[@REVISION][:FILE]";

bool is_alnum(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool is_word(std::string_view text, std::string_view extra) {
  return std::all_of(text.begin(), text.end(), [extra](char c) {
    return is_alnum(c) || extra.find(c) != std::string_view::npos;
  });
}

// One half of ORG/REPO, by the hub's own rules for repository names.
Status check_repo_part(std::string_view part, std::string_view what, std::string_view text) {
  if (part.empty() || part.size() > 96 || !is_alnum(part.front()) || !is_word(part, "._-") ||
      part.find("..") != std::string_view::npos || part.find("--") != std::string_view::npos) {
    return fail(ErrorCode::kInvalidArgument, "\"{}\": {} \"{}\" is not a repository name; write {}",
                text, what, part, kGrammar);
  }
  return {};
}

Status check_revision(std::string_view revision, std::string_view text) {
  if (revision.empty() || revision.size() > 200 || !is_alnum(revision.front()) ||
      !is_word(revision, "._-/") || revision.find("..") != std::string_view::npos ||
      revision.find("//") != std::string_view::npos || revision.back() == '/') {
    return fail(ErrorCode::kInvalidArgument,
                "\"{}\": \"{}\" is not a revision (branch, tag or commit); write {}", text,
                revision, kGrammar);
  }
  return {};
}

}  // namespace

std::string HubReference::canonical() const {
  std::string text = std::string(kPrefix) + repo;
  if (revision != "main") {
    text += "@" + revision;
  }
  if (!file.empty()) {
    text += ":" + file;
  }
  return text;
}

std::string HubReference::default_name() const {
  std::string name = repo;
  name.replace(name.find('/'), 1, "--");
  if (revision != "main") {
    name += "@" + revision;
  }
  if (!file.empty()) {
    std::string_view stem = file;
    for (const std::string_view extension : {".gguf", ".safetensors"}) {
      if (stem.ends_with(extension)) {
        stem.remove_suffix(extension.size());
      }
    }
    name += "--";
    name += stem;
  }
  return sanitize_model_name(name);
}

ReferenceKind reference_kind(std::string_view text) {
  if (text.starts_with(kPrefix)) {
    return ReferenceKind::kHub;
  }
  const bool path = text.find('/') != std::string_view::npos || text.starts_with('.') ||
                    text.starts_with('~') || text.ends_with(".gguf");
  return path ? ReferenceKind::kPath : ReferenceKind::kName;
}

Result<HubReference> parse_hub_reference(std::string_view text) {
  if (!text.starts_with(kPrefix)) {
    return fail(ErrorCode::kInvalidArgument, "\"{}\": write {}", text, kGrammar);
  }
  std::string_view rest = text.substr(kPrefix.size());
  HubReference out;
  // Neither repository nor revision may hold a colon, so the first one starts the file.
  if (const std::size_t colon = rest.find(':'); colon != std::string_view::npos) {
    out.file = rest.substr(colon + 1);
    rest = rest.substr(0, colon);
    if (const Status valid = check_file_name(out.file); !valid.has_value()) {
      return fail(ErrorCode::kInvalidArgument, "\"{}\": {}; write {}", text, valid.error().message,
                  kGrammar);
    }
  }
  if (const std::size_t at = rest.find('@'); at != std::string_view::npos) {
    out.revision = rest.substr(at + 1);
    rest = rest.substr(0, at);
    TRINE_TRY(check_revision(out.revision, text));
  }
  const std::size_t slash = rest.find('/');
  if (slash == std::string_view::npos) {
    return fail(ErrorCode::kInvalidArgument, "\"{}\": no ORG before \"{}\"; write {}", text, rest,
                kGrammar);
  }
  TRINE_TRY(check_repo_part(rest.substr(0, slash), "ORG", text));
  TRINE_TRY(check_repo_part(rest.substr(slash + 1), "REPO", text));
  out.repo = rest;
  return out;
}

Status check_model_name(std::string_view name) {
  if (name.empty() || name.size() > kMaxNameBytes || !is_alnum(name.front()) ||
      !is_word(name, "._-@") || name.ends_with(".gguf")) {
    return fail(ErrorCode::kInvalidArgument,
                "\"{}\" is not a model name: letters, digits and . _ - @, first a letter or digit, "
                "at most {} bytes, "
                "not ending in .gguf",
                name.substr(0, 120), kMaxNameBytes);
  }
  return {};
}

std::string sanitize_model_name(std::string_view text) {
  std::string name;
  for (const char c : text) {
    const bool keep = is_alnum(c) || c == '.' || c == '_' || c == '-' || c == '@';
    name += keep ? c : '-';
  }
  name.erase(0, std::min(name.find_first_not_of("._-@"), name.size()));
  name.resize(std::min(name.size(), kMaxNameBytes));
  while (name.ends_with(".gguf")) {
    name.resize(name.size() - 5);
  }
  return name.empty() ? "model" : name;
}

}  // namespace trine::hub
