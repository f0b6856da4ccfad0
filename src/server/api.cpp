// The table of routes, and the endpoints of operations and text.
#include "server/api.h"

#include <algorithm>
#include <ctime>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "server/api_impl.h"
#include "server/openai/prompt.h"
#include "server/page/page.h"

namespace trine::server {

using http::Auth;
using http::Method;
using http::Request;
using http::Responder;
using http::Response;
using Json = nlohmann::ordered_json;

openai::ApiError too_busy() {
  return {.status = 429,
          .message = "too many requests wait to be read; try again in 1 s",
          .type = "rate_limit_error",
          .code = "queue_full",
          .retry_after_s = 1};
}

openai::ApiError shutting_down() {
  return {.status = 503,
          .message = "the server is shutting down",
          .type = "unavailable_error",
          .code = "shutting_down",
          .retry_after_s = 10};
}

Response json_response(std::string body) {
  Response out;
  out.body = std::move(body);
  return out;
}

namespace {

Response status_response(int status, std::string_view word) {
  Response out = json_response(fmt::format(R"({{"status":"{}"}})", word));
  out.status = status;
  out.headers.push_back({"Cache-Control", "no-store"});
  return out;
}

// One value of a query such as model=a%2Fb; empty when it is not there.
std::string query_value(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(pair.size() + 1, query.size()));
    std::string value;
    if (pair.starts_with(name) && pair.substr(name.size()).starts_with('=') &&
        http::decode_path(pair.substr(name.size() + 1), value)) {
      return value;
    }
  }
  return {};
}

openai::ModelCard card_of(const ModelStatus& model) {
  return {.id = model.spec.id,
          .created_unix_s = model.loaded_unix_s,
          .max_model_len = model.context_tokens};
}

}  // namespace

openai::ApiResult<std::vector<text::TextPart>> render_conversation(
    const openai::Conversation& conversation, const ServedModel& model,
    std::vector<std::string>& warnings, std::string_view forced_prefix) {
  const ModelText& text = *model.bundle.text;
  const auto chat = text.chat_template(conversation.tools != nullptr);
  if (!chat.has_value()) {
    // Not the error's own words: they name a path of this machine and the program's commands.
    openai::ApiError error = openai::bad_field(
        "messages",
        fmt::format("cannot be used: model \"{}\" has no chat template (a base model?); "
                    "/v1/completions continues a text",
                    model.spec.id));
    error.code = "unsupported";
    return tl::unexpected(std::move(error));
  }
  Result<std::vector<text::TextPart>> parts =
      openai::render_prompt(conversation,
                            {.chat_template = chat->get(),
                             .bos_token = text.bos_token(),
                             .eos_token = text.eos_token(),
                             .now_unix_s = std::time(nullptr)},
                            forced_prefix);
  if (!parts.has_value()) {
    return tl::unexpected(openai::api_error(parts.error(), "messages"));
  }
  for (std::string& one : openai::template_warnings(conversation, **chat)) {
    warnings.push_back(std::move(one));
  }
  return *std::move(parts);
}

http::RouteTable Api::routes() {
  http::RouteTable table;
  add_operations(table);
  add_text(table);
  add_generation(table);
  add_admin(table);
  if (options_.web_page) {
    page::add_routes(table);
  }
  return table;
}

Response Api::ready() const {
  const Readiness now = readiness();
  return status_response(now.serves && !now.full ? 200 : 503, now.full ? "queue_full" : now.word);
}

// As vLLM and llama.cpp have it: many restart what is not healthy, and a full queue is no reason.
Response Api::health() const {
  const Readiness now = readiness();
  return now.serves ? status_response(200, "ok") : status_response(503, now.word);
}

Api::Readiness Api::readiness() const {
  if (draining_.load()) {
    return {.word = "draining"};
  }
  bool any_ready = false;
  bool any_full = false;
  for (const ModelStatus& model : models_.status()) {
    // Unused models that were put away count: a probe must not keep from them the request that
    // loads them again.
    any_ready = any_ready || model.on_demand;
    any_full = any_full || model.queue_full;
  }
  if (!started_.load() || !any_ready) {
    return {.word = started_.load() ? "no_model" : "loading"};
  }
  return {.word = "ready", .serves = true, .full = any_full};
}

Response Api::progress() const {
  for (const ModelStatus& model : models_.status()) {
    if (is_stalled(model.progress, options_.progress_timeout_s)) {
      return status_response(503, "stalled");
    }
  }
  return status_response(200, "moving");
}

