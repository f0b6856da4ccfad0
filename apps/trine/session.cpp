#include "apps/trine/session.h"

#include <algorithm>
#include <charconv>
#include <ctime>
#include <utility>

#include <nlohmann/json.hpp>

#include "apps/trine/input.h"
#include "apps/trine/interrupt.h"
#include "apps/trine/model_args.h"
#include "apps/trine/structure.h"
#include "base/log.h"

namespace trine::app {

namespace {

using Json = nlohmann::ordered_json;

Result<sampling::LogitBias> parse_bias(const std::string& text) {
  const std::size_t equals = text.find('=');
  sampling::LogitBias out;
  const char* begin = text.data();
  const char* middle = begin + std::min(equals, text.size());
  const char* end = begin + text.size();
  const auto id = std::from_chars(begin, middle, out.token);
  const auto bias = equals == std::string::npos
                        ? std::from_chars_result{end, std::errc::invalid_argument}
                        : std::from_chars(middle + 1, end, out.bias);
  if (id.ec != std::errc() || id.ptr != middle || bias.ec != std::errc() || bias.ptr != end) {
    return fail(ErrorCode::kInvalidArgument,
                "--logit-bias: cannot use '{}', expected ID=BIAS such as 42=-100", text);
  }
  return out;
}

// A word's tokens differ at the start of a text and behind a blank; both are forbidden.
Result<std::vector<std::vector<std::int32_t>>> bad_word_ids(const std::vector<std::string>& words,
                                                            const text::Tokenizer& tokenizer) {
  std::vector<std::vector<std::int32_t>> out;
  const text::EncodeOptions options = {.add_special = false, .parse_special = false};
  for (const std::string& word : words) {
    for (const std::string& form : {word, " " + word}) {
      auto ids = tokenizer.encode(form, options);
      if (!ids.has_value()) {
        return tl::unexpected(std::move(ids).error().with_context("--bad-words"));
      }
      if (ids->empty()) {
        return fail(ErrorCode::kInvalidArgument, "--bad-words: '{}' has no tokens", word);
      }
      if (std::find(out.begin(), out.end(), *ids) == out.end()) {
        out.push_back(*std::move(ids));
      }
    }
  }
  return out;
}

Result<sampling::SamplingParams> sampling_params(const options::Settings& settings,
                                                 const text::Tokenizer& tokenizer) {
  sampling::SamplingParams out;
  out.repetition_penalty = settings.number("repetition-penalty");
  out.presence_penalty = settings.number("presence-penalty");
  out.frequency_penalty = settings.number("frequency-penalty");
  for (const std::string& text : settings.list("logit-bias")) {
    TRINE_TRY_ASSIGN(const sampling::LogitBias bias, parse_bias(text));
    out.logit_bias.push_back(bias);
  }
  TRINE_TRY_ASSIGN(out.bad_words, bad_word_ids(settings.list("bad-words"), tokenizer));
  out.min_tokens = static_cast<std::int32_t>(settings.integer("min-tokens"));
  out.temperature = settings.number("temperature");
  out.top_k = static_cast<std::int32_t>(settings.integer("top-k"));
  out.top_p = settings.number("top-p");
  out.min_p = settings.number("min-p");
  out.typical_p = settings.number("typical-p");
  out.seed = settings.maybe_unsigned("seed");
  if (const auto logprobs = settings.maybe_integer("logprobs"); logprobs.has_value()) {
    out.logprobs = static_cast<std::int32_t>(*logprobs);
  }
  return out;
}

// The engine's errors speak of the fields of a request; people here gave flags. Only whole words
// outside of dashes and quotes are fields: values in these messages are numbers.
Error with_flag_names(Error error) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"max_tokens", "--max-tokens"},
      {"min_tokens", "--min-tokens"},
      {"logit_bias", "--logit-bias"},
      {"bad_words", "--bad-words"},
      {"stop_ids", "--stop-ids"},
      {"ignore_eos", "--ignore-eos"},
      {"step_tokens", "--step-tokens"},
      {"context_tokens", "--ctx"},
      {"top_k", "--top-k"},
      {"top_p", "--top-p"},
      {"min_p", "--min-p"},
      {"typical_p", "--typical-p"},
      {"repetition_penalty", "--repetition-penalty"},
      {"presence_penalty", "--presence-penalty"},
      {"frequency_penalty", "--frequency-penalty"},
      {"kv_dtype", "--kv"},
      {"raise the context", "raise --ctx"}};
  const auto is_word = [](char c) {
    return c == '_' || c == '-' || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
  };
  for (const auto& [field, flag] : kNames) {
    for (std::size_t at = error.message.find(field); at != std::string::npos;
         at = error.message.find(field, at)) {
      const std::size_t end = at + field.size();
      const bool whole = (at == 0 || !is_word(error.message[at - 1])) &&
                         (end == error.message.size() || !is_word(error.message[end]));
      if (whole) {
        error.message.replace(at, field.size(), flag);
        at += flag.size();
      } else {
        at = end;
      }
    }
  }
  return error;
}

