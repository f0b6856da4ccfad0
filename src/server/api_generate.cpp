// The endpoints that run the model: /v1/completions, /v1/chat/completions, /v1/responses and
// /v1/embeddings.
#include <algorithm>
#include <ctime>
#include <iterator>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "sampling/sampling_params.h"
#include "server/api.h"
#include "server/api_impl.h"
#include "server/openai/prompt.h"
#include "server/openai/tool_calls.h"

namespace trine::server {

using http::Auth;
using http::Method;
using http::Request;
using http::Responder;

namespace {

// A request on its way to the engine.
struct Prepared {
  std::vector<std::vector<std::int32_t>> prompts;
  std::optional<openai::Constraint> constraint;
  std::shared_ptr<const grammar::CompiledGrammar> grammar;
};

// `field` is where the prompt stands in the body.
openai::ApiResult<std::vector<std::int32_t>> encode_prompt(const openai::Prompt& prompt,
                                                           bool add_special,
                                                           const ServedModel& model,
                                                           std::string_view field) {
  if (const auto* ids = std::get_if<std::vector<std::int32_t>>(&prompt); ids != nullptr) {
    return *ids;
  }
  // A raw prompt is the caller's own text from end to end: control tokens in it are meant.
  auto ids = model.tokenizer->encode(std::get<std::string>(prompt),
                                     {.add_special = add_special, .parse_special = true});
  if (!ids.has_value()) {
    return tl::unexpected(openai::api_error(ids.error(), std::string(field)));
  }
  return *std::move(ids);
}

openai::ApiStatus prepare(const openai::CompletionRequest& asked, const ServedModel& model,
                          Prepared& out) {
  for (const openai::Prompt& prompt : asked.prompts) {
    auto ids = encode_prompt(prompt, asked.add_special_tokens, model, "prompt");
    if (!ids.has_value()) {
      return tl::unexpected(std::move(ids).error());
    }
    out.prompts.push_back(*std::move(ids));
  }
  return {};
}

openai::ApiStatus prepare_conversation(const openai::Conversation& conversation,
                                       const openai::ToolRequest& tools, const ServedModel& model,
                                       std::vector<std::string>& warnings, Prepared& out) {
  std::string prefix;
  if (conversation.tools != nullptr) {
    auto forcing = openai::force_tool_call(tools, *conversation.tools, model.tool_family);
    if (!forcing.has_value()) {
      return tl::unexpected(std::move(forcing).error());
    }
    if (const auto& forced = *forcing; forced.has_value()) {
      prefix = forced->prefix;
      out.constraint = forced->constraint;
    }
  }
  auto parts = render_conversation(conversation, model, warnings, prefix);
  if (!parts.has_value()) {
    return tl::unexpected(std::move(parts).error());
  }
  auto ids = encode_conversation(*model.tokenizer, *parts, model.bundle.model->config());
  if (!ids.has_value()) {
    return tl::unexpected(openai::api_error(ids.error(), "messages"));
  }
  out.prompts.push_back(*std::move(ids));
  return {};
}

openai::ApiStatus prepare(openai::ChatRequest& asked, const ServedModel& model, Prepared& out) {
  return prepare_conversation(asked.conversation, asked.tools, model, asked.warnings, out);
}

openai::ApiStatus prepare(openai::ResponsesRequest& asked, const ServedModel& model,
                          Prepared& out) {
  return prepare_conversation(asked.conversation, asked.tools, model, asked.warnings, out);
}

// Compiled here, on a text thread and within the budgets of grammar/limits.h, or found among those
// compiled before. A field that cannot be a grammar is named.
openai::ApiStatus compile_constraint(const ServedModel& model, Prepared& out) {
  if (!out.constraint.has_value()) {
    return {};
  }
  const auto named = [&](const Error& error) {
    const std::string& field = out.constraint->field;
    return tl::unexpected(openai::api_error(Error(error).with_context(field), field));
  };
  auto made = model.grammars->get(out.constraint->notation, out.constraint->text);
  if (!made.has_value()) {
    return named(made.error());
  }
  // The engine makes one for each answer: a budget that its first place breaks is told now.
  const auto first = grammar::Matcher::create(*made);
  if (!first.has_value()) {
    return named(first.error());
  }
  out.grammar = *std::move(made);
  return {};
}

// One request for each input.
openai::ApiResult<std::vector<GenerationRequest>> embedding_requests(
    const openai::EmbeddingsRequest& asked, const ServedModel& model, Pooling by_default) {
  const std::int32_t width = model.bundle.model->config().embed_dim;
  if (const std::int32_t wanted = asked.dimensions.value_or(width); wanted != width) {
    return tl::unexpected(openai::bad_field(
        "dimensions", fmt::format("is {}, must be {}: vectors of this model are not made to be cut",
                                  wanted, width)));
  }
  std::vector<GenerationRequest> out;
  for (const openai::Prompt& input : asked.inputs) {
    auto ids = encode_prompt(input, asked.add_special_tokens, model, "input");
    if (!ids.has_value()) {
      return tl::unexpected(std::move(ids).error());
    }
    GenerationRequest& one = out.emplace_back();
    one.prompt = *std::move(ids);
    one.names.prompt = "input";
    if (asked.inputs.size() > 1) {
      one.names.prompt += fmt::format("[{}]", out.size() - 1);
    }
    one.priority = asked.priority;
    one.pooling = asked.pooling == openai::Pooling::kMean   ? Pooling::kMean
                  : asked.pooling == openai::Pooling::kLast ? Pooling::kLast
                                                            : by_default;
  }
  return out;
}

std::string random_id() {
  return fmt::format("{:016x}{:016x}", sampling::random_seed().value_or(1),
                     sampling::random_seed().value_or(2));
}

// The request again, with the defaults of the model that it turned out to be for.
template <typename Parsed, typename Parse>
openai::ApiResult<std::shared_ptr<Parsed>> with_defaults(std::shared_ptr<Parsed> asked, Parse parse,
                                                         std::string_view body,
                                                         openai::Limits limits,
                                                         const RequestDefaults& defaults) {
  if (defaults.text.empty()) {
    return asked;
  }
  limits.default_sampling = defaults.sampling;
  limits.default_max_tokens = defaults.max_tokens;
  openai::ApiResult<Parsed> parsed = parse(body, limits);
  if (!parsed.has_value()) {
    return tl::unexpected(std::move(parsed).error());
  }
  return std::make_shared<Parsed>(*std::move(parsed));
}

// Everything between a parsed request and its prompts' tokens.
template <typename Parsed>
openai::ApiResult<Prepared> prepare_all(Parsed& asked, const ServedModel& model) {
  Prepared out;
  out.constraint = asked.constraint;
  openai::ApiStatus status = prepare(asked, model, out);
  if (status.has_value()) {
    status = compile_constraint(model, out);
  }
  if (!status.has_value()) {
    return tl::unexpected(std::move(status).error());
  }
  if (const Status added = openai::add_bad_words(*model.tokenizer, asked); !added.has_value()) {
    return tl::unexpected(openai::api_error(added.error(), "bad_words"));
  }
  return out;
}

// What is left of the context, where nobody asked for a number.
void fit_default_length(bool by_default, std::int32_t context_tokens, GenerationRequest& request) {
  if (by_default && request.max_tokens.has_value()) {
    const std::int64_t room = std::int64_t{context_tokens} - std::ssize(request.prompt);
    request.max_tokens = static_cast<std::int32_t>(
        std::clamp<std::int64_t>(room, 1, std::max(*request.max_tokens, 1)));
  }
}

}  // namespace

template <typename Parsed>
void Api::generate(Request request, const Responder& responder, Parse<Parsed> parse) {
  post_text(responder, [this, responder, parse, request = std::move(request)] {
    openai::ApiResult<Parsed> parsed = parse(request.body, limits());
    if (!parsed.has_value()) {
      responder.send(to_response(parsed.error()));
      return;
    }
    const auto first = std::make_shared<Parsed>(*std::move(parsed));
    with_model(
        first->model, responder, [this, responder, parse, first, request](const Lease& model) {
          const auto asked = with_defaults(first, parse, request.body, limits(), model->defaults);
          if (!asked.has_value()) {
            responder.send(to_response(asked.error()));
            return;
          }
          auto prepared = prepare_all(**asked, *model);
          if (!prepared.has_value()) {
            responder.send(to_response(prepared.error()));
            return;
          }
          const auto job = std::make_shared<Job>(
              responder,
              openai::make_answer(**asked,
                                  {.id = random_id(),
                                   .model = model->spec.id,
                                   .created_unix_s = std::time(nullptr),
                                   .tokenizer = model->tokenizer,
                                   .system_fingerprint = fmt::format("trine-{}", options_.version),
                                   .tool_family = model->tool_family,
                                   .id_seed = sampling::random_seed().value_or(0)}),
              (*asked)->stream);
          job->set_prompts(prepared->prompts);
          for (std::vector<std::int32_t>& prompt : prepared->prompts) {
            GenerationRequest& one = job->requests.emplace_back((*asked)->generation);
            one.prompt = std::move(prompt);
            if (prepared->prompts.size() > 1) {
              one.names.prompt += fmt::format("[{}]", job->requests.size() - 1);
            }
            one.tenant = request.principal.tenant;
            one.grammar = prepared->grammar;
            fit_default_length((*asked)->max_tokens_by_default, model->engine->context_tokens(),
                               one);
          }
          start(job, model, responder);
        });
  });
}

void Api::start(const std::shared_ptr<Job>& job, const Lease& model, const Responder& responder) {
  job->lease = std::const_pointer_cast<ServedModel>(model);
  job->watch_client([model_engine = std::weak_ptr<const ServedModel>(model)] {
    if (const auto alive = model_engine.lock(); alive != nullptr) {
      alive->engine->poke();
    }
  });
  if (draining_.load()) {
    responder.send(to_response(shutting_down()));
  } else if (!model->engine->submit(job)) {
    responder.send(to_response(too_busy()));
  }
}

void Api::embed(Request request, const Responder& responder) {
  post_text(responder, [this, responder, request = std::move(request)] {
    auto parsed = openai::parse_embeddings(request.body, limits());
    if (!parsed.has_value()) {
      responder.send(to_response(parsed.error()));
      return;
    }
    const auto asked = std::make_shared<const openai::EmbeddingsRequest>(*std::move(parsed));
    with_model(asked->model, responder,
               [this, responder, asked, tenant = request.principal.tenant](const Lease& model) {
                 auto requests = embedding_requests(*asked, *model, options_.pooling);
                 if (!requests.has_value()) {
                   responder.send(to_response(requests.error()));
                   return;
                 }
                 openai::AnswerContext context;
                 context.model = model->spec.id;
                 const auto job = std::make_shared<Job>(
                     responder, openai::make_answer(*asked, std::move(context)), false);
                 std::vector<std::vector<std::int32_t>> prompts;
                 for (GenerationRequest& one : *requests) {
                   prompts.push_back(one.prompt);
                   one.tenant = tenant;
                 }
                 job->set_prompts(prompts);
                 job->requests = *std::move(requests);
                 start(job, model, responder);
               });
  });
}

void Api::add_generation(http::RouteTable& table) {
  const auto post = [&table](std::string path, http::Handler handler) {
    table.push_back({.method = Method::kPost,
                     .path = std::move(path),
                     .auth = Auth::kUser,
                     .handler = std::move(handler)});
  };
  post("/v1/completions", [this](Request request, const Responder& responder) {
    generate(std::move(request), responder, &openai::parse_completion);
  });
  post("/v1/chat/completions", [this](Request request, const Responder& responder) {
    generate(std::move(request), responder, &openai::parse_chat);
  });
  post("/v1/responses", [this](Request request, const Responder& responder) {
    generate(std::move(request), responder, &openai::parse_responses);
  });
  post("/v1/embeddings", [this](Request request, const Responder& responder) {
    embed(std::move(request), responder);
  });
}

}  // namespace trine::server