Response Api::metrics_page() const {
  std::vector<ModelMetrics> models;
  for (const ModelStatus& model : models_.status()) {
    models.push_back({.model = model.spec.id,
                      .engine = model.engine,
                      .loaded = model.state == ModelState::kReady,
                      .weight_bytes = static_cast<double>(model.weight_bytes)});
  }
  const http::Server* server = http_.load();
  Response out = json_response(
      metrics_.page(models, server != nullptr ? server->counters() : http::ServerCounters{}));
  out.content_type = "text/plain; version=0.0.4; charset=utf-8";
  return out;
}

Response Api::models_list() const {
  std::vector<openai::ModelCard> cards;
  for (const ModelStatus& model : models_.status()) {
    cards.push_back(card_of(model));
  }
  return json_response(openai::models_body(cards));
}

Response Api::one_model(const std::string& id) const {
  for (const ModelStatus& model : models_.status()) {
    if (model.spec.id == id) {
      return json_response(openai::model_body(card_of(model)));
    }
  }
  return to_response(openai::model_not_found(id));
}

void Api::add_operations(http::RouteTable& table) {
  const auto get = [&table](std::string_view path, Auth auth, auto make) {
    table.push_back({.method = Method::kGet,
                     .path = std::string(path),
                     .auth = auth,
                     .handler = [make](Request request, const Responder& responder) {
                       responder.send(make(request));
                     }});
  };
  get("/health/live", Auth::kNone,
      [](const Request& /*request*/) { return status_response(200, "live"); });
  get("/health/ready", Auth::kNone, [this](const Request& /*request*/) { return ready(); });
  get("/health/progress", Auth::kNone, [this](const Request& /*request*/) { return progress(); });
  get("/health", Auth::kNone, [this](const Request& /*request*/) { return health(); });
  get("/version", Auth::kUser, [this](const Request& /*request*/) {
    return json_response(Json{{"version", options_.version}}.dump());
  });
  get("/metrics", Auth::kUser, [this](const Request& /*request*/) { return metrics_page(); });
  get("/v1/models", Auth::kUser, [this](const Request& /*request*/) { return models_list(); });
  get("/v1/models/*", Auth::kUser,
      [this](const Request& request) { return one_model(request.argument); });
}

openai::Limits Api::limits() const {
  openai::Limits out;
  out.max_body_bytes = options_.max_body_bytes;
  if (const std::int32_t context = models_.longest_context(); context > 0) {
    out.context_tokens = context;
  }
  return out;
}

void Api::post_text(const Responder& responder, std::function<void()> work) {
  if (draining_.load()) {
    responder.send(to_response(shutting_down()));
  } else if (!text_.post(std::move(work))) {
    responder.send(to_response(too_busy()));
  }
}

void Api::with_model(const std::string& id, const Responder& responder,
                     std::function<void(const Lease&)> work) {
  models_.acquire(id, [this, responder, work = std::move(work),
                       caller = std::this_thread::get_id()](openai::ApiResult<Lease> model) {
    if (!model.has_value()) {
      responder.send(to_response(model.error()));
    } else if (std::this_thread::get_id() == caller) {
      work(*model);
    } else {  // the loading thread calls back
      post_text(responder, [work, lease = *model] { work(lease); });
    }
  });
}

void Api::add_text(http::RouteTable& table) {
  const auto post = [&table](std::string path, http::Handler handler) {
    table.push_back({.method = Method::kPost,
                     .path = std::move(path),
                     .auth = Auth::kUser,
                     .handler = std::move(handler)});
  };
  post("/tokenize", [this](Request request, const Responder& responder) {
    answer_text(std::move(request), responder, &openai::parse_tokenize,
                [](openai::TokenizeRequest& asked,
                   const ServedModel& model) -> openai::ApiResult<std::string> {
                  Result<std::vector<std::int32_t>> ids = std::vector<std::int32_t>();
                  if (asked.conversation.messages != nullptr) {
                    auto parts = render_conversation(asked.conversation, model, asked.warnings);
                    if (!parts.has_value()) {
                      return tl::unexpected(std::move(parts).error());
                    }
                    ids = model.tokenizer->encode_parts(*parts, false);
                  } else {
                    ids = model.tokenizer->encode(asked.text,
                                                  {.add_special = asked.add_special_tokens,
                                                   .parse_special = asked.parse_special});
                  }
                  if (!ids.has_value()) {
                    return tl::unexpected(openai::api_error(ids.error(), "prompt"));
                  }
                  return openai::tokenize_body(asked, *ids, model.engine->context_tokens(),
                                               *model.tokenizer);
                });
  });
  post("/detokenize", [this](Request request, const Responder& responder) {
    answer_text(std::move(request), responder, &openai::parse_detokenize,
                [](const openai::DetokenizeRequest& asked,
                   const ServedModel& model) -> openai::ApiResult<std::string> {
                  auto text = model.tokenizer->decode(asked.tokens, asked.skip_special);
                  if (!text.has_value()) {
                    return tl::unexpected(openai::api_error(text.error(), "tokens"));
                  }
                  return openai::detokenize_body(asked, *text);
                });
  });
  post("/apply-template", [this](Request request, const Responder& responder) {
    answer_text(std::move(request), responder, &openai::parse_apply_template,
                [](openai::ApplyTemplateRequest& asked,
                   const ServedModel& model) -> openai::ApiResult<std::string> {
                  auto parts = render_conversation(asked.conversation, model, asked.warnings);
                  if (!parts.has_value()) {
                    return tl::unexpected(std::move(parts).error());
                  }
                  std::string prompt;
                  for (const text::TextPart& part : *parts) {
                    prompt += part.text;
                  }
                  return openai::apply_template_body(asked, prompt);
                });
  });
  table.push_back({.method = Method::kGet,
                   .path = "/tokenizer_info",
                   .auth = Auth::kUser,
                   .handler = [this](const Request& request, const Responder& responder) {
                     post_text(responder,
                               [this, responder, id = query_value(request.query, "model")] {
                                 with_model(id, responder, [responder](const Lease& model) {
                                   const ModelText& text = *model->bundle.text;
                                   responder.send(json_response(openai::tokenizer_info_body(
                                       *model->tokenizer, text.bos_token(), text.eos_token(),
                                       text.chat_template_source())));
                                 });
                               });
                   }});
}

