#include "eval/provenance.h"

#include <filesystem>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "format/open.h"
#include "hub/files.h"

namespace trine::eval {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t kMaxBytes = 16U << 20;

tl::unexpected<Error> bad(std::string_view field) {
  return fail(ErrorCode::kCorruptData,
              "the record of the quantization: \"calibration\": \"{}\" is missing or of another "
              "type",
              field);
}

bool has_text(const Json& object, const char* field) {
  return object.is_object() && object.contains(field) && object[field].is_string();
}

}  // namespace

Result<CalibrationOrigin> parse_calibration_origin(std::string_view json) {
  TRINE_TRY_ASSIGN(const Json record, parse_json(json, JsonLimits{.max_bytes = kMaxBytes}));
  CalibrationOrigin out;
  if (!record.is_object() || !record.contains("calibration")) {
    return out;
  }
  const Json& calibration = record["calibration"];
  if (!has_text(calibration, "hash")) {
    return bad("hash");
  }
  out.hash = calibration["hash"].get<std::string>();
  if (!calibration.contains("files") || !calibration["files"].is_array()) {
    return bad("files");
  }
  for (const Json& file : calibration["files"]) {
    if (!has_text(file, "file") || !has_text(file, "sha256")) {
      return bad("files");
    }
    out.files.push_back({file["file"].get<std::string>(), file["sha256"].get<std::string>()});
  }
  return out;
}

Result<CalibrationOrigin> calibration_origin(const std::string& model_path) {
  namespace fs = std::filesystem;
  TRINE_TRY_ASSIGN(const CheckpointKind kind, detect_checkpoint(model_path));
  if (kind == CheckpointKind::kGguf) {
    TRINE_TRY_ASSIGN(const OpenedCheckpoint opened, open_checkpoint(model_path));
    const GgufValue* value = opened.gguf->metadata.find("trine.quantization");
    const auto* text = value == nullptr ? nullptr : std::get_if<std::string>(value);
    return text == nullptr ? Result<CalibrationOrigin>(CalibrationOrigin{})
                           : parse_calibration_origin(*text);
  }
  const fs::path path(model_path);
  std::error_code error;
  const fs::path file =
      (fs::is_directory(path, error) ? path : path.parent_path()) / "trine_quantization.json";
  if (!fs::exists(file, error)) {
    return CalibrationOrigin{};
  }
  TRINE_TRY_ASSIGN(const std::string text, hub::read_small_file(file, kMaxBytes));
  return parse_calibration_origin(text);
}

}  // namespace trine::eval
