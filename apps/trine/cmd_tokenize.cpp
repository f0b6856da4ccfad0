// trine tokenize, trine detokenize: text to ids and back, one text or one JSON object a line.
#include <nlohmann/json.hpp>

#include "apps/trine/command.h"
#include "apps/trine/input.h"
#include "apps/trine/interrupt.h"
#include "apps/trine/model_args.h"
#include "base/json.h"
#include "text/tokenizer.h"

namespace trine::app {

namespace {

using Json = nlohmann::ordered_json;

// Answers line by line, so that a pipe on both ends works; a reader that went away ends it.
void answer_line(const Json& value) {
  write_out(value.dump(-1, ' ', false, Json::error_handler_t::replace));
  write_out("\n");
}

Status check_running() {
  if (interrupted()) {
    return fail(ErrorCode::kCancelled, "interrupted");
  }
  if (!output_ok()) {
    return fail(ErrorCode::kUnavailable, "cannot write to standard output");
  }
  return {};
}

Status refuse_text_with_jsonl(const CommandContext& context) {
  if (context.arguments().size() > 1 || context.settings().has("file")) {
    return fail(ErrorCode::kInvalidArgument, "--jsonl and a text are given; give one of them");
  }
  return {};
}

Result<Json> parse_line(std::string_view line, const char* key) {
  TRINE_TRY_ASSIGN(Json value, parse_json(line));
  if (!value.is_object() || !value.contains(key)) {
    return fail(ErrorCode::kInvalidArgument, "a JSON object with \"{}\" is expected", key);
  }
  return value;
}

// What is wrong with a line is the user's input, not a model file.
Status as_input_error(Status status) {
  if (!status.has_value() && status.error().code == ErrorCode::kCorruptData) {
    return fail(ErrorCode::kInvalidArgument, "{}", status.error().message);
  }
  return status;
}

Status tokenize_line(const text::Tokenizer& tokenizer, const text::EncodeOptions& options,
                     std::string_view line) {
  TRINE_TRY(check_running());
  TRINE_TRY_ASSIGN(const Json value, parse_line(line, "text"));
  if (!value["text"].is_string()) {
    return fail(ErrorCode::kInvalidArgument, "\"text\" is not a string");
  }
  TRINE_TRY_ASSIGN(const std::vector<std::int32_t> ids,
                   tokenizer.encode(value["text"].get_ref<const std::string&>(), options));
  answer_line({{"ids", ids}});
  return {};
}

Result<int> run_tokenize(CommandContext& context) {
  TRINE_TRY_ASSIGN(const auto model, load_model_text(context));
  TRINE_TRY_ASSIGN(const auto tokenizer, model->tokenizer());
  const options::Settings& settings = context.settings();
  const text::EncodeOptions options = {.add_special = settings.flag("bos"),
                                       .parse_special = settings.flag("parse-special")};
  if (settings.has("jsonl")) {
    TRINE_TRY(refuse_text_with_jsonl(context));
    TRINE_TRY(for_each_line(settings.text("jsonl"), [&](std::string_view line) {
      return as_input_error(tokenize_line(*tokenizer, options, line));
    }));
    return 0;
  }
  TRINE_TRY_ASSIGN(const std::string text, read_text(context, 1));
  TRINE_TRY_ASSIGN(const std::vector<std::int32_t> ids, tokenizer->encode(text, options));
  if (context.json()) {
    Json pieces = Json::array();
    for (const std::int32_t id : ids) {
      pieces.push_back(tokenizer->piece(id));
    }
    context.print_json({{"ids", ids}, {"pieces", std::move(pieces)}, {"count", ids.size()}});
    return 0;
  }
  std::string line;
  for (const std::int32_t id : ids) {
    line += line.empty() ? "" : " ";
    line += std::to_string(id);
  }
  line += '\n';
  write_out(line);
  return 0;
}

Status detokenize_line(const text::Tokenizer& tokenizer, bool skip_special, std::string_view line) {
  TRINE_TRY(check_running());
  TRINE_TRY_ASSIGN(const Json value, parse_line(line, "ids"));
  std::vector<std::int32_t> ids;
  const Json& list = value["ids"];
  if (!list.is_array()) {
    return fail(ErrorCode::kInvalidArgument, "\"ids\" is not an array");
  }
  for (const Json& id : list) {
    if (!id.is_number_integer() || id < 0 || id > INT32_MAX) {
      return fail(ErrorCode::kInvalidArgument, "\"ids\" entry {} is not a token id",
                  ids.size() + 1);
    }
    ids.push_back(id.get<std::int32_t>());
  }
  TRINE_TRY_ASSIGN(const std::string text, tokenizer.decode(ids, skip_special));
  answer_line({{"text", text}});
  return {};
}

Result<int> run_detokenize(CommandContext& context) {
  TRINE_TRY_ASSIGN(const auto model, load_model_text(context));
  TRINE_TRY_ASSIGN(const auto tokenizer, model->tokenizer());
  const options::Settings& settings = context.settings();
  const bool skip_special = !settings.flag("keep-special");
  if (settings.has("jsonl")) {
    TRINE_TRY(refuse_text_with_jsonl(context));
    TRINE_TRY(for_each_line(settings.text("jsonl"), [&](std::string_view line) {
      return as_input_error(detokenize_line(*tokenizer, skip_special, line));
    }));
    return 0;
  }
  TRINE_TRY_ASSIGN(const std::vector<std::int32_t> ids, read_ids(context, 1));
  TRINE_TRY_ASSIGN(const std::string text, tokenizer->decode(ids, skip_special));
  if (context.json()) {
    context.print_json({{"text", text}, {"count", ids.size()}});
  } else {
    write_out(text);
    write_out("\n");
  }
  return 0;
}

}  // namespace

extern const Command kTokenizeCommand;
const Command kTokenizeCommand = {
    .name = "tokenize",
    .group = "inspect",
    .summary = "Text to token ids",
    .positionals = {kModelArgument,
                    {.name = "TEXT",
                     .help = "the text; else --file or standard input",
                     .required = false}},
    .options = with_store_options({"file", "jsonl", "bos", "parse-special"}),
    .details =
        "Prints the ids in one line. With --jsonl every line {\"text\": \"...\"} is answered by "
        "one line\n"
        "{\"ids\": [...]}; other keys of the object are ignored, empty lines are skipped.",
    .run = run_tokenize,
};

extern const Command kDetokenizeCommand;
const Command kDetokenizeCommand = {
    .name = "detokenize",
    .group = "inspect",
    .summary = "Token ids to text",
    .positionals = {kModelArgument,
                    {.name = "IDS",
                     .help = "ids, as 1,2,3 or @FILE; else --file or standard input",
                     .required = false}},
    .options = with_store_options({"file", "jsonl", "keep-special"}),
    .details =
        "Bytes that are no UTF-8 on their own become U+FFFD. With --jsonl every line {\"ids\": "
        "[...]} is answered\n"
        "by one line {\"text\": \"...\"}; other keys of the object are ignored, empty lines are "
        "skipped.",
    .run = run_detokenize,
};

}  // namespace trine::app
