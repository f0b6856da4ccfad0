// trine show: what a model is made of and what it needs.
#include <algorithm>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "apps/trine/command.h"
#include "apps/trine/describe.h"
#include "apps/trine/model_args.h"
#include "apps/trine/models.h"
#include "base/printable.h"
#include "hub/reference.h"

namespace trine::app {

namespace {

using Json = nlohmann::ordered_json;

// The store's record when the argument names a stored model.
Result<std::optional<hub::Manifest>> stored(const hub::Store& store, const std::string& argument) {
  if (hub::reference_kind(argument) == hub::ReferenceKind::kHub) {
    TRINE_TRY_ASSIGN(const hub::HubReference reference, hub::parse_hub_reference(argument));
    return store.find_source(reference.canonical());
  }
  if (!hub::check_model_name(argument).has_value()) {
    return std::optional<hub::Manifest>();
  }
  return store.find(argument);
}

void line(std::string_view name, std::string_view value) {
  write_out(fmt::format("{:<20} {}\n", name, value));
}

std::string param_text(std::int64_t count) {
  const auto value = static_cast<double>(count);
  if (count >= 1'000'000'000) {
    return fmt::format("{:.2f} B", value / 1e9);
  }
  return count >= 1'000'000 ? fmt::format("{:.1f} M", value / 1e6) : fmt::format("{}", count);
}

std::string layers_text(const ModelConfig& config) {
  std::string text =
      fmt::format("{} layers, width {}, {} heads over {} kv heads of {}", config.num_layers,
                  config.embed_dim, config.num_heads, config.num_kv_heads, config.head_dim);
  if (config.ffn_dim > 0) {
    text += fmt::format(", mlp {}", config.ffn_dim);
  }
  if (config.moe.has_value()) {
    text += fmt::format(", {} experts of {}, {} per token", config.moe->num_experts,
                        config.moe->ffn_dim, config.moe->experts_per_token);
  }
  const auto windowed = std::count_if(config.layers.begin(), config.layers.end(),
                                      [](const LayerConfig& layer) { return layer.window > 0; });
  if (windowed > 0) {
    const auto first = std::find_if(config.layers.begin(), config.layers.end(),
                                    [](const LayerConfig& layer) { return layer.window > 0; });
    text += fmt::format(", {} layers see {} tokens", windowed, first->window);
  }
  return text;
}

void print_types(const ModelDescription& model) {
  std::size_t width = 8;
  for (const TypeTotal& type : model.types) {
    width = std::max(width, type.name.size());
  }
  write_out(fmt::format("  {:<{}} {:>7}  {:>14}  {:>10}  {:>6}\n", "type", width, "tensors",
                        "parameters", "bytes", "bits"));
  for (const TypeTotal& type : model.types) {
    const double bits = type.num_elems == 0 ? 0.0
                                            : static_cast<double>(type.bytes) * 8.0 /
                                                  static_cast<double>(type.num_elems);
    write_out(fmt::format("  {:<{}} {:>7}  {:>14}  {:>10}  {:>6.2f}\n", type.name, width,
                          type.num_tensors, type.num_elems, hub::format_bytes(type.bytes), bits));
  }
}

void print_memory(const MemoryTerms& memory) {
  write_out("memory (modelled from the dimensions)\n");
  const auto row = [](std::string_view name, std::uint64_t bytes) {
    write_out(fmt::format("  {:<34} {:>10}\n", name, hub::format_bytes(bytes)));
  };
  const std::string_view kv = dtype_info(memory.kv_dtype).name;
  row("weights, packed for the kernels", memory.packed_bytes);
  row("weights, mapped file", memory.mapped_bytes);
  row(fmt::format("KV cache per token, {}", kv), memory.kv_token_bytes);
  row(fmt::format("KV cache at {} tokens, {}", memory.context, kv), memory.kv_context_bytes);
  row(fmt::format("activations of a {}-token step", memory.step_tokens), memory.activation_bytes);
  row("logits per position", memory.logit_row_bytes);
  row(fmt::format("together at {} tokens", memory.context), memory.total_bytes);
}

void print_tensors(const ModelDescription& model) {
  write_out("tensors\n");
  std::size_t width = 0;
  for (const TensorInfo& tensor : model.checkpoint.weights().tensors()) {
    width = std::max(width, printable(tensor.name).size());
  }
  for (const TensorInfo& tensor : model.checkpoint.weights().tensors()) {
    write_out(fmt::format("  {:<{}}  {:<8} {:<16} {:>10}\n", printable(tensor.name), width,
                          dtype_info(tensor.dtype).name, shape_text(tensor.shape),
                          hub::format_bytes(tensor.data.size())));
  }
}

void print_text(const ModelDescription& model, const std::optional<hub::Manifest>& manifest,
                bool with_tensors) {
  if (manifest.has_value()) {
    line("name", manifest->name);
    line("source", manifest->source);
    if (!manifest->license.id.empty()) {
      line("licence", fmt::format("{} ({})", manifest->license.id, manifest->license.url));
    }
  }
  line("path", model.path);
  line("format", model.format);
  line("architecture",
       model.architecture.empty() ? "not named by the file" : printable(model.architecture));
  if (model.config.has_value()) {
    line("", layers_text(*model.config));
  } else {
    line("cannot run", model.unsupported.message);
  }
  line("parameters", param_text(model.num_params));
  line("weights", fmt::format("{}, {:.2f} bits per weight", hub::format_bytes(model.weight_bytes),
                              model.bits_per_weight()));
  print_types(model);
  if (model.config.has_value()) {
    line("context", fmt::format("{} tokens", model.config->context_length));
    line("vocabulary", fmt::format("{}", model.config->vocab_size));
  }
  line("tokenizer", model.tokenizer.empty() ? "none" : printable(model.tokenizer));
  std::string templates;
  for (const ChatTemplateText& entry : model.templates) {
    templates += (templates.empty() ? "yes: " : ", ") + printable(entry.name);
  }
  line("chat template", templates.empty() ? "no" : templates);
  if (model.memory.has_value()) {
    print_memory(*model.memory);
  }
  if (with_tensors) {
    print_tensors(model);
  }
}

Json config_json(const ModelConfig& config) {
  Json out = {{"family", config.family},
              {"num_layers", config.num_layers},
              {"embed_dim", config.embed_dim},
              {"ffn_dim", config.ffn_dim},
              {"num_heads", config.num_heads},
              {"num_kv_heads", config.num_kv_heads},
              {"head_dim", config.head_dim},
              {"vocab_size", config.vocab_size},
              {"context_length", config.context_length},
              {"tied_embeddings", config.tied_embeddings}};
  if (config.moe.has_value()) {
    out["num_experts"] = config.moe->num_experts;
    out["experts_per_token"] = config.moe->experts_per_token;
  }
  return out;
}

Json memory_json(const MemoryTerms& memory) {
  return {{"kind", "modelled"},
          {"context", memory.context},
          {"packed_bytes", memory.packed_bytes},
          {"mapped_bytes", memory.mapped_bytes},
          {"kv_dtype", dtype_info(memory.kv_dtype).name},
          {"kv_token_bytes", memory.kv_token_bytes},
          {"kv_context_bytes", memory.kv_context_bytes},
          {"step_tokens", memory.step_tokens},
          {"activation_bytes", memory.activation_bytes},
          {"logit_row_bytes", memory.logit_row_bytes},
          {"total_bytes", memory.total_bytes}};
}

Json description_json(const ModelDescription& model, const std::optional<hub::Manifest>& manifest,
                      bool with_tensors) {
  Json out = {{"path", model.path},
              {"format", model.format},
              {"architecture", model.architecture},
              {"parameters", model.num_params},
              {"weight_bytes", model.weight_bytes},
              {"bits_per_weight", model.bits_per_weight()}};
  if (manifest.has_value()) {
    out["name"] = manifest->name;
    out["source"] = manifest->source;
    out["license"] = manifest->license.id;
  }
  out["types"] = Json::array();
  for (const TypeTotal& type : model.types) {
    out["types"].push_back({{"type", type.name},
                            {"tensors", type.num_tensors},
                            {"parameters", type.num_elems},
                            {"bytes", type.bytes}});
  }
  out["tokenizer"] = model.tokenizer.empty() ? Json(nullptr) : Json(model.tokenizer);
  out["chat_templates"] = Json::array();
  for (const ChatTemplateText& entry : model.templates) {
    out["chat_templates"].push_back(entry.name);
  }
  out["config"] = model.config.has_value() ? config_json(*model.config) : Json(nullptr);
  if (!model.config.has_value()) {
    out["cannot_run"] = {{"code", error_code_name(model.unsupported.code)},
                         {"message", model.unsupported.message}};
  }
  out["memory"] = model.memory.has_value() ? memory_json(*model.memory) : Json(nullptr);
  if (with_tensors) {
    out["tensors"] = Json::array();
    for (const TensorInfo& tensor : model.checkpoint.weights().tensors()) {
      out["tensors"].push_back({{"name", tensor.name},
                                {"type", dtype_info(tensor.dtype).name},
                                {"shape", tensor.shape},
                                {"bytes", tensor.data.size()}});
    }
  }
  return out;
}

// A file's text must not steer the terminal; into a file or pipe it goes unchanged.
std::string for_terminal(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool control = (byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7F;
    out += control ? fmt::format("\\x{:02x}", byte) : std::string(1, c);
  }
  return out;
}

Result<int> print_template(const CommandContext& context, const ModelDescription& model) {
  if (model.templates.empty()) {
    return fail(ErrorCode::kNotFound, "{} has no chat template", model.path);
  }
  if (context.json()) {
    Json out = Json::object();
    for (const ChatTemplateText& entry : model.templates) {
      out[entry.name] = entry.source;
    }
    context.print_json(out);
    return 0;
  }
  const bool terminal = ::isatty(STDOUT_FILENO) == 1;
  // One template is printed alone, so that it can be saved to a file; several are told apart.
  for (const ChatTemplateText& entry : model.templates) {
    if (model.templates.size() > 1) {
      write_out(fmt::format("==> {} <==\n", printable(entry.name)));
    }
    write_out(terminal ? for_terminal(entry.source) : entry.source);
    write_out(entry.source.ends_with('\n') ? "" : "\n");
  }
  return 0;
}

Result<int> run_show(CommandContext& context) {
  const options::Settings& settings = context.settings();
  TRINE_TRY_ASSIGN(const hub::Store store, open_store(settings));
  TRINE_TRY_ASSIGN(const std::string path, store.resolve(context.argument(0)));
  TRINE_TRY_ASSIGN(const std::optional<hub::Manifest> manifest, stored(store, context.argument(0)));
  const MemoryOptions memory = {.context = settings.maybe_integer("ctx").value_or(0),
                                .kv_dtype = kv_dtype(settings),
                                .packs_weights = settings.text("activations") == "int8"};
  TRINE_TRY_ASSIGN(const ModelDescription model, describe_model(path, memory));
  if (settings.flag("template")) {
    return print_template(context, model);
  }
  if (context.json()) {
    context.print_json(description_json(model, manifest, settings.flag("tensors")));
  } else {
    print_text(model, manifest, settings.flag("tensors"));
  }
  return 0;
}

}  // namespace

extern const Command kShowCommand;
const Command kShowCommand = {
    .name = "show",
    .group = "models",
    .summary = "Describe a model: architecture, tensors, memory",
    .positionals = {{.name = "MODEL",
                     .help = "name of a pulled model, a .gguf file, or a directory with "
                             "safetensors"}},
    .options = with_store_options({"tensors", "template", "ctx", "kv", "activations"}),
    .details =
        "Reads the files' headers only, and also describes models that cannot be run, with the\n"
        "reason. --ctx, --kv and --activations set what the memory is computed for, as in trine "
        "run.",
    .run = run_show,
};

}  // namespace trine::app
