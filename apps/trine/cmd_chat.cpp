// trine chat: a conversation on the terminal.
#include <algorithm>
#include <cstdio>

#include <nlohmann/json.hpp>

#include "apps/trine/chat_state.h"
#include "apps/trine/command.h"
#include "apps/trine/input.h"
#include "apps/trine/interrupt.h"
#include "apps/trine/line_editor.h"
#include "apps/trine/model_args.h"
#include "apps/trine/session.h"
#include "format/output_file.h"

namespace trine::app {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kHelp =
    "/help              this list\n"
    "/exit              leave (also Ctrl-D)\n"
    "/clear             forget the conversation, keep the system prompt\n"
    "/system [TEXT]     show or set the system prompt; /system - removes it\n"
    "/regen             answer the last question again (with --seed: the next seed)\n"
    "/undo              take back the last question and its answer\n"
    "/save FILE         write the conversation as JSON messages\n"
    "/load FILE         continue a saved conversation\n"
    "/set [NAME VALUE]  show or change a sampling option, as in /set temperature 0.7\n"
    "/unset NAME        back to the default of a sampling option without one of its own, as in "
    "/unset stop\n"
    "/stats             numbers of this session\n"
    "/tokens            length of the conversation in tokens\n"
    "A line that begins with // is sent with one /. Ctrl-J or Alt-Enter starts a new line, a "
    "pasted text stays one\n"
    "input. Ctrl-C stops the answer.";

struct Totals {
  int answers = 0;
  std::int64_t prompt_tokens = 0;
  std::int64_t generated_tokens = 0;
  double decode_ms = 0.0;
};

class Chat {
 public:
  Chat(CommandContext& context, Session session)
      : context_(context),
        session_(std::move(session)),
        state_(context.settings().maybe_text("system").value_or("")) {}

  Result<int> run();

 private:
  Status answer(std::uint64_t seed_offset);
  // False: leave. Errors are shown, they do not end the chat.
  Result<bool> command(const SlashCommand& command);
  Status regenerate();
  Status change_system(const std::string& text);
  Status set_option(const std::string& rest);
  Status unset_option(const std::string& name);
  Status save(const std::string& path) const;
  Status load(const std::string& path);
  Status show_tokens() const;
  void show_totals() const;
  // Whether the errors of one turn end the program: scripts must notice, people can go on.
  Status soften(Status status) const;
  // What a command has to say. Part of the conversation with a person, so not silenced by --quiet.
  static void say(std::string_view text);

