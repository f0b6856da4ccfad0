#include "compress/calibration_text.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/printable.h"
#include "base/rng.h"
#include "hub/files.h"

namespace trine {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uintmax_t kMaxFileBytes = std::uintmax_t{1} << 30;
constexpr std::size_t kFewestTokens = 2;  // of a window: one token has no context

Result<std::string> read_file(const std::string& path) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error) {
    return fail(ErrorCode::kNotFound, "--calib {}: {}", path, error.message());
  }
  if (size > kMaxFileBytes) {
    return fail(ErrorCode::kInvalidArgument, "--calib {}: {} bytes, at most {}", path, size,
                kMaxFileBytes);
  }
  std::ifstream file(path, std::ios::binary);
  std::string content((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (file.bad()) {
    return fail(ErrorCode::kUnavailable, "--calib {}: cannot be read", path);
  }
  return content;
}

Result<CalibrationText> parse_line(std::string_view line) {
  const auto value = parse_json(line);
  if (!value.has_value()) {
    return fail(ErrorCode::kInvalidArgument, "{}", value.error().message);
  }
  CalibrationText out;
  if (!value->is_object()) {
    return fail(ErrorCode::kInvalidArgument, "an object with \"text\" or \"messages\" is expected");
  }
  const bool has_text = value->contains("text");
  const bool has_messages = value->contains("messages");
  if (has_text == has_messages) {
    return fail(ErrorCode::kInvalidArgument, "{} \"text\" and \"messages\"; one is expected",
                has_text ? "both of" : "none of");
  }
  if (has_text) {
    if (!(*value)["text"].is_string()) {
      return fail(ErrorCode::kInvalidArgument, "\"text\" is {}, a string is expected",
                  (*value)["text"].type_name());
    }
    out.text = (*value)["text"].get<std::string>();
    return out;
  }
  if (!(*value)["messages"].is_array() || (*value)["messages"].empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "\"messages\" is {}, an array with messages is expected",
                (*value)["messages"].type_name());
  }
  out.messages = (*value)["messages"].dump();
  return out;
}

// Plain text in pieces of some pages, cut at line ends: each is a text of its own.
std::vector<CalibrationText> pieces(std::string_view content) {
  constexpr std::size_t kPiece = std::size_t{16} << 10;
  std::vector<CalibrationText> out;
  std::int64_t line = 1;
  while (!content.empty()) {
    std::size_t end = content.size();
    if (content.size() > kPiece) {
      const std::size_t line_end = content.rfind('\n', kPiece);
      const std::size_t next_end = content.find('\n', kPiece);
      end = line_end != std::string_view::npos   ? line_end + 1
            : next_end != std::string_view::npos ? next_end + 1
                                                 : content.size();
    }
    out.push_back({std::string(content.substr(0, end)), {}, line});
    line += std::count(content.begin(), content.begin() + static_cast<std::ptrdiff_t>(end), '\n');
    content.remove_prefix(end);
  }
  return out;
}

std::vector<std::size_t> shuffled(std::size_t count, std::uint64_t seed) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t i = count; i > 1; --i) {
    const auto block = philox(seed, i, RngPurpose::kCalibration, 0);
    std::swap(order[i - 1], order[(std::uint64_t{block[0]} << 32 | block[1]) % i]);
  }
  return order;
}

class Reader {
 public:
  Reader(const CalibrationSpec& spec, const ModelText& text, const ModelConfig& config,
         std::shared_ptr<const text::Tokenizer> tokenizer)
      : spec_(spec), text_(text), config_(config), tokenizer_(std::move(tokenizer)) {}

