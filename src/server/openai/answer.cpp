// Events, frames and the bodies that need no events.
#include "server/openai/answer.h"

#include <bit>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "base/check.h"
#include "server/openai/answer_base.h"

namespace trine::server::openai {

namespace {

static_assert(std::endian::native == std::endian::little, "base64 of embeddings copies floats");

std::string base64(std::string_view bytes) {
  static constexpr char kDigits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t word = 0;
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
    for (std::size_t j = 0; j < 3; ++j) {
      word = word << 8u | (j < count ? static_cast<unsigned char>(bytes[i + j]) : 0u);
    }
    for (std::size_t j = 0; j < 4; ++j) {
      out += j <= count ? kDigits[word >> (18 - 6 * j) & 63u] : '=';
    }
  }
  return out;
}

std::vector<float> of_length_one(const std::vector<float>& vector) {
  double sum = 0.0;
  for (const float value : vector) {
    sum += double{value} * double{value};
  }
  const double scale = sum > 0.0 ? 1.0 / std::sqrt(sum) : 1.0;
  std::vector<float> out;
  out.reserve(vector.size());
  for (const float value : vector) {
    out.push_back(static_cast<float>(value * scale));
  }
  return out;
}

void add_warnings(const std::vector<std::string>& warnings, Json& body) {
  if (!warnings.empty()) {
    body["warnings"] = warnings;
  }
}

Json model_json(const ModelCard& model) {
  Json out;
  out["id"] = model.id;
  out["object"] = "model";
  out["created"] = model.created_unix_s;
  out["owned_by"] = "trine";
  out["max_model_len"] = model.max_model_len;
  return out;
}

}  // namespace

AnswerEvent own(const TokenEvent& event, std::int32_t prompt) {
  AnswerEvent out;
  out.prompt = prompt;
  out.answer = event.answer;
  out.token = event.token;
  out.text = event.text;
  out.finish = event.finish;
  out.matched_stop = event.matched_stop;
  if (event.logprobs != nullptr) {
    out.logprobs = *event.logprobs;
  }
  if (event.prompt_logprobs != nullptr) {
    out.prompt_logprobs = *event.prompt_logprobs;
  }
  if (event.embedding != nullptr) {
    out.embedding = *event.embedding;
  }
  if (event.error != nullptr) {
    out.error = *event.error;
  }
  if (event.stats != nullptr) {
    out.stats = *event.stats;
  }
  return out;
}

std::string sse_frame(const SseEvent& event) {
  return event.name.empty() ? fmt::format("data: {}\n\n", event.data)
                            : fmt::format("event: {}\ndata: {}\n\n", event.name, event.data);
}

std::string_view sse_ping() {
  return ": ping\n\n";
}

std::string embeddings_body(const EmbeddingsRequest& request, std::string_view model,
                            std::span<const std::vector<float>> vectors,
                            std::int64_t prompt_tokens) {
  Json data = Json::array();
  for (const std::vector<float>& vector : vectors) {
    const std::vector<float> values = request.normalize ? of_length_one(vector) : vector;
    Json one;
    one["object"] = "embedding";
    one["index"] = data.size();
    if (request.base64) {
      std::string bytes(values.size() * sizeof(float), '\0');
      if (!values.empty()) {
        std::memcpy(bytes.data(), values.data(), bytes.size());
      }
      one["embedding"] = base64(bytes);
    } else {
      one["embedding"] = values;
    }
    data.push_back(std::move(one));
  }
  Json out;
  out["object"] = "list";
  out["data"] = std::move(data);
  out["model"] = model;
  out["usage"] = Json{{"prompt_tokens", prompt_tokens}, {"total_tokens", prompt_tokens}};
  add_warnings(request.warnings, out);
  return dump(out);
}

std::string tokenize_body(const TokenizeRequest& request, std::span<const std::int32_t> tokens,
                          std::int32_t max_model_len, const text::Tokenizer& tokenizer) {
  Json out;
  out["count"] = tokens.size();
  out["max_model_len"] = max_model_len;
  out["tokens"] = std::vector<std::int32_t>(tokens.begin(), tokens.end());
  if (request.with_token_strs) {
    Json pieces = Json::array();
    for (const std::int32_t token : tokens) {
      pieces.push_back(std::string(tokenizer.piece(token)));
    }
    out["token_strs"] = std::move(pieces);
  }
  add_warnings(request.warnings, out);
  return dump(out);
}

std::string detokenize_body(const DetokenizeRequest& request, std::string_view text) {
  Json out;
  out["prompt"] = text;
  out["content"] = text;  // llama.cpp's name
  add_warnings(request.warnings, out);
  return dump(out);
}

std::string apply_template_body(const ApplyTemplateRequest& request, std::string_view prompt) {
  Json out;
  out["prompt"] = prompt;
  add_warnings(request.warnings, out);
  return dump(out);
}

std::string models_body(std::span<const ModelCard> models) {
  Json data = Json::array();
  for (const ModelCard& model : models) {
    data.push_back(model_json(model));
  }
  Json out;
  out["object"] = "list";
  out["data"] = std::move(data);
  return dump(out);
}

std::string model_body(const ModelCard& model) {
  return dump(model_json(model));
}

std::string tokenizer_info_body(const text::Tokenizer& tokenizer, std::string_view bos_token,
                                std::string_view eos_token, std::string_view chat_template) {
  Json out;
  const auto set = [&](std::string_view name, std::string_view value) {
    out[std::string(name)] = value.empty() ? Json(nullptr) : Json(value);
  };
  set("bos_token", bos_token);
  set("eos_token", eos_token);
  // Nothing is padded; clients that want a token for it use the end token.
  set("pad_token", eos_token);
  out["vocab_size"] = tokenizer.vocab_size();
  out["description"] = tokenizer.description();
  set("chat_template", chat_template);
  return dump(out);
}

}  // namespace trine::server::openai
