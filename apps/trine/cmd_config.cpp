// trine config show: the effective value of every option and where it came from.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "apps/trine/command.h"
#include "apps/trine/model_args.h"
#include "options/docs.h"
#include "options/option.h"
#include "server/openai/schema.h"

namespace trine::app {

namespace {

std::vector<std::string_view> configurable() {
  std::vector<std::string_view> names = {"origin"};
  for (const options::Option& option : options::option_table()) {
    if (option.sources == options::Sources::kAll) {
      names.push_back(option.name);
    }
  }
  return names;
}

nlohmann::ordered_json json_value(const options::Value& value) {
  struct Visitor {
    nlohmann::ordered_json operator()(std::monostate) const { return nullptr; }

    nlohmann::ordered_json operator()(bool b) const { return b; }

    nlohmann::ordered_json operator()(std::int64_t i) const { return i; }

    nlohmann::ordered_json operator()(std::uint64_t u) const { return u; }

    nlohmann::ordered_json operator()(double d) const { return d; }

    nlohmann::ordered_json operator()(const std::string& s) const { return s; }

    nlohmann::ordered_json operator()(const std::vector<std::string>& list) const { return list; }
  };

  return std::visit(Visitor{}, value);
}

// Credentials are shown as set or not set.
bool is_secret(const options::Option& option) {
  return option.name == "hub-token" || option.name == "api-key" || option.name == "admin-key";
}

std::string shown(const options::Option& option, const options::Settings& settings) {
  if (!settings.has(option.name)) {
    return option.unset_note.empty() ? "(unset)" : fmt::format("({})", option.unset_note);
  }
  return is_secret(option) ? "(set)" : options::value_text(settings.value(option.name));
}

Result<int> run_config(CommandContext& context) {
  if (context.argument(0) != "show") {
    return fail(ErrorCode::kInvalidArgument,
                "unknown action '{}'; usage: trine config show [MODEL] [OPTIONS]",
                context.argument(0));
  }
  if (context.arguments().size() > 1) {
    TRINE_TRY_ASSIGN(const std::string path, model_path(context.settings(), context.argument(1)));
    TRINE_TRY_ASSIGN(const ModelText model, ModelText::load(path));
    TRINE_TRY(apply_generation_defaults(model.generation(), context.settings()));
  }
  const options::Settings& settings = context.settings();
  const bool with_origin = settings.flag("origin");
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  std::string text;
  for (const options::Option& option : options::option_table()) {
    if (option.sources != options::Sources::kAll) {
      continue;
    }
    const std::string_view origin = options::origin_name(settings.origin(option.name));
    const std::string& place = settings.place(option.name);
    nlohmann::ordered_json row = {{"key", options::file_key(option)},
                                  {"value", json_value(settings.value(option.name))},
                                  {"origin", origin},
                                  {"place", place},
                                  {"variable", options::env_name(option)}};
    if (is_secret(option) && settings.has(option.name)) {
      row["value"] = "(set)";
    }
    rows.push_back(std::move(row));
    text += fmt::format("{:<32} {}", options::file_key(option), shown(option, settings));
    if (with_origin) {
      text += fmt::format("  # {}{}{}", origin, place.empty() ? "" : " ", place);
    }
    text += '\n';
  }
  if (context.json()) {
    context.print_json({{"options", std::move(rows)}});
  } else {
    write_out(text);
  }
  return 0;
}

Result<int> run_options_page(CommandContext& /*context*/) {
  write_out(options::options_markdown());
  return 0;
}

Result<int> run_api_page(CommandContext& /*context*/) {
  write_out(server::openai::api_markdown());
  return 0;
}

}  // namespace

extern const Command kConfigCommand;
const Command kConfigCommand = {
    .name = "config",
    .group = "setup",
    .summary = "Print the effective configuration",
    .positionals = {{.name = "show", .help = "print every option with its value"},
                    {.name = "MODEL",
                     .help = "also the sampling defaults of this model",
                     .required = false}},
    .options = configurable(),
    .details =
        "Takes every option that can be configured, to show what a flag would change.\n"
        "Order: flag, environment, file, the model's generation_config, default.",
    .run = run_config,
};

extern const Command kOptionsPageCommand;
const Command kOptionsPageCommand = {
    .name = "options-page",
    .group = "setup",
    .summary = "Print docs/options.md",
    .run = run_options_page,
    .hidden = true,
};

extern const Command kApiPageCommand;
const Command kApiPageCommand = {
    .name = "api-page",
    .group = "setup",
    .summary = "Print docs/api.md",
    .run = run_api_page,
    .hidden = true,
};

}  // namespace trine::app