Status check_stops(const std::vector<std::string>& stops) {
  for (std::size_t i = 0; i < stops.size(); ++i) {
    const std::string name = stops.size() == 1 ? "--stop" : fmt::format("--stop, text {}", i + 1);
    if (stops[i].empty()) {
      return fail(ErrorCode::kInvalidArgument, "{}: empty, at least one character needed", name);
    }
    TRINE_TRY(check_text(stops[i], name));
  }
  return {};
}

// Collects the events of one request.
class Collector {
 public:
  Collector(Generation& out, std::optional<Error>& error,
            const std::function<void(std::int32_t, std::string_view)>& on_text)
      : out_(out), error_(error), on_text_(on_text) {}

  void operator()(const TokenEvent& event) {
    Answer& answer = out_.answers[static_cast<std::size_t>(event.answer)];
    if (event.token >= 0) {
      answer.ids.push_back(event.token);
      if (event.logprobs != nullptr) {
        answer.logprobs.push_back(*event.logprobs);
      }
    }
    answer.text += event.text;
    if (!event.text.empty()) {
      on_text_(event.answer, event.text);
    }
    if (event.finish.has_value()) {
      answer.finish = *event.finish;
      answer.matched_stop = event.matched_stop;
    }
    if (event.error != nullptr) {
      error_ = *event.error;
    }
    if (event.stats != nullptr) {
      out_.stats = *event.stats;
    }
  }

 private:
  Generation& out_;
  std::optional<Error>& error_;
  const std::function<void(std::int32_t, std::string_view)>& on_text_;
};

}  // namespace

bool Generation::cancelled() const {
  return std::any_of(answers.begin(), answers.end(), [](const Answer& answer) {
    return answer.finish == FinishReason::kCancelled;
  });
}

std::vector<std::string_view> session_options() {
  return joined(joined(joined(sampling_options(), structure_options()), model_options()),
                {"step-tokens", "prefix-cache"});
}

Result<Session> Session::open(CommandContext& context, std::int32_t max_answers) {
  options::Settings& settings = context.settings();
  TRINE_TRY(apply_isa(settings));
  // Before the model is read: what is wrong in a grammar is said at once.
  TRINE_TRY_ASSIGN(grammar::AutomatonPtr automaton, asked_structure(settings));
  TRINE_TRY_ASSIGN(const std::string path, model_path(settings, context.argument(0)));
  Session out;
  TRINE_TRY_ASSIGN(out.bundle_, ModelBundle::load(path, load_options(settings)));
  TRINE_TRY_ASSIGN(out.tokenizer_, out.text().tokenizer());
  if (automaton != nullptr) {
    out.grammar_ = grammar::CompiledGrammar::create(std::move(automaton),
                                                    grammar::TokenTrie::build(*out.tokenizer_));
  }
  TRINE_TRY(apply_generation_defaults(out.text().generation(), settings));
  EngineOptions options;
  options.num_threads = static_cast<int>(settings.integer("threads"));
  options.kv_dtype = kv_dtype(settings);
  options.context_tokens = load_options(settings).max_context;
  options.step_tokens = static_cast<std::int32_t>(settings.integer("step-tokens"));
  options.prefix_cache = settings.flag("prefix-cache");
  options.max_sequences = max_answers;
  options.weight_bytes_per_step = out.bundle_.weight_bytes_per_step;
  options.eos_ids = end_ids(out.text(), out.config());
  auto engine = Engine::create(out.bundle_.model, out.tokenizer_, options);
  if (!engine.has_value()) {
    return tl::unexpected(with_flag_names(std::move(engine).error()));
  }
  out.engine_ = *std::move(engine);
  options.context_tokens = out.engine_->context_tokens();
  out.options_ = std::move(options);
  return out;
}

