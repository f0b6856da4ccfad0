// The rows. Order here is the order of docs/api.md.
#include <cstddef>

#include "server/openai/schema.h"

namespace trine::server::openai {

namespace {

constexpr std::uint32_t bit(Shape shape) {
  return 1u << static_cast<unsigned>(shape);
}

constexpr std::uint32_t kC = bit(Shape::kCompletions);
constexpr std::uint32_t kH = bit(Shape::kChat);
constexpr std::uint32_t kR = bit(Shape::kResponses);
constexpr std::uint32_t kE = bit(Shape::kEmbeddings);
constexpr std::uint32_t kT = bit(Shape::kTokenize);
constexpr std::uint32_t kD = bit(Shape::kDetokenize);
constexpr std::uint32_t kA = bit(Shape::kApplyTemplate);
constexpr std::uint32_t kGenerate = kC | kH | kR;
constexpr std::uint32_t kTalk = kH | kR | kT | kA;
constexpr double kInt32Max = 2147483647.0;
constexpr double kInt64Max = 9223372036854775807.0;

struct Rows {
  std::uint32_t shapes;
  Field field;
};

using enum FieldState;

Field honoured(std::string_view name, unsigned kinds, std::string_view note) {
  return {.name = name, .kinds = static_cast<std::uint8_t>(kinds), .note = note};
}

Field ranged(std::string_view name, unsigned kinds, double min, double max,
             std::string_view default_text, std::string_view note) {
  Field out = honoured(name, kinds, note);
  out.min = min;
  out.max = max;
  out.default_text = default_text;
  return out;
}

Field above(Field field) {
  field.above_min = true;
  return field;
}

Field required(Field field) {
  field.required = true;
  return field;
}

Field with_default(Field field, std::string_view text) {
  field.default_text = text;
  return field;
}

Field choice(std::string_view name, std::string_view choices, std::string_view default_text,
             std::string_view note) {
  Field out = honoured(name, kString, note);
  out.choices = choices;
  out.default_text = default_text;
  return out;
}

Field alias(std::string_view name, std::string_view of) {
  Field out = honoured(name, kAny, "another name");
  out.alias_of = of;
  return out;
}

Field refused(std::string_view name, std::string_view neutral, std::string_view note) {
  Field out = honoured(name, kAny, note);
  out.state = kRefused;
  out.neutral = neutral;
  return out;
}

Field ignored(std::string_view name, unsigned kinds, std::string_view note) {
  Field out = honoured(name, kinds, note);
  out.state = kIgnored;
  return out;
}

std::vector<Rows> basic_rows() {
  return {
      {kGenerate | kE | kT | kD | kA,
       with_default(ranged("model", kString, 0, 256, "", "one of GET /v1/models"),
                    "the first model")},
      {kC, required(honoured("prompt", kString | kArray,
                             "a text, a list of texts, token ids, or a list of lists of ids"))},
      {kH | kA, required(honoured("messages", kArray, "the conversation; see messages[]"))},
      {kR, required(honoured("input", kString | kArray, "a text or items; see input[]"))},
      {kR, honoured("instructions", kString, "a system message before the input")},
      {kGenerate, with_default(honoured("stream", kBool, "server-sent events"), "false")},
      {kGenerate, honoured("stream_options", kObject, "with stream only; see stream_options")},
      {kC, ranged("max_tokens", kInt, 0, kInt32Max, "16", "0 with echo only")},
      {kH, with_default(ranged("max_completion_tokens", kInt, 1, kInt32Max, "",
                               "tokens of an "
                               "answer"),
                        "to the end of the context")},
      {kH, alias("max_tokens", "max_completion_tokens")},
      {kC, alias("max_completion_tokens", "max_tokens")},
      {kH, alias("n_predict", "max_completion_tokens")},
      {kC, alias("n_predict", "max_tokens")},
      {kR, with_default(ranged("max_output_tokens", kInt, 1, kInt32Max, "", "tokens of the answer"),
                        "to the end of the context")},
      {kC | kH, ranged("n", kInt, 1, 128, "1",
                       "answers to each prompt; answer i draws with seed + "
                       "i")},
      {kR, refused("n", "1", "one answer per response")},
      {kC, ranged("best_of", kInt, 1, 128, "n",
                  "answers drawn, of which the n with the best mean "
                  "log-probability are given; above n not with stream")},
      {kC, with_default(honoured("echo", kBool,
                                 "the prompt before the answer; with logprobs also "
                                 "those of the prompt"),
                        "false")},
      {kH, with_default(honoured("echo", kBool,
                                 "the continued message before its continuation; "
                                 "with continue_final_message only"),
                        "false")},
      {kC, refused("suffix", "\"\"", "there is no fill-in-the-middle")},
  };
}

std::vector<Rows> sampling_rows() {
  return {
      {kGenerate, ranged("temperature", kNumber, 0, 100, "the model's, else 1", "0 is greedy")},
      {kGenerate, above(ranged("top_p", kNumber, 0, 1, "the model's, else 1", "docs/sampling.md"))},
      {kGenerate, ranged("top_k", kInt, -1, kInt32Max, "the model's, else 0", "0 and -1: off")},
      {kGenerate, ranged("min_p", kNumber, 0, 1, "the model's, else 0", "docs/sampling.md")},
      {kGenerate, above(ranged("typical_p", kNumber, 0, 1, "1", "docs/sampling.md"))},
      {kGenerate, ranged("repetition_penalty", kNumber, 0.01, 100, "the model's, else 1",
                         "of prompt and answer")},
      {kGenerate, alias("repeat_penalty", "repetition_penalty")},
      {kGenerate, ranged("presence_penalty", kNumber, -2, 2, "0", "of the answer")},
      {kGenerate, ranged("frequency_penalty", kNumber, -2, 2, "0", "of the answer")},
      {kGenerate, ranged("logit_bias", kObject, 0, 1024, "", "token id as text to [-100, 100]")},
      {kGenerate, ranged("bad_words", kArray, 0, 128, "",
                         "texts whose own tokens, also behind a space, may not follow each other")},
      {kGenerate, with_default(ranged("seed", kInt, 0, kInt64Max, "",
                                      "the same seed, the same "
                                      "answer"),
                               "drawn")},
      {kGenerate,
       honoured("stop", kString | kArray, "up to 16 texts of 1 to 1024 bytes that end the answer")},
      {kGenerate, ranged("stop_token_ids", kArray, 0, 128, "", "tokens that end the answer")},
      {kGenerate, with_default(honoured("include_stop_str_in_output", kBool,
                                        "show what stopped "
                                        "it"),
                               "false")},
      {kGenerate, ranged("min_tokens", kInt, 0, kInt32Max, "0", "no stop before so many")},
      {kGenerate, with_default(honoured("ignore_eos", kBool, "go on to max_tokens"), "false")},
      {kGenerate, with_default(honoured("skip_special_tokens", kBool,
                                        "control tokens are not "
                                        "shown"),
                               "true")},
      {kC, ranged("logprobs", kInt, 0, 100, "",
                  "log-probabilities of each token and of so many "
                  "alternatives")},
      {kH, with_default(honoured("logprobs", kBool, "log-probabilities of each token"), "false")},
      {kH | kR, ranged("top_logprobs", kInt, 0, 100, "0", "so many alternatives to each token")},
      {kC | kH, with_default(honoured("return_tokens_as_token_ids", kBool,
                                      "tokens in logprobs as "
                                      "token_id:17"),
                             "false")},
      {kC | kH, with_default(honoured("return_token_ids", kBool,
                                      "token_ids and prompt_token_ids "
                                      "in the choices"),
                             "false")},
      {kC | kH, alias("return_tokens", "return_token_ids")},
  };
}

std::vector<Rows> talk_rows() {
  return {
      {kTalk, ranged("tools", kArray, 0, 128, "", "functions; see tools[]")},
      {kH | kR, with_default(honoured("tool_choice", kString | kObject,
                                      "none, auto, required, or "
                                      "the function"),
                             "auto with tools, else none")},
      {kH | kR, with_default(honoured("parallel_tool_calls", kBool,
                                      "false: the first call is "
                                      "given"),
                             "true")},
      {kTalk, ranged("chat_template_kwargs", kObject, 0, 64, "",
                     "variables of the template; its own "
                     "names are refused")},
      {kH | kR | kT | kA, refused("chat_template", "",
                                  "templates come with the model; a request "
                                  "cannot bring one")},
      {kH | kT | kA, with_default(honoured("add_generation_prompt", kBool,
                                           "end the prompt where an "
                                           "answer begins"),
                                  "true")},
      {kH | kT | kA, with_default(honoured("continue_final_message", kBool,
                                           "go on inside the last "
                                           "message; needs add_generation_prompt false or absent"),
                                  "false")},
      {kH | kA, ranged("documents", kArray, 0, 1024, "", "given to the template")},
      {kH, ranged("reasoning_effort", kString, 1, 32, "", "given to the template under this name")},
      {kR, refused("reasoning", "{}", "set what the template knows in chat_template_kwargs")},
      {kH | kC, honoured("response_format", kObject,
                         "text, json_object or json_schema; see "
                         "response_format")},
      {kR, honoured("text", kObject, "see text")},
      {kGenerate, honoured("structured_outputs", kObject, "one grammar; see structured_outputs")},
      {kGenerate, honoured("guided_json", kObject | kString | kBool, "a JSON Schema")},
      {kGenerate, alias("json_schema", "guided_json")},
      {kGenerate, ranged("guided_regex", kString, 1, 262144, "", "a regular expression")},
      {kGenerate, ranged("guided_choice", kArray, 1, 1024, "", "one of these texts")},
      {kGenerate, ranged("guided_grammar", kString, 1, 262144, "", "GBNF")},
      {kGenerate, alias("grammar", "guided_grammar")},
      {kGenerate, refused("guided_decoding_backend", "", "there is one backend")},
      {kGenerate, refused("guided_whitespace_pattern", "", "white space is what JSON allows")},
  };
}

std::vector<Rows> serving_rows() {
  return {
      {kGenerate | kE, ranged("priority", kInt, -1000000, 1000000, "0", "lower values come first")},
      {kGenerate, ranged("cache_salt", kString, 1, 256, "",
                         "cached prompts are shared among "
                         "requests with the same salt only")},
      {kGenerate, above(ranged("timeout_ms", kNumber, 0, 86400000, "",
                               "past it the request ends "
                               "with an error"))},
      {kGenerate, honoured("speculative", kObject,
                           "reserved: checked, and without effect until "
                           "there is speculation, which never changes an answer; see speculative")},
      {kH | kR, ranged("metadata", kObject, 0, 16, "", "texts that the answer gives back")},
      {kC, ignored("metadata", kObject, "answers of this endpoint have no place for it")},
      {kGenerate | kE, ignored("user", kString, "the key says whose request it is")},
      {kH | kR, ignored("safety_identifier", kString, "the key says whose request it is")},
      {kH | kR, ignored("prompt_cache_key", kString, "the cache finds equal prompts itself")},
      {kH | kR, ignored("prompt_cache_retention", kString, "the cache keeps what has room")},
      {kH | kR, ignored("prompt_cache_options", kObject, "the cache keeps what has room")},
      {kH, ignored("prediction", kObject, "it would save time only")},
      {kGenerate | kE, ignored("request_id", kString, "ids are made here")},
      {kH | kR, refused("service_tier", "\"auto\";\"default\"", "use priority")},
      {kH | kR, refused("store", "false", "answers are not kept")},
      {kH, refused("audio", "", "text only")},
      {kH, refused("modalities", "[\"text\"];[]", "text only")},
      {kH, refused("functions", "[]", "use tools")},
      {kH, refused("function_call", "\"none\";\"auto\"", "use tool_choice")},
      {kH | kR, refused("moderation", "", "nothing is moderated")},
      {kH, refused("verbosity", "\"medium\"", "say it in a message")},
      {kH, refused("web_search_options", "", "there is no search")},
      {kR, refused("access_programs", "", "there are none")},
      {kR, refused("background", "false", "answers are not kept")},
      {kR, refused("context_management", "[]", "answers are not kept")},
      {kR, refused("conversation", "", "answers are not kept; send the items in input")},
      {kR, refused("image", "", "text only")},
      {kR, honoured("include", kArray, "message.output_text.logprobs, or nothing")},
      {kR, ignored("max_tool_calls", kInt, "it counts built-in tools, and there are none")},
      {kR, refused("previous_response_id", "", "answers are not kept; send the items in input")},
      {kR, refused("prompt", "", "prompts are not kept")},
      {kR, refused("truncation", "\"disabled\"", "nothing is cut off")},
  };
}

// Of vLLM and llama.cpp, where they differ from the above.
std::vector<Rows> peer_rows() {
  return {
      {kC, with_default(honoured("add_special_tokens", kBool,
                                 "a text begins as the tokenizer "
                                 "wants it"),
                        "true")},
      {kH, refused("add_special_tokens", "false", "the template writes them")},
      {kGenerate, refused("use_beam_search", "false", "there is no beam search")},
      {kGenerate, refused("length_penalty", "1;1.0", "it belongs to beam search")},
      {kGenerate, refused("early_stopping", "false", "it belongs to beam search")},
      {kC | kH,
       refused("prompt_logprobs", "", "/v1/completions gives them with echo and logprobs")},
      {kGenerate, refused("allowed_token_ids", "", "use guided_choice or a grammar")},
      {kGenerate, refused("spaces_between_special_tokens", "true", "text is shown as it is")},
      {kGenerate | kE | kT, refused("truncate_prompt_tokens", "", "nothing is cut off")},
      {kGenerate, refused("logits_processors", "[]", "a request cannot bring code")},
      {kGenerate, refused("prompt_embeds", "", "prompts are text or token ids")},
      {kH | kR | kT | kA, refused("mm_processor_kwargs", "{}", "text only")},
      {kGenerate, refused("kv_transfer_params", "", "the cluster sets it itself")},
      {kGenerate, refused("vllm_xargs", "{}", "there is nothing to set with it")},
      {kH, refused("include_reasoning", "true", "what the model writes is given")},
      {kH, refused("thinking_token_budget", "", "use max_completion_tokens")},
      {kGenerate, refused("cache_prompt", "true", "use a cache_salt of your own")},
      {kGenerate, refused("id_slot", "-1", "there are no slots")},
      {kGenerate, refused("n_keep", "0;-1", "nothing is cut off")},
      {kGenerate, refused("n_discard", "0", "nothing is cut off")},
      {kGenerate, refused("n_indent", "0", "use a grammar")},
      {kGenerate, refused("repeat_last_n", "-1", "penalties look at everything")},
      {kGenerate, refused("penalize_nl", "false", "use logit_bias")},
      {kGenerate, refused("mirostat", "0", "use top_p, min_p or typical_p")},
      {kGenerate, ignored("mirostat_tau", kNumber, "it belongs to mirostat")},
      {kGenerate, ignored("mirostat_eta", kNumber, "it belongs to mirostat")},
      {kGenerate, refused("dynatemp_range", "0;0.0", "use temperature")},
      {kGenerate, ignored("dynatemp_exponent", kNumber, "it belongs to dynatemp_range")},
      {kGenerate, refused("xtc_probability", "0;0.0", "use top_p, min_p or typical_p")},
      {kGenerate, ignored("xtc_threshold", kNumber, "it belongs to xtc_probability")},
      {kGenerate, refused("dry_multiplier", "0;0.0", "use the penalties")},
      {kGenerate, ignored("dry_base", kNumber, "it belongs to dry_multiplier")},
      {kGenerate, ignored("dry_allowed_length", kInt, "it belongs to dry_multiplier")},
      {kGenerate, ignored("dry_penalty_last_n", kInt, "it belongs to dry_multiplier")},
      {kGenerate, ignored("dry_sequence_breakers", kArray, "it belongs to dry_multiplier")},
      {kGenerate, refused("top_n_sigma", "-1;-1.0;0", "use top_p, min_p or typical_p")},
      {kGenerate, refused("tfs_z", "1;1.0", "use top_p, min_p or typical_p")},
      {kGenerate, refused("samplers", "", "the order is fixed: docs/sampling.md")},
      {kGenerate, refused("min_keep", "0", "there is no least number")},
      {kGenerate, refused("n_probs", "0", "use logprobs")},
      {kGenerate, refused("post_sampling_probs", "false", "logprobs are those of the model")},
      {kGenerate, refused("timings_per_token", "false", "GET /metrics has the times")},
      {kGenerate, refused("return_progress", "false", "there are no progress events")},
      {kGenerate, refused("t_max_predict_ms", "0;-1", "use timeout_ms")},
      {kGenerate, refused("lora", "[]", "there are no adapters")},
      {kGenerate, refused("response_fields", "[]", "answers are whole")},
      {kGenerate, refused("image_data", "[]", "text only")},
      {kH, refused("reasoning_format", "\"none\"", "what the model writes is given")},
      {kH, refused("thinking_forced_open", "false", "the template decides")},
      {kH, refused("parse_tool_calls", "true", "use tool_choice none")},
  };
}

std::vector<Rows> small_endpoint_rows() {
  return {
      {kE, required(honoured("input", kString | kArray,
                             "a text, a list of texts, token ids, or a list of lists of ids"))},
      {kE, choice("encoding_format", "float|base64", "float", "base64: little-endian float32")},
      {kE, ranged("dimensions", kInt, 1, 1048576, "the model's width",
                  "the model's width; vectors that were not trained for it are not cut")},
      {kE,
       choice("pooling", "mean|last", "--pooling", "of the tokens' vectors behind the last norm")},
      {kE, with_default(honoured("normalize", kBool, "vectors of length 1"), "true")},
      {kE, with_default(honoured("add_special_tokens", kBool,
                                 "a text begins and ends as the "
                                 "tokenizer wants it"),
                        "true")},
      {kE, refused("embed_dtype", "\"float32\"", "numbers are float32")},
      {kE, refused("endianness", "\"native\";\"little\"", "base64 is little-endian")},
      {kT, honoured("prompt", kString, "a text; or messages")},
      {kT, alias("content", "prompt")},
      {kT, honoured("messages", kArray, "a conversation, put through the template")},
      {kT, with_default(honoured("add_special_tokens", kBool,
                                 "a text begins as the tokenizer "
                                 "wants it"),
                        "true for a text, false for messages")},
      {kT, alias("add_special", "add_special_tokens")},
      {kT, with_default(honoured("parse_special", kBool,
                                 "control tokens in a text are taken as "
                                 "such"),
                        "false")},
      {kT, with_default(honoured("return_token_strs", kBool, "token_strs beside tokens"), "false")},
      {kT, refused("with_pieces", "false", "use return_token_strs")},
      {kD, required(ranged("tokens", kArray, 0, 1048576, "", "ids"))},
      {kD, with_default(honoured("skip_special_tokens", kBool, "control tokens are not shown"),
                        "false")},
  };
}

std::vector<Rows> message_rows() {
  constexpr std::uint32_t kM = bit(Shape::kMessage);
  constexpr std::uint32_t kP = bit(Shape::kContentPart);
  constexpr std::uint32_t kTC = bit(Shape::kToolCall);
  constexpr std::uint32_t kTF = bit(Shape::kToolCallFunction);
  return {
      {kM, required(choice("role", "system|developer|user|assistant|tool", "", "who speaks"))},
      {kM, honoured("content", kString | kArray,
                    "a text or parts; may be absent in an assistant "
                    "message with tool_calls")},
      {kM, ranged("name", kString, 1, 64, "", "given to the template")},
      {kM, ranged("tool_calls", kArray, 0, 128, "", "of an assistant message")},
      {kM, ranged("tool_call_id", kString, 1, 128, "", "of a tool message: which call it answers")},
      {kM,
       honoured("reasoning_content", kString, "of an assistant message, given to the template")},
      {kM, alias("reasoning", "reasoning_content")},
      {kM, alias("thinking", "reasoning_content")},
      {kM, honoured("refusal", kString, "of an assistant message: its content when it has none")},
      {kM, ignored("annotations", kArray, "they belong to built-in tools")},
      {kM, refused("audio", "", "text only")},
      {kM, refused("function_call", "", "use tool_calls")},
      {kM, refused("prefix", "false", "use continue_final_message")},
      {kP, required(honoured("type", kString,
                             "text, input_text, output_text or refusal; image_url, "
                             "input_image, input_audio, file and others are refused by name"))},
      {kP, honoured("text", kString, "of a text part")},
      {kP, honoured("refusal", kString, "of a refusal part")},
      {kP, ignored("annotations", kArray, "they belong to built-in tools")},
      {kP, ignored("logprobs", kArray, "they belong to answers")},
      {kP, refused("image_url", "", "text only")},
      {kP, refused("input_audio", "", "text only")},
      {kP, refused("video_url", "", "text only")},
      {kP, refused("audio_url", "", "text only")},
      {kP, refused("file", "", "text only")},
      {kP, refused("file_id", "", "text only")},
      {kP, refused("file_data", "", "text only")},
      {kP, refused("detail", "", "text only")},
      {kTC, ranged("id", kString, 1, 128, "", "given to the template")},
      {kTC, choice("type", "function", "function", "")},
      {kTC, required(honoured("function", kObject, "see messages[].tool_calls[].function"))},
      {kTC, ignored("index", kInt, "calls stand in order")},
      {kTF, required(ranged("name", kString, 1, 64, "", "of the function"))},
      {kTF, with_default(honoured("arguments", kString | kObject, "a JSON object, or one as text"),
                         "{}")},
  };
}

std::vector<Rows> tool_rows() {
  constexpr std::uint32_t kTo = bit(Shape::kTool);
  constexpr std::uint32_t kFn = bit(Shape::kFunction);
  constexpr std::uint32_t kRT = bit(Shape::kResponsesTool);
  return {
      {kTo, required(choice("type", "function", "", "other tools are refused"))},
      {kTo, required(honoured("function", kObject, "see tools[].function"))},
      {kRT, required(choice("type", "function", "", "built-in and custom tools are refused"))},
      {kFn | kRT,
       required(ranged("name", kString, 1, 64, "", "letters, digits, '_', '-' and '.'"))},
      {kFn | kRT, ranged("description", kString, 0, 65536, "", "given to the template")},
      {kFn | kRT, with_default(honoured("parameters", kObject, "a JSON Schema of an object"),
                               "no parameters")},
      {kFn | kRT, with_default(honoured("strict", kBool,
                                        "true: arguments follow the schema when "
                                        "tool_choice is required or names the function; with auto "
                                        "a warning says that they may not"),
                               "false")},
  };
}

std::vector<Rows> format_rows() {
  constexpr std::uint32_t kSO = bit(Shape::kStreamOptions);
  constexpr std::uint32_t kRF = bit(Shape::kResponseFormat);
  constexpr std::uint32_t kJS = bit(Shape::kJsonSchema);
  constexpr std::uint32_t kSt = bit(Shape::kStructuredOutputs);
  constexpr std::uint32_t kSp = bit(Shape::kSpeculative);
  constexpr std::uint32_t kTx = bit(Shape::kResponsesText);
  return {
      {kSO, with_default(honoured("include_usage", kBool,
                                  "a last chunk with the usage; "
                                  "/v1/responses always gives it"),
                         "false")},
      {kSO,
       with_default(honoured("continuous_usage_stats", kBool, "usage in every chunk"), "false")},
      {kSO, refused("include_obfuscation", "false", "chunks are not padded")},
      {kRF, required(choice("type", "text|json_object|json_schema", "", ""))},
      {kRF, honoured("json_schema", kObject, "see response_format.json_schema")},
      {kRF,
       honoured("schema", kObject | kBool, "a JSON Schema, with json_object and in text.format")},
      {kRF, honoured("name", kString, "in text.format; has no effect on the answer")},
      {kRF, honoured("description", kString, "in text.format; has no effect on the answer")},
      {kRF, honoured("strict", kBool, "in text.format; a schema is always followed")},
      {kJS,
       required(honoured("schema", kObject | kBool, "a JSON Schema (docs/structured-output.md)"))},
      {kJS, honoured("name", kString, "has no effect on the answer")},
      {kJS, honoured("description", kString, "has no effect on the answer")},
      {kJS, honoured("strict", kBool, "a schema is always followed")},
      {kSt, honoured("json", kObject | kString | kBool, "a JSON Schema")},
      {kSt, ranged("regex", kString, 1, 262144, "", "a regular expression")},
      {kSt, ranged("choice", kArray, 1, 1024, "", "one of these texts")},
      {kSt, ranged("grammar", kString, 1, 262144, "", "GBNF")},
      {kSt, honoured("json_object", kBool, "any JSON object")},
      {kSt, refused("disable_fallback", "false;true", "there is one backend")},
      {kSt, refused("disable_any_whitespace", "false", "white space is what JSON allows")},
      {kSt, refused("disable_additional_properties", "false", "say it in the schema")},
      {kSt, refused("whitespace_pattern", "", "white space is what JSON allows")},
      {kSt, refused("structural_tag", "", "use tools")},
      {kSp, with_default(honoured("enabled", kBool, "reserved"), "true")},
      {kSp, ranged("num_tokens", kInt, 0, 64, "", "reserved: tokens drafted per step")},
      {kSp, choice("method", "draft|ngram|medusa|eagle", "", "reserved")},
      {kTx, honoured("format", kObject,
                     "as response_format, with name, schema and strict beside "
                     "type")},
      {kTx, refused("verbosity", "\"medium\"", "say it in a message")},
  };
}

std::vector<Rows> item_rows() {
  constexpr std::uint32_t kI = bit(Shape::kResponsesItem);
  return {
      {kI, with_default(choice("type", "message|function_call|function_call_output|reasoning", "",
                               "other items are refused"),
                        "message")},
      {kI, choice("role", "system|developer|user|assistant", "", "of a message")},
      {kI, honoured("content", kString | kArray, "of a message: a text or parts")},
      {kI, ignored("id", kString, "answers are not kept")},
      {kI, ignored("status", kString, "items are taken as they are")},
      {kI, ignored("phase", kString, "templates do not know it")},
      {kI, ranged("call_id", kString, 1, 128, "", "of a function_call and its output")},
      {kI, ranged("name", kString, 1, 64, "", "of a function_call")},
      {kI, honoured("arguments", kString, "of a function_call: a JSON object as text")},
      {kI, honoured("output", kString | kArray, "of a function_call_output: a text or text parts")},
      {kI, ignored("summary", kArray, "of a reasoning item, which is left out")},
      {kI, refused("encrypted_content", "", "it cannot be read here")},
  };
}

std::vector<Field> make_table() {
  std::vector<Field> out;
  for (const auto& group :
       {basic_rows(), sampling_rows(), talk_rows(), serving_rows(), peer_rows(),
        small_endpoint_rows(), message_rows(), tool_rows(), format_rows(), item_rows()}) {
    for (const Rows& rows : group) {
      for (int i = 0; i < kNumShapes; ++i) {
        if ((rows.shapes >> i & 1u) != 0) {
          out.push_back(rows.field);
          out.back().shape = static_cast<Shape>(i);
        }
      }
    }
  }
  return out;
}

}  // namespace

std::span<const Field> field_table() {
  static const std::vector<Field> kTable = make_table();
  return kTable;
}

}  // namespace trine::server::openai
