#include <chrono>
#include <filesystem>
#include <utility>

#include "base/log.h"
#include "format/open.h"
#include "model/config_sources.h"
#include "model/decoder.h"
#include "model/decoder_parts.h"
#include "model/pack_weights.h"

namespace trine {
namespace {

Result<ModelConfig> read_config(const std::string& path, const OpenedCheckpoint& checkpoint) {
  if (checkpoint.gguf.has_value()) {
    auto config = model_config_from_gguf(*checkpoint.gguf);
    if (!config.has_value()) {
      return tl::unexpected<Error>(std::move(config).error().with_context(path));
    }
    return config;
  }
  const std::filesystem::path given(path);
  return model_config_from_folder(std::filesystem::is_directory(given) ? given
                                                                       : given.parent_path());
}

void log_load(const std::string& path, const OpenedCheckpoint& checkpoint,
              const ModelConfig& config, std::chrono::steady_clock::time_point start) {
  std::size_t bytes = 0;
  for (const TensorInfo& tensor : checkpoint.weights().tensors()) {
    bytes += tensor.data.size();
  }
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  log::debug(
      "loaded {}: {}, {} with {} layers, {} tensors of {} bytes, context of {} tokens, {:.1f} ms",
      path,
      checkpoint.gguf.has_value() ? fmt::format("GGUF v{}", checkpoint.gguf->version)
                                  : std::string("safetensors"),
      config.family, config.num_layers, checkpoint.weights().tensors().size(), bytes,
      config.context_length, took.count());
}

}  // namespace

Result<DecoderParts> open_decoder(const std::string& path, std::int32_t max_context) {
  TRINE_TRY_ASSIGN(OpenedCheckpoint opened, open_checkpoint(path));
  DecoderParts out;
  out.checkpoint = std::make_shared<const OpenedCheckpoint>(std::move(opened));
  TRINE_TRY_ASSIGN(out.config, read_config(path, *out.checkpoint));
  if (max_context < 0 || max_context > out.config.context_length) {
    return fail(ErrorCode::kInvalidArgument, "--ctx (max_context) is {}, the model's context is {}",
                max_context, out.config.context_length);
  }
  if (max_context > 0) {
    out.config.context_length = max_context;
  }
  auto weights = out.checkpoint->kind == CheckpointKind::kGguf
                     ? bind_gguf_weights(out.checkpoint->weights(), out.config)
                     : bind_hf_weights(out.checkpoint->weights(), out.config);
  if (!weights.has_value()) {
    return tl::unexpected<Error>(std::move(weights).error().with_context(path));
  }
  out.weights = *std::move(weights);
  return out;
}

Result<std::shared_ptr<const Model>> Model::load(const std::string& path,
                                                 const LoadOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  TRINE_TRY_ASSIGN(DecoderParts parts, open_decoder(path, options.max_context));
  if (options.activations == LoadOptions::Activations::kInt8) {
    TRINE_TRY_ASSIGN(const auto team, ThreadTeam::create(options.num_threads));
    TRINE_TRY(pack_weights(parts.checkpoint->weights(), *team, parts.weights));
  }
  if (log::level() <= log::Level::kDebug) {
    log_load(path, *parts.checkpoint, parts.config, start);
  }
  return std::make_shared<const Decoder>(std::move(parts.config), std::move(parts.weights),
                                         std::move(parts.checkpoint));
}

}  // namespace trine