  CommandContext& context_;
  Session session_;
  ChatState state_;
  LineEditor editor_;
  Totals totals_;
  std::uint64_t regenerations_ = 0;
};

void Chat::say(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fputc('\n', stderr);
}

Status Chat::soften(Status status) const {
  if (!status.has_value() && editor_.interactive() && status.error().code != ErrorCode::kInternal) {
    say(fmt::format("error: {}", status.error().message));
    return {};
  }
  return status;
}

Result<int> Chat::run() {
  set_interrupt_limit(5);
  if (editor_.interactive()) {
    context_.note(fmt::format("{}: context of {} tokens. /help lists the commands, Ctrl-D leaves.",
                              context_.argument(0), session_.context_tokens()));
  }
  std::string line;
  while (output_ok()) {
    clear_interrupt();
    switch (editor_.read("> ", line)) {
      case LineEditor::Outcome::kEndOfInput:
        return 0;
      case LineEditor::Outcome::kInterrupted:
        if (!editor_.interactive()) {
          return exit_status(ErrorCode::kCancelled);
        }
        say("(Ctrl-D or /exit leaves)");
        continue;
      case LineEditor::Outcome::kLine:
        break;
    }
    if (line.find_first_not_of(" \t\n") == std::string::npos) {
      continue;
    }
    editor_.add_history(line);
    if (const auto slash = parse_slash_command(line); slash.has_value()) {
      const Result<bool> stays = command(*slash);
      if (!stays.has_value()) {
        TRINE_TRY(soften(tl::unexpected(stays.error())));
      } else if (!*stays) {
        return 0;
      }
      continue;
    }
    state_.add_user(line.starts_with("//") ? line.substr(1) : line);
    regenerations_ = 0;
    Status done = answer(0);
    if (!done.has_value()) {
      state_.drop_last();
      TRINE_TRY(soften(std::move(done)));
    }
  }
  return 0;
}

Status Chat::answer(std::uint64_t seed_offset) {
  TRINE_TRY_ASSIGN(std::vector<std::int32_t> prompt, session_.encode_chat(state_.messages()));
  TRINE_TRY_ASSIGN(GenerationRequest request,
                   session_.request(std::move(prompt), context_.settings()));
  if (request.sampling.seed.has_value()) {
    *request.sampling.seed += seed_offset;
  }
  // A grammar's budget is exhausted by the text it asks for, and no room helps.
  const bool full =
      request.grammar == nullptr || std::ssize(request.prompt) + request.max_tokens.value_or(1) >
                                        std::int64_t{session_.context_tokens()};
  const bool streams = !context_.json();
  auto done =
      session_.generate(std::move(request), [&](std::int32_t /*answer*/, std::string_view text) {
        if (streams) {
          write_out(text);
          flush_out();
        }
      });
  if (!done.has_value()) {
    return fail(
        done.error().code, "{}{}", done.error().message,
        full && done.error().code == ErrorCode::kExhausted ? "; /clear or /undo makes room" : "");
  }
  const Answer& answer = done->answers[0];
  state_.add_assistant(answer.text);
  totals_.answers += 1;
  totals_.prompt_tokens += done->stats.prompt_tokens;
  totals_.generated_tokens += done->stats.generated_tokens;
  totals_.decode_ms += done->stats.decode_ms;
  if (streams) {
    write_out("\n");
  } else {
    Json out = answer_json(answer, session_.tokenizer());
    out["seed"] = done->stats.seed;
    out["timings"] = stats_json(done->stats);
    write_out(out.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
  }
  flush_out();
  if (done->cancelled()) {
    context_.note("(stopped)");
  } else if (answer.finish == FinishReason::kLength) {
    context_.note("(cut: --max-tokens or the context is used up)");
  }
  context_.note(fmt::format("[{}]", stats_line(done->stats)));
  return {};
}

Result<bool> Chat::command(const SlashCommand& command) {
  const std::string& name = command.name;
  if (name == "exit" || name == "quit") {
    return false;
  }
  if (name == "help") {
    say(kHelp);
  } else if (name == "clear") {
    state_.clear();
  } else if (name == "system") {
    TRINE_TRY(change_system(command.rest));
  } else if (name == "regen") {
    TRINE_TRY(regenerate());
  } else if (name == "undo") {
    if (!state_.undo()) {
      return fail(ErrorCode::kInvalidArgument, "/undo: the conversation is empty");
    }
    say(fmt::format("{} messages left", state_.num_messages()));
  } else if (name == "save") {
    TRINE_TRY(save(command.rest));
  } else if (name == "load") {
    TRINE_TRY(load(command.rest));
  } else if (name == "set") {
    TRINE_TRY(set_option(command.rest));
  } else if (name == "unset") {
    TRINE_TRY(unset_option(command.rest));
  } else if (name == "stats") {
    show_totals();
  } else if (name == "tokens") {
    TRINE_TRY(show_tokens());
  } else {
    return fail(ErrorCode::kInvalidArgument,
                "unknown command /{}; /help lists them, // sends a line that begins with /", name);
  }
  return true;
}

Status Chat::regenerate() {
  const Json before = state_.messages();
  if (!state_.take_back_answer()) {
    return fail(ErrorCode::kInvalidArgument, "/regen: there is no answer yet");
  }
  Status done = answer(++regenerations_);
  if (!done.has_value()) {
    state_.add_assistant(before.back()["content"]);
  }
  return done;
}

Status Chat::change_system(const std::string& text) {
  if (text.empty()) {
    say(state_.system().empty() ? "(no system prompt)" : state_.system());
    return {};
  }
  const std::string before = state_.system();
  state_.set_system(text == "-" ? "" : text);
  // A template without a place for it says so now and not with the next question.
  Json probe = state_.messages();
  probe.push_back({{"role", "user"}, {"content", "x"}});
  if (state_.num_messages() == 0) {
    if (auto encoded = session_.encode_chat(probe); !encoded.has_value()) {
      state_.set_system(before);
      return tl::unexpected(std::move(encoded).error());
    }
  }
  return {};
}

bool is_settable(std::string_view name) {
  const auto rows = sampling_options();
  return std::find(rows.begin(), rows.end(), name) != rows.end();
}

Status Chat::set_option(const std::string& rest) {
  options::Settings& settings = context_.settings();
  if (rest.empty()) {
    std::string text;
    for (const std::string_view name : sampling_options()) {
      const std::string value = settings.has(name)
                                    ? options::value_text(settings.value(name))
                                    : fmt::format("({})", options::find_option(name)->unset_note);
      text += fmt::format("{}{:<20} {}", text.empty() ? "" : "\n", name, value);
    }
    say(text);
    return {};
  }
  const std::size_t blank = rest.find_first_of(" \t");
  const std::string name = rest.substr(0, blank);
  const std::size_t value_at =
      blank == std::string::npos ? blank : rest.find_first_not_of(" \t", blank);
  const options::Option* option = is_settable(name) ? options::find_option(name) : nullptr;
  if (option == nullptr) {
    return fail(ErrorCode::kInvalidArgument,
                "/set: '{}' is not a sampling option; /set alone lists them", name);
  }
  if (value_at == std::string::npos) {
    return fail(ErrorCode::kInvalidArgument, "/set {}: a value is missing", name);
  }
  TRINE_TRY_ASSIGN(options::Value value, options::parse_value(*option, rest.substr(value_at),
                                                              fmt::format("/set {}", name)));
  settings.set(name, std::move(value), options::Origin::kFlag, "/set");
  return {};
}

Status Chat::unset_option(const std::string& name) {
  if (!is_settable(name)) {
    return fail(ErrorCode::kInvalidArgument,
                "/unset: '{}' is not a sampling option; /set alone lists them", name);
  }
  const options::Settings defaults;
  context_.settings().set(name, defaults.value(name), options::Origin::kFlag, "/unset");
  return {};
}

Status Chat::save(const std::string& path) const {
  if (path.empty()) {
    return fail(ErrorCode::kInvalidArgument, "/save: a file name is missing");
  }
  if (path == "-") {
    return fail(ErrorCode::kInvalidArgument,
                "/save -: standard output holds the answers; name a file (./- for one called -)");
  }
  const std::string text = state_.to_json();
  TRINE_TRY_ASSIGN(OutputFile out, OutputFile::create(path));
  TRINE_TRY(out.write(std::as_bytes(std::span<const char>(text))));
  TRINE_TRY(out.commit());
  say(fmt::format("{} messages saved to {}", state_.messages().size(), path));
  return {};
}

Status Chat::load(const std::string& path) {
  if (path.empty()) {
    return fail(ErrorCode::kInvalidArgument, "/load: a file name is missing");
  }
  if (path == "-") {
    return fail(ErrorCode::kInvalidArgument,
                "/load -: standard input holds the questions; name a file (./- for one called -)");
  }
  TRINE_TRY_ASSIGN(const std::string text, read_file(path));
  Status loaded = state_.from_json(text);
  if (!loaded.has_value()) {
    return tl::unexpected(std::move(loaded).error().with_context(path));
  }
  say(fmt::format("{} messages loaded from {}", state_.messages().size(), path));
  return {};
}

Status Chat::show_tokens() const {
  std::size_t count = 0;
  if (state_.num_messages() > 0) {
    TRINE_TRY_ASSIGN(const std::vector<std::int32_t> ids, session_.encode_chat(state_.messages()));
    count = ids.size();
  }
  say(fmt::format("{} of {} tokens of context", count, session_.context_tokens()));
  return {};
}

void Chat::show_totals() const {
  const double rate = totals_.decode_ms > 0
                          ? static_cast<double>(totals_.generated_tokens - totals_.answers) *
                                1000.0 / totals_.decode_ms
                          : 0.0;
  say(fmt::format(
      "{} answers, {} prompt tokens, {} generated tokens, decode {:.1f} tokens/s (measured)",
      totals_.answers, totals_.prompt_tokens, totals_.generated_tokens, rate));
}

Result<int> run_chat(CommandContext& context) {
  TRINE_TRY_ASSIGN(Session session, Session::open(context, 1));
  // Refused here, not at the first question.
  TRINE_TRY_ASSIGN(const auto chat, session.text().chat_template(false));
  if (!chat->caps().system_role && context.settings().has("system")) {
    return fail(ErrorCode::kUnsupported,
                "--system: the model's chat template has no place for a system prompt");
  }
  return Chat(context, std::move(session)).run();
}

}  // namespace

extern const Command kChatCommand;
const Command kChatCommand = {
    .name = "chat",
    .group = "generate",
    .summary = "Talk with a model",
    .positionals = {kModelArgument},
    .options = joined({"system"}, session_options()),
    .details =
        "Answers stream to standard output; prompt, statistics and the /commands (see /help) use "
        "standard error.\n"
        "Without a terminal every line of standard input is a question, and the first error ends "
        "the program.\n"
        "With --json every answer is one line of JSON.",
    .run = run_chat,
};

}  // namespace trine::app
