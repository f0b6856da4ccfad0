#include "apps/trine/model_args.h"

#include <utility>

#include "options/value.h"
#include "platform/cpu.h"

namespace trine::app {

std::vector<std::string_view> model_options() {
  return with_store_options({"threads", "ctx", "kv", "activations", "isa"});
}

std::vector<std::string_view> sampling_options() {
  return {"max-tokens",
          "min-tokens",
          "temperature",
          "top-k",
          "top-p",
          "min-p",
          "typical-p",
          "repetition-penalty",
          "presence-penalty",
          "frequency-penalty",
          "logit-bias",
          "bad-words",
          "seed",
          "stop",
          "include-stop",
          "stop-ids",
          "ignore-eos"};
}

std::vector<std::string_view> joined(std::vector<std::string_view> a,
                                     const std::vector<std::string_view>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Result<std::shared_ptr<const ModelText>> load_model_text(const CommandContext& context) {
  TRINE_TRY_ASSIGN(const std::string path, model_path(context.settings(), context.argument(0)));
  TRINE_TRY_ASSIGN(ModelText text, ModelText::load(path));
  return std::make_shared<const ModelText>(std::move(text));
}

Status apply_isa(const options::Settings& settings) {
  if (settings.has("isa")) {
    TRINE_TRY_ASSIGN(const IsaLevel level, choose_isa_level(settings.text("isa"), cpu_features()));
    override_isa_level(level);
  }
  return {};
}

Status apply_generation_defaults(const GenerationDefaults& defaults, options::Settings& settings) {
  const auto apply = [&](std::string_view name, const auto& value) -> Status {
    if (!value.has_value() || settings.origin(name) > options::Origin::kModel) {
      return {};
    }
    const options::Value typed = *value;
    const std::string where = fmt::format("{}: {}", defaults.source, name);
    Status checked = options::check_range(*options::find_option(name), typed, where);
    if (!checked.has_value()) {
      return fail(ErrorCode::kCorruptData, "{}; --{} overrides it", checked.error().message, name);
    }
    settings.set(name, typed, options::Origin::kModel, defaults.source);
    return {};
  };
  TRINE_TRY(apply("temperature", defaults.temperature));
  TRINE_TRY(apply("top-k", defaults.top_k));
  TRINE_TRY(apply("top-p", defaults.top_p));
  TRINE_TRY(apply("min-p", defaults.min_p));
  TRINE_TRY(apply("repetition-penalty", defaults.repetition_penalty));
  return apply("max-tokens", defaults.max_tokens);
}

DType kv_type(std::string_view name) {
  return name == "f32"    ? DType::kF32
         : name == "bf16" ? DType::kBF16
         : name == "int8" ? DType::kI8
                          : DType::kF16;
}

DType kv_dtype(const options::Settings& settings) {
  return kv_type(settings.text("kv"));
}

Model::LoadOptions::Activations activations_type(std::string_view name) {
  return name == "f32" ? Model::LoadOptions::Activations::kF32
                       : Model::LoadOptions::Activations::kInt8;
}

Model::LoadOptions load_options(const options::Settings& settings) {
  Model::LoadOptions out;
  if (const auto ctx = settings.maybe_integer("ctx"); ctx.has_value()) {
    out.max_context = static_cast<std::int32_t>(*ctx);
  }
  out.activations = activations_type(settings.text("activations"));
  out.num_threads = static_cast<int>(settings.integer("threads"));
  return out;
}

}  // namespace trine::app
