// Reads the answer of an OpenAI-compatible server: event streams and error bodies.
//
// An answer's tokens are counted from `usage`, never from chunks: a chunk may hold several tokens
// or none. A chunk counts as output when it holds text, reasoning or a tool call; the first chunk
// of a chat with a role only does not. Thread rule: one reader, one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace trine::loadgen {

class StreamReader {
 public:
  // The longest line that is taken.
  static constexpr std::size_t kMostLine = std::size_t{8} << 20;

  // What a piece of the body brought.
  struct Found {
    std::int32_t num_outputs = 0;  // chunks with output
  };

  // The next bytes of the body. Errors: corrupt_data when they are no event stream of completions;
  // unavailable when an event is the server's error.
  Result<Found> add(std::string_view bytes);
  // At the end of the body: it ended as a stream must, with a finish reason and [DONE].
  Status finish() const;

  std::optional<std::int64_t> prompt_tokens() const { return prompt_tokens_; }

  std::optional<std::int64_t> completion_tokens() const { return completion_tokens_; }

  std::int64_t cached_tokens() const { return cached_tokens_; }

  const std::string& finish_reason() const { return finish_reason_; }

 private:
  Status line(std::string_view text, Found& found);
  Status event(std::string_view json, Found& found);

  std::string rest_;
  bool done_ = false;
  std::string finish_reason_;
  std::optional<std::int64_t> prompt_tokens_;
  std::optional<std::int64_t> completion_tokens_;
  std::int64_t cached_tokens_ = 0;
};

// The message of an error body, else its beginning, for one line of a report.
std::string error_text(std::string_view body);

}  // namespace trine::loadgen