Response Api::admin_models() const {
  Json list = Json::array();
  for (const ModelStatus& model : models_.status()) {
    Json one = {{"id", model.spec.id},
                {"state", model_state_name(model.state)},
                {"weight_bytes", model.weight_bytes},
                {"kv_cache_bytes", model.kv_bytes},
                {"context_tokens", model.context_tokens},
                {"requests", model.num_leases},
                {"running", model.engine.requests.running},
                {"waiting", model.engine.requests.waiting}};
    if (!model.error.empty()) {
      one["error"] = model.error;
    }
    list.push_back(std::move(one));
  }
  return json_response(Json{{"models", std::move(list)}}.dump());
}

// Answers when it is done, or with 202 at once when the body says "wait": false.
void Api::admin_change(const Request& request, const Responder& responder, bool load) {
  const auto body = parse_json(request.body, {.max_depth = 8, .max_bytes = 65536});
  const auto bad = [&responder](std::string_view field, std::string_view what) {
    responder.send(to_response(openai::bad_field(field, what)));
  };
  if (!body.has_value() || !body->is_object()) {
    bad("body", R"(must be a JSON object such as {"model": "NAME"})");
    return;
  }
  bool wait = true;
  std::string name;
  for (const auto& [key, value] : body->items()) {
    if (key == "model" && value.is_string()) {
      name = value.get<std::string>();
    } else if (key == "wait" && value.is_boolean()) {
      wait = value.get<bool>();
    } else {
      bad(key,
          "is no field of this endpoint, or has the wrong type; model (string) and wait "
          "(boolean) are");
      return;
    }
  }
  if (name.empty()) {
    bad("model", "is missing: the name of a model");
    return;
  }
  auto done = [responder, wait](const Status& status) {
    if (wait) {
      responder.send(status.has_value() ? json_response(R"({"status":"done"})")
                                        : to_response(openai::api_error(status.error(), "model")));
    }
  };
  if (!wait) {
    Response accepted = json_response(R"({"status":"accepted"})");
    accepted.status = 202;
    responder.send(std::move(accepted));
  }
  if (load) {
    models_.load_by_name(name, std::move(done));
  } else {
    models_.unload(name, std::move(done));
  }
}

void Api::add_admin(http::RouteTable& table) {
  const auto add = [&table](Method method, std::string path, http::Handler handler) {
    table.push_back({.method = method,
                     .path = std::move(path),
                     .auth = Auth::kAdmin,
                     .handler = std::move(handler)});
  };
  add(Method::kGet, "/admin/models",
      [this](const Request& /*request*/, const Responder& responder) {
        responder.send(admin_models());
      });
  add(Method::kPost, "/admin/models/load",
      [this](const Request& request, const Responder& responder) {
        admin_change(request, responder, true);
      });
  add(Method::kPost, "/admin/models/unload",
      [this](const Request& request, const Responder& responder) {
        admin_change(request, responder, false);
      });
  add(Method::kPost, "/admin/cache/clear",
      [this](const Request& request, const Responder& responder) {
        const auto body = parse_json(request.body, {.max_depth = 8, .max_bytes = 65536});
        if (!request.body.empty() && (!body.has_value() || !body->is_object() || !body->empty())) {
          responder.send(
              to_response(openai::bad_field("body", "must be empty: there are no fields")));
          return;
        }
        models_.clear_prefix_caches();
        responder.send(json_response(R"({"status":"done"})"));
      });
}

}  // namespace trine::server
