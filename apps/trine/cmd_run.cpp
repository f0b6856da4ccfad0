// trine run: one prompt, one or several answers.
#include <nlohmann/json.hpp>

#include "apps/trine/command.h"
#include "apps/trine/input.h"
#include "apps/trine/interrupt.h"
#include "apps/trine/model_args.h"
#include "apps/trine/session.h"

namespace trine::app {

namespace {

using Json = nlohmann::ordered_json;

Result<std::string> read_prompt(const CommandContext& context) {
  const bool given = context.arguments().size() > 1 || context.settings().has("prompt");
  TRINE_TRY_ASSIGN(std::string text, read_text(context, 1));
  if (!given) {
    text = without_final_newline(std::move(text));
  }
  if (text.empty() && interrupted()) {
    return fail(ErrorCode::kCancelled, "interrupted while reading the prompt");
  }
  // With --raw an empty text that was asked for means: go on from the begin token.
  if (text.empty() && !(given && context.settings().flag("raw"))) {
    return fail(ErrorCode::kInvalidArgument,
                "the prompt is empty; give it as an argument, with --prompt, --file FILE or on "
                "standard input{}",
                given ? "; --raw takes an empty one" : "");
  }
  TRINE_TRY(check_text(text, "the prompt"));
  TRINE_TRY(check_text(context.settings().maybe_text("system").value_or(""), "--system"));
  return text;
}

// Through the chat template when the model has one, unless --raw.
Result<std::vector<std::int32_t>> encode_prompt(const Session& session,
                                                const options::Settings& settings,
                                                const std::string& prompt) {
  const bool raw = settings.flag("raw") || !session.text().has_chat_template();
  const bool system = settings.has("system") && !settings.text("system").empty();
  if (!raw) {
    if (settings.origin("parse-special") == options::Origin::kFlag ||
        settings.origin("bos") == options::Origin::kFlag) {
      return fail(ErrorCode::kInvalidArgument,
                  "--parse-special and --no-bos need --raw: the chat template decides about "
                  "control tokens");
    }
    Json messages = Json::array();
    if (system) {
      messages.push_back({{"role", "system"}, {"content", settings.text("system")}});
    }
    messages.push_back({{"role", "user"}, {"content", prompt}});
    return session.encode_chat(messages);
  }
  // A system prompt from the configuration file is for chats; only an explicit one is a
  // contradiction.
  if (system && settings.origin("system") == options::Origin::kFlag) {
    return fail(ErrorCode::kInvalidArgument, "--system needs a chat template, and {}",
                settings.flag("raw") ? "--raw is given" : "this model has none");
  }
  return session.tokenizer().encode(prompt, {.add_special = settings.flag("bos"),
                                             .parse_special = settings.flag("parse-special")});
}

void print_json(const CommandContext& context, const Session& session, const Generation& done) {
  Json answers = Json::array();
  for (const Answer& answer : done.answers) {
    answers.push_back(answer_json(answer, session.tokenizer()));
  }
  Json out = {{"model", context.argument(0)}, {"seed", done.stats.seed}};
  out.update(answers[0]);
  if (done.answers.size() > 1) {
    out["answers"] = std::move(answers);
  }
  out["timings"] = stats_json(done.stats);
  context.print_json(out);
}

void print_answers(const Generation& done) {
  for (std::size_t i = 0; i < done.answers.size(); ++i) {
    const Answer& answer = done.answers[i];
    write_out(fmt::format("--- answer {} of {} ({})\n{}\n", i + 1, done.answers.size(),
                          finish_reason_name(answer.finish), answer.text));
  }
}

Result<int> run_run(CommandContext& context) {
  const auto n = static_cast<std::int32_t>(context.settings().integer("n"));
  if (context.settings().has("logprobs") && !context.json()) {
    return fail(ErrorCode::kInvalidArgument, "--logprobs needs --json");
  }
  TRINE_TRY_ASSIGN(const std::string prompt, read_prompt(context));
  TRINE_TRY_ASSIGN(Session session, Session::open(context, n));
  const options::Settings& settings = context.settings();
  TRINE_TRY_ASSIGN(std::vector<std::int32_t> ids, encode_prompt(session, settings, prompt));
  TRINE_TRY_ASSIGN(GenerationRequest request, session.request(std::move(ids), settings));
  request.n = n;
  const bool streams = n == 1 && !context.json();
  TRINE_TRY_ASSIGN(
      const Generation done,
      session.generate(std::move(request), [&](std::int32_t /*answer*/, std::string_view text) {
        if (streams) {
          write_out(text);
          flush_out();
        }
      }));
  if (context.json()) {
    print_json(context, session, done);
  } else if (!streams) {
    print_answers(done);
  } else {
    write_out("\n");
  }
  flush_out();
  context.note(stats_line(done.stats));
  return done.cancelled() && interrupted() ? exit_status(ErrorCode::kCancelled) : 0;
}

}  // namespace

extern const Command kRunCommand;
const Command kRunCommand = {
    .name = "run",
    .group = "generate",
    .summary = "Answer one prompt",
    .positionals = {kModelArgument,
                    {.name = "PROMPT",
                     .help = "the prompt; else --prompt, --file or standard input",
                     .required = false}},
    .options = joined({"prompt", "file", "raw", "system", "bos", "parse-special", "n", "logprobs"},
                      session_options()),
    .details =
        "A model with a chat template gets the prompt as a user's message; --raw sends the text as "
        "it is, to be\n"
        "continued. The final line end of a file or of standard input is not part of the prompt. "
        "The answer streams to\n"
        "standard output, followed by a line end; numbers of speed go to standard error. Sampling "
        "defaults come from\n"
        "the model's generation_config.json when it has one (`trine config show MODEL --origin`).\n"
        "A prompt that does not fit the context together with --max-tokens is refused (status 4).",
    .run = run_run,
};

}  // namespace trine::app
