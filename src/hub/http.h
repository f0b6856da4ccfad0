// Downloads over HTTP: parallel, resumable, checked, bounded.
//
// A file is written as PATH.part with a note beside it (PATH.part.json: the server's ETag, size and
// SHA-256) and gets its name only when size and SHA-256 are right. Redirects are followed here, not
// by curl, so that each hop is judged: at most kMaxRedirects, http and https only, never from https
// to http, and the token goes to the base's origin only and is gone for good after the first hop
// elsewhere. A body never exceeds the size announced for it. Cut connections are retried from where
// they ended (Range with If-Range), with growing pauses, a bounded number of times. Thread rule:
// one pull, one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "base/error.h"
#include "hub/files.h"
#include "hub/progress.h"
#include "hub/url.h"

namespace trine::hub {

inline constexpr int kMaxRedirects = 8;
// What a server may send without having announced a size.
inline constexpr std::uint64_t kMaxUnannouncedBytes = std::uint64_t{64} << 20;
// The longest Retry-After that is waited for.
inline constexpr std::int64_t kMaxRetryAfterSeconds = 60;

struct HttpOptions {
  Url base;           // the configured hub
  std::string token;  // printable ASCII; empty: none
  int parallel = 4;
  int max_failures = 6;      // in a row without a byte of progress
  int retry_base_ms = 500;   // first pause; doubles up to 10 s
  int stall_timeout_s = 30;  // below 1 kB/s for so long counts as a cut connection
  CancelFlag cancel = nullptr;
  ProgressSink* progress = nullptr;  // never null during calls
};

struct Download {
  std::string url;
  std::string name;            // for messages and progress
  std::filesystem::path path;  // its directory exists
  // What is expected, when known; afterwards what is there.
  std::optional<std::uint64_t> size;
  std::string sha256;
};

// Fetches all files. `done_before` is added to the progress. On error the .part files stay for a
// later resume, except those that are wrong. Errors: unavailable (network, server), corrupt_data
// (lies, hash), not_found, exhausted (disk), cancelled; an HTTP refusal has the status in the
// message and in `*http_status` when given.
Status download_files(const HttpOptions& options, std::span<Download> files,
                      std::uint64_t done_before, long* http_status = nullptr);

struct HttpAnswer {
  long status = 0;
  std::string body;
  std::string error_code;  // X-Error-Code of hub servers
};

// One small GET, any final status below 500 (and not 408, 429) is an answer. Errors as above.
Result<HttpAnswer> http_get(const HttpOptions& options, const std::string& url,
                            std::uint64_t max_bytes);

// A token as it may stand in a header: printable ASCII without spaces. Surrounding white space is
// removed.
Result<std::string> clean_token(std::string_view text, std::string_view origin);

}  // namespace trine::hub
