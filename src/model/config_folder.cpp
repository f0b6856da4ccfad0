// The files of a Hugging Face model directory that say what its weights mean.
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "format/hf_config.h"
#include "model/config_sources.h"

namespace trine {
namespace {

constexpr std::uintmax_t kMaxConfigBytes = std::uintmax_t{4} << 20;

Result<std::string> read_config_file(const std::filesystem::path& path) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error) {
    return fail(ErrorCode::kCorruptData, "no config.json beside the weights: {}", path.string());
  }
  if (size > kMaxConfigBytes) {
    return fail(ErrorCode::kCorruptData, "{}: {} bytes, at most {}", path.string(), size,
                kMaxConfigBytes);
  }
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (file.bad()) {
    return fail(ErrorCode::kUnavailable, "cannot read {}", path.string());
  }
  return text;
}

// The parsers know keys; which file they are of is known here.
template <typename T>
Result<T> in_file(const std::filesystem::path& file, Result<T> result) {
  if (!result.has_value()) {
    return tl::unexpected<Error>(std::move(result).error().with_context(file.string()));
  }
  return result;
}

Result<std::optional<QuantConfig>> read_older_file(const std::filesystem::path& file,
                                                   StoredMethod method) {
  std::error_code error;
  if (!std::filesystem::exists(file, error)) {
    return std::optional<QuantConfig>();
  }
  TRINE_TRY_ASSIGN(const std::string text, read_config_file(file));
  TRINE_TRY_ASSIGN(QuantConfig config, in_file(file, parse_quant_config_file(text, method)));
  return std::optional(std::move(config));
}

}  // namespace

Result<ModelConfig> model_config_from_folder(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "config.json";
  TRINE_TRY_ASSIGN(const std::string text, read_config_file(file));
  TRINE_TRY_ASSIGN(const HfConfig hf, in_file(file, parse_hf_config(text)));
  TRINE_TRY_ASSIGN(ModelConfig config, in_file(file, model_config_from_hf(hf)));
  if (!config.quantization.has_value()) {
    TRINE_TRY_ASSIGN(config.quantization,
                     read_older_file(folder / "quantize_config.json", StoredMethod::kGptq));
  }
  if (!config.quantization.has_value()) {
    TRINE_TRY_ASSIGN(config.quantization,
                     read_older_file(folder / "quant_config.json", StoredMethod::kAwq));
  }
  return config;
}

}  // namespace trine