Result<GenerationRequest> Session::request(std::vector<std::int32_t> prompt,
                                           const options::Settings& settings) const {
  GenerationRequest out;
  out.prompt = std::move(prompt);
  TRINE_TRY_ASSIGN(out.sampling, sampling_params(settings, *tokenizer_));
  if (auto max_tokens = settings.maybe_integer("max-tokens"); max_tokens.has_value()) {
    // The model's own number is a wish, not a demand: it may not make a long prompt fail.
    if (settings.origin("max-tokens") == options::Origin::kModel) {
      const std::int64_t left = context_tokens() - static_cast<std::int64_t>(out.prompt.size());
      max_tokens = std::max<std::int64_t>(1, std::min(*max_tokens, left));
    }
    out.max_tokens = static_cast<std::int32_t>(*max_tokens);
  }
  out.stop = settings.list("stop");
  TRINE_TRY(check_stops(out.stop));
  out.include_stop = settings.flag("include-stop");
  for (const std::string& text : settings.list("stop-ids")) {
    TRINE_TRY_ASSIGN(const std::vector<std::int32_t> ids, parse_ids(text, "--stop-ids"));
    out.stop_ids.insert(out.stop_ids.end(), ids.begin(), ids.end());
  }
  out.ignore_eos = settings.flag("ignore-eos");
  out.grammar = grammar_;
  out.cancel = &interrupt_flag();
  return out;
}

Result<std::vector<std::int32_t>> Session::encode_chat(const Json& messages) const {
  TRINE_TRY_ASSIGN(const auto chat, text().chat_template(false));
  const bool has_system = !messages.empty() && messages[0].value("role", "") == "system";
  if (has_system && !chat->caps().system_role) {
    return fail(ErrorCode::kUnsupported,
                "the model's chat template has no place for a system prompt; leave it out");
  }
  text::ChatTemplateInput input;
  input.messages = &messages;
  input.bos_token = text().bos_token();
  input.eos_token = text().eos_token();
  input.now_unix_s = static_cast<std::int64_t>(std::time(nullptr));
  TRINE_TRY_ASSIGN(const std::vector<text::TextPart> parts, chat->render(input));
  return encode_conversation(*tokenizer_, parts, bundle_.model->config());
}

Status Session::make_room(const GenerationRequest& request) {
  const std::int64_t context = context_tokens();
  const auto prompt = static_cast<std::int64_t>(request.prompt.size());
  const std::int64_t longest =
      request.max_tokens.has_value() ? prompt + *request.max_tokens : context;
  if (prompt >= context || longest > context) {
    return {};  // submit() says so
  }
  // Whole pages of the prompt are shared. At most 1024 answers of 2^31 tokens: no overflow.
  const std::int64_t shared = prompt / kPageTokens;
  const std::int64_t pages_each = (longest + kPageTokens - 1) / kPageTokens - shared;
  const std::int64_t pages = shared + std::int64_t{request.n} * pages_each;
  if (pages <= engine_->pool().num_pages()) {
    return {};
  }
  EngineOptions options = options_;
  options.kv_tokens = pages * kPageTokens;
  engine_.reset();
  auto engine = Engine::create(bundle_.model, tokenizer_, options);
  if (!engine.has_value()) {
    return fail(engine.error().code,
                "--n {}: the answers of {} prompt tokens and up to {} more each do not fit; lower "
                "--n, -n (--max-tokens) or --ctx ({})",
                request.n, prompt, longest - prompt, engine.error().message);
  }
  engine_ = *std::move(engine);
  return {};
}