  // Sequences of one file, until there are `wanted` tokens.
  Status take(const std::string& path, std::string_view content, std::int64_t wanted,
              CalibrationSet& out) {
    TRINE_TRY_ASSIGN(const std::vector<CalibrationText> texts, parse_calibration(content, path));
    hub::Sha256 hash;
    hash.update(content);
    CalibrationFile file{path, hash.finish(), 0, 0};
    for (const std::size_t i : shuffled(texts.size(), spec_.seed)) {
      if (file.tokens >= wanted) {
        break;
      }
      auto ids = encode(texts[i]);
      if (!ids.has_value()) {
        return fail(ids.error().code, "--calib {}, line {}: {}", path, texts[i].line,
                    ids.error().message);
      }
      ++file.texts;
      for (std::size_t first = 0; first < ids->size() && file.tokens < wanted;
           first += static_cast<std::size_t>(spec_.window)) {
        const std::size_t count =
            std::min({static_cast<std::size_t>(spec_.window), ids->size() - first,
                      static_cast<std::size_t>(wanted - file.tokens)});
        if (count < kFewestTokens) {
          continue;
        }
        const auto begin = ids->begin() + static_cast<std::ptrdiff_t>(first);
        out.sequences.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(count));
        file.tokens += static_cast<std::int64_t>(count);
      }
    }
    out.tokens += file.tokens;
    out.files.push_back(std::move(file));
    return {};
  }

 private:
  Result<std::vector<std::int32_t>> encode(const CalibrationText& item) const {
    std::vector<std::int32_t> ids;
    if (item.messages.empty()) {
      TRINE_TRY_ASSIGN(ids, tokenizer_->encode(item.text, text::EncodeOptions{}));
    } else {
      TRINE_TRY_ASSIGN(const auto chat, text_.chat_template(false));
      TRINE_TRY_ASSIGN(const Json messages, parse_json(item.messages));
      text::ChatTemplateInput input;
      input.messages = &messages;
      input.add_generation_prompt = false;
      input.bos_token = text_.bos_token();
      input.eos_token = text_.eos_token();
      input.now_unix_s = 0;  // calibration does not depend on the day
      TRINE_TRY_ASSIGN(const std::vector<text::TextPart> parts, chat->render(input));
      TRINE_TRY_ASSIGN(ids, encode_conversation(*tokenizer_, parts, config_));
    }
    for (const std::int32_t id : ids) {
      if (id >= config_.vocab_size) {
        return fail(ErrorCode::kCorruptData, "token {} is past the model's {} rows", id,
                    config_.vocab_size);
      }
    }
    return ids;
  }

  const CalibrationSpec& spec_;
  const ModelText& text_;
  const ModelConfig& config_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
};

}  // namespace

Result<std::vector<CalibrationText>> parse_calibration(std::string_view content,
                                                       const std::string& path) {
  const std::size_t start = content.find_first_not_of(" \t\r\n");
  if (start == std::string_view::npos) {
    return fail(ErrorCode::kInvalidArgument, "--calib {}: the file is empty", path);
  }
  if (content[start] != '{') {
    return pieces(content);
  }
  std::vector<CalibrationText> out;
  std::int64_t line_number = 0;
  while (!content.empty()) {
    const std::size_t end = std::min(content.find('\n'), content.size());
    const std::string_view line = content.substr(0, end);
    content.remove_prefix(std::min(end + 1, content.size()));
    ++line_number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) {
      continue;
    }
    auto item = parse_line(line);
    if (!item.has_value()) {
      return fail(ErrorCode::kInvalidArgument, "--calib {}, line {}: {}", path, line_number,
                  item.error().message);
    }
    item->line = line_number;
    out.push_back(*std::move(item));
  }
  return out;
}

Result<CalibrationSet> read_calibration(const CalibrationSpec& spec, const ModelText& text,
                                        const ModelConfig& config) {
  if (!spec.weights.empty() && spec.weights.size() != spec.files.size()) {
    return fail(ErrorCode::kInvalidArgument, "--calib-mix has {} weights for {} files",
                spec.weights.size(), spec.files.size());
  }
  TRINE_TRY_ASSIGN(auto tokenizer, text.tokenizer());
  std::vector<std::string> contents;
  std::vector<double> weights = spec.weights;
  for (const std::string& path : spec.files) {
    TRINE_TRY_ASSIGN(std::string content, read_file(path));
    if (spec.weights.empty()) {
      weights.push_back(static_cast<double>(content.size()));
    }
    contents.push_back(std::move(content));
  }
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (!(total > 0)) {
    return fail(ErrorCode::kInvalidArgument, "--calib-mix: the weights add up to {}", total);
  }
  CalibrationSet out;
  Reader reader(spec, text, config, std::move(tokenizer));
  for (std::size_t i = 0; i < contents.size(); ++i) {
    const auto wanted = static_cast<std::int64_t>(
        std::llround(static_cast<double>(spec.tokens) * weights[i] / total));
    TRINE_TRY(reader.take(spec.files[i], contents[i], wanted, out));
    contents[i].clear();
  }
  if (out.tokens == 0) {
    return fail(ErrorCode::kInvalidArgument, "--calib: the files hold no text of {} tokens or more",
                kFewestTokens);
  }
  hub::Sha256 hash;
  for (const std::vector<std::int32_t>& sequence : out.sequences) {
    const auto size = static_cast<std::int32_t>(sequence.size());
    hash.update({reinterpret_cast<const char*>(&size), sizeof size});
    hash.update({reinterpret_cast<const char*>(sequence.data()), sequence.size() * 4});
  }
  out.hash = hash.finish();
  out.num_sequences = out.sequences.size();
  return out;
}

}  // namespace trine
