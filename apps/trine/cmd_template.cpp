// trine template: what a conversation looks like to the model.
#include <ctime>

#include <nlohmann/json.hpp>

#include "apps/trine/command.h"
#include "apps/trine/input.h"
#include "apps/trine/model_args.h"
#include "base/json.h"
#include "base/log.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace trine::app {

namespace {

using Json = nlohmann::ordered_json;

// JSON that the user gave: its faults are usage errors, unlike those of a model's files.
Result<Json> read_json(const std::string& path) {
  TRINE_TRY_ASSIGN(const std::string text, read_file(path));
  auto parsed = parse_json(text, {.refuse_big_integers = true});
  if (!parsed.has_value()) {
    return fail(ErrorCode::kInvalidArgument, "{}: {}", path, parsed.error().message);
  }
  return parsed;
}

struct Conversation {
  Json messages;
  Json tools = nullptr;
  Json extra = Json::object();
};

// An array of messages, or an object in the shape of a chat request with "messages" and "tools".
Result<Conversation> read_conversation(const CommandContext& context) {
  const options::Settings& settings = context.settings();
  const std::string path = context.argument(1);
  Conversation out;
  TRINE_TRY_ASSIGN(Json value, read_json(path));
  if (value.is_object() && value.contains("messages")) {
    for (const auto& [key, entry] : value.items()) {
      if (key == "messages") {
        out.messages = entry;
      } else if (key == "tools") {
        out.tools = entry;
      } else {
        return fail(ErrorCode::kInvalidArgument,
                    "{}: unknown key \"{}\", expected \"messages\" and \"tools\"", path, key);
      }
    }
  } else {
    out.messages = std::move(value);
  }
  if (!out.messages.is_array()) {
    return fail(ErrorCode::kInvalidArgument, "{}: an array of messages is expected", path);
  }
  if (settings.has("tools")) {
    if (!out.tools.is_null()) {
      return fail(ErrorCode::kInvalidArgument,
                  "{} has \"tools\" and --tools is given; give one of them", path);
    }
    TRINE_TRY_ASSIGN(out.tools, read_json(settings.text("tools")));
  }
  if (!out.tools.is_null() && !out.tools.is_array()) {
    return fail(ErrorCode::kInvalidArgument, "tools: an array is expected");
  }
  if (settings.has("template-args")) {
    TRINE_TRY_ASSIGN(out.extra, read_json(settings.text("template-args")));
    if (!out.extra.is_object()) {
      return fail(ErrorCode::kInvalidArgument, "{}: an object is expected",
                  settings.text("template-args"));
    }
  }
  return out;
}

Result<int> run_template(CommandContext& context) {
  TRINE_TRY_ASSIGN(const auto model, load_model_text(context));
  TRINE_TRY_ASSIGN(const Conversation conversation, read_conversation(context));
  TRINE_TRY_ASSIGN(const auto chat, model->chat_template(!conversation.tools.is_null()));
  if (!conversation.tools.is_null() && !conversation.tools.empty() && !chat->caps().tools) {
    log::warn("the chat template of {} does not show its tools to the model", context.argument(0));
  }
  text::ChatTemplateInput input;
  input.messages = &conversation.messages;
  input.tools = &conversation.tools;
  input.extra = &conversation.extra;
  input.add_generation_prompt = context.settings().flag("generation-prompt");
  input.bos_token = model->bos_token();
  input.eos_token = model->eos_token();
  input.now_unix_s = static_cast<std::int64_t>(std::time(nullptr));
  TRINE_TRY_ASSIGN(const std::vector<text::TextPart> parts, chat->render(input));
  std::string text;
  Json part_list = Json::array();
  for (const text::TextPart& part : parts) {
    text += part.text;
    part_list.push_back({{"text", part.text}, {"from_user", part.from_user}});
  }
  std::vector<std::int32_t> ids;
  if (model->has_tokenizer()) {
    TRINE_TRY_ASSIGN(const auto tokenizer, model->tokenizer());
    TRINE_TRY_ASSIGN(ids, tokenizer->encode_parts(parts, false));
  }
  if (context.json()) {
    Json out = {{"text", text}, {"ids", ids}, {"parts", std::move(part_list)}};
    if (!model->has_tokenizer()) {
      out["ids"] = nullptr;
    }
    context.print_json(out);
    return 0;
  }
  write_out(text);
  write_out(text.ends_with('\n') ? "" : "\n");
  if (!model->has_tokenizer()) {
    context.note(fmt::format("no ids: {}", model->tokenizer().error().message));
    return 0;
  }
  std::string line = "ids:";
  for (const std::int32_t id : ids) {
    line += ' ';
    line += std::to_string(id);
  }
  line += '\n';
  write_out(line);
  return 0;
}

}  // namespace

extern const Command kTemplateCommand;
const Command kTemplateCommand = {
    .name = "template",
    .group = "inspect",
    .summary = "Render a conversation with the model's chat template",
    .positionals = {kModelArgument,
                    {.name = "MESSAGES",
                     .help = "JSON file with an array of messages, - for standard input"}},
    .options = with_store_options({"tools", "template-args", "generation-prompt"}),
    .details =
        "Prints the text, then the ids in a line of their own; --json gives text, ids and the "
        "parts, each marked\n"
        "as the template's own or the user's (control tokens are recognised in the template's own "
        "only).\n"
        "MESSAGES may also be an object with \"messages\" and \"tools\".",
    .run = run_template,
};

}  // namespace trine::app
