#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "hub/reference.h"
#include "hub/store.h"

namespace trine::hub {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchema = 1;

Result<std::string> string_field(const Json& object, const char* key) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_string()) {
    return fail(ErrorCode::kCorruptData, "manifest: \"{}\" is missing or not a string", key);
  }
  return it->get<std::string>();
}

Result<StoredFile> file_from_json(const Json& value) {
  if (!value.is_object()) {
    return fail(ErrorCode::kCorruptData, "manifest: an entry of \"files\" is not an object");
  }
  StoredFile file;
  TRINE_TRY_ASSIGN(file.name, string_field(value, "name"));
  TRINE_TRY(check_file_name(file.name));
  TRINE_TRY_ASSIGN(file.sha256, string_field(value, "sha256"));
  if (!is_sha256_hex(file.sha256)) {
    return fail(ErrorCode::kCorruptData, "manifest: sha256 of {} is not 64 hex digits", file.name);
  }
  const auto size = value.find("size");
  if (size == value.end() || !size->is_number_unsigned()) {
    return fail(ErrorCode::kCorruptData, "manifest: size of {} is missing or not a whole number",
                file.name);
  }
  file.size = size->get<std::uint64_t>();
  return file;
}

Result<License> license_from_json(const Json& value) {
  License license;
  if (!value.is_object()) {
    return fail(ErrorCode::kCorruptData, "manifest: \"license\" is not an object");
  }
  TRINE_TRY_ASSIGN(license.id, string_field(value, "id"));
  TRINE_TRY_ASSIGN(license.url, string_field(value, "url"));
  const auto files = value.find("files");
  if (files == value.end() || !files->is_array()) {
    return fail(ErrorCode::kCorruptData, "manifest: license \"files\" is missing or not an array");
  }
  for (const Json& name : *files) {
    if (!name.is_string()) {
      return fail(ErrorCode::kCorruptData, "manifest: a license file name is not a string");
    }
    TRINE_TRY(check_file_name(name.get_ref<const std::string&>()));
    license.files.push_back(name.get<std::string>());
  }
  return license;
}

}  // namespace

std::uint64_t Manifest::total_bytes() const {
  std::uint64_t total = 0;
  for (const StoredFile& file : files) {
    total += file.size;
  }
  return total;
}

std::string manifest_to_json(const Manifest& manifest) {
  Json files = Json::array();
  for (const StoredFile& file : manifest.files) {
    files.push_back({{"name", file.name}, {"size", file.size}, {"sha256", file.sha256}});
  }
  const Json value = {
      {"schema", kSchema},
      {"name", manifest.name},
      {"source", manifest.source},
      {"revision", manifest.revision},
      {"format", manifest.format},
      {"entry", manifest.entry},
      {"license",
       {{"id", manifest.license.id},
        {"url", manifest.license.url},
        {"files", manifest.license.files}}},
      {"created_unix_s", manifest.created_unix_s},
      {"files", files},
  };
  // Local paths may hold bytes that are not UTF-8; they are shown replaced rather than refused.
  return value.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<Manifest> manifest_from_json(std::string_view text) {
  TRINE_TRY_ASSIGN(const Json value, parse_json(text));
  if (!value.is_object()) {
    return fail(ErrorCode::kCorruptData, "manifest: not a JSON object");
  }
  const auto schema = value.find("schema");
  if (schema == value.end() || !schema->is_number_integer() ||
      schema->get<std::int64_t>() != kSchema) {
    return fail(ErrorCode::kUnsupported,
                "manifest: \"schema\" is not {}: written by another version of trine", kSchema);
  }
  Manifest out;
  TRINE_TRY_ASSIGN(out.name, string_field(value, "name"));
  TRINE_TRY(check_model_name(out.name));
  TRINE_TRY_ASSIGN(out.source, string_field(value, "source"));
  TRINE_TRY_ASSIGN(out.revision, string_field(value, "revision"));
  TRINE_TRY_ASSIGN(out.format, string_field(value, "format"));
  TRINE_TRY_ASSIGN(out.entry, string_field(value, "entry"));
  const auto license = value.find("license");
  if (license == value.end()) {
    return fail(ErrorCode::kCorruptData, "manifest: \"license\" is missing");
  }
  TRINE_TRY_ASSIGN(out.license, license_from_json(*license));
  const auto created = value.find("created_unix_s");
  if (created == value.end() || !created->is_number_integer()) {
    return fail(ErrorCode::kCorruptData,
                "manifest: \"created_unix_s\" is missing or not a whole number");
  }
  out.created_unix_s = created->get<std::int64_t>();
  const auto files = value.find("files");
  if (files == value.end() || !files->is_array() || files->empty()) {
    return fail(ErrorCode::kCorruptData, "manifest: \"files\" is missing or empty");
  }
  std::set<std::string> names;
  for (const Json& entry : *files) {
    TRINE_TRY_ASSIGN(StoredFile file, file_from_json(entry));
    if (!names.insert(file.name).second) {
      return fail(ErrorCode::kCorruptData, "manifest: file {} listed twice", file.name);
    }
    out.files.push_back(std::move(file));
  }
  if (out.entry != "." && !names.contains(out.entry)) {
    return fail(ErrorCode::kCorruptData, "manifest: entry \"{}\" is none of its files", out.entry);
  }
  return out;
}

}  // namespace trine::hub
