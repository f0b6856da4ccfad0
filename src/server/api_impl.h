// What the endpoint files share. Thread rule: pure functions, and text threads.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/api.h"
#include "server/job.h"
#include "server/openai/parse.h"

namespace trine::server {

openai::ApiError too_busy();
openai::ApiError shutting_down();

http::Response json_response(std::string body);

// The text of a conversation. What the template leaves out of it is added to `warnings`.
// `forced_prefix`: see openai::render_prompt().
openai::ApiResult<std::vector<text::TextPart>> render_conversation(
    const openai::Conversation& conversation, const ServedModel& model,
    std::vector<std::string>& warnings, std::string_view forced_prefix = {});

template <typename Parsed, typename MakeBody>
void Api::answer_text(http::Request request, const http::Responder& responder, Parse<Parsed> parse,
                      MakeBody make_body) {
  post_text(responder, [this, responder, parse, make_body, request = std::move(request)] {
    openai::ApiResult<Parsed> parsed = parse(request.body, limits());
    if (!parsed.has_value()) {
      responder.send(to_response(parsed.error()));
      return;
    }
    const auto kept = std::make_shared<Parsed>(*std::move(parsed));
    with_model(kept->model, responder, [responder, kept, make_body](const Lease& model) {
      openai::ApiResult<std::string> body = make_body(*kept, *model);
      responder.send(body.has_value() ? json_response(*std::move(body))
                                      : to_response(body.error()));
    });
  });
}

}  // namespace trine::server
