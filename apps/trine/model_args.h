// What commands that open a model share: the rows of the option table they take, the MODEL
// argument, the model's own sampling defaults. Thread rule: main thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "apps/trine/command.h"
#include "apps/trine/models.h"
#include "engine/bundle.h"

namespace trine::app {

inline constexpr Positional kModelArgument = {
    .name = "MODEL",
    .help = "name of a pulled model, a .gguf file, or a directory with safetensors"};

// Rows of every command that loads a model: where models are, threads, ctx, kv, isa.
std::vector<std::string_view> model_options();
// temperature, top-p, ..., stop, seed.
std::vector<std::string_view> sampling_options();
std::vector<std::string_view> joined(std::vector<std::string_view> a,
                                     const std::vector<std::string_view>& b);

// The text side of the model that the first argument names.
Result<std::shared_ptr<const ModelText>> load_model_text(const CommandContext& context);

// Chooses the instruction set of --isa. Errors: invalid_argument when the machine lacks it.
Status apply_isa(const options::Settings& settings);

// Lays the model's generation_config under the user's own values. Errors: corrupt_data for a value
// out of range that would be used.
Status apply_generation_defaults(const GenerationDefaults& defaults, options::Settings& settings);

// The values of --kv and --activations.
DType kv_type(std::string_view name);
Model::LoadOptions::Activations activations_type(std::string_view name);

DType kv_dtype(const options::Settings& settings);

// The load options that follow from --ctx.
Model::LoadOptions load_options(const options::Settings& settings);

}  // namespace trine::app