Result<Generation> Session::generate(
    GenerationRequest request, const std::function<void(std::int32_t, std::string_view)>& on_text) {
  TRINE_TRY(make_room(request));
  Generation out;
  out.answers.resize(static_cast<std::size_t>(request.n));
  std::optional<Error> error;
  const Result<RequestId> id = engine_->submit(std::move(request), Collector(out, error, on_text));
  if (!id.has_value()) {
    return tl::unexpected(with_flag_names(id.error()));
  }
  while (engine_->step()) {
    if (!output_ok()) {
      engine_->cancel(*id);
    }
  }
  if (error.has_value()) {
    return tl::unexpected(with_flag_names(*std::move(error)));
  }
  return out;
}

std::string stats_line(const RequestStats& stats) {
  std::string out = fmt::format("prompt {} tokens, answer {} tokens", stats.prompt_tokens,
                                stats.generated_tokens);
  if (stats.generated_tokens > 0) {
    out += fmt::format("; TTFT {:.1f} ms; prefill {:.1f} tokens/s", stats.ttft_ms,
                       stats.prefill_tokens_per_s());
  }
  if (stats.decode_steps > 0) {
    out += fmt::format("; decode {:.1f} tokens/s", stats.decode_tokens_per_s());
    if (stats.weight_bytes_per_step > 0) {
      out += fmt::format(", {:.2f} GB/s of weights", stats.decode_gb_per_s());
    }
  }
  return out + fmt::format("; seed {} (measured)", stats.seed);
}

Json stats_json(const RequestStats& stats) {
  return {{"prompt_tokens", stats.prompt_tokens},
          {"generated_tokens", stats.generated_tokens},
          {"ttft_ms", stats.ttft_ms},
          {"prefill_ms", stats.prefill_ms},
          {"prefill_tokens_per_s", stats.prefill_tokens_per_s()},
          {"decode_ms", stats.decode_ms},
          {"decode_steps", stats.decode_steps},
          {"decode_tokens_per_s", stats.decode_tokens_per_s()},
          {"decode_gb_per_s", stats.decode_gb_per_s()},
          {"weight_bytes_per_step", stats.weight_bytes_per_step},
          {"kind", "measured"}};
}

Json answer_json(const Answer& answer, const text::Tokenizer& tokenizer) {
  // Rows of the model past the tokenizer's ids are padding without a spelling.
  const auto piece = [&tokenizer](std::int32_t id) {
    return id < tokenizer.vocab_size() ? tokenizer.piece(id) : std::string_view();
  };
  Json out = {{"text", answer.text},
              {"ids", answer.ids},
              {"finish_reason", finish_reason_name(answer.finish)}};
  if (!answer.matched_stop.empty()) {
    out["matched_stop"] = answer.matched_stop;
  }
  if (!answer.logprobs.empty()) {
    Json list = Json::array();
    for (std::size_t i = 0; i < answer.logprobs.size(); ++i) {
      Json top = Json::array();
      for (const sampling::TokenLogprob& entry : answer.logprobs[i].top) {
        top.push_back(
            {{"id", entry.token}, {"piece", piece(entry.token)}, {"logprob", entry.logprob}});
      }
      list.push_back({{"id", answer.ids[i]},
                      {"piece", piece(answer.ids[i])},
                      {"logprob", answer.logprobs[i].chosen},
                      {"top", std::move(top)}});
    }
    out["logprobs"] = std::move(list);
  }
  return out;
}

}  // namespace trine::app
