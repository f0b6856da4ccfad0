// One GET through its redirects, cuts and resumes: the state machine under download_files().
// Internal to hub/.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <curl/curl.h>

#include "base/check.h"
#include "base/error.h"
#include "hub/files.h"
#include "hub/http.h"
#include "hub/url.h"

namespace trine::hub {

class Transfer {
 public:
  using Clock = std::chrono::steady_clock;

  // What happens after one exchange with a server.
  enum class Step : std::uint8_t { kDone, kAgain, kFailed };

  // To a file; `file` outlives the transfer.
  Transfer(const HttpOptions& options, Url url, Download* file);
  // To memory.
  Transfer(const HttpOptions& options, Url url, std::uint64_t max_bytes);
  ~Transfer();
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  // Looks at what an earlier run left and hashes it. Afterwards finished() may already be true.
  Status prepare();

  bool finished() const { return finished_; }

  // Configures a handle for the next exchange. Valid until finish().
  Result<CURL*> start();
  Step finish(CURLcode code);
  // Ends an exchange in the middle; bytes on disk stay.
  void close();

  Clock::time_point not_before() const { return not_before_; }

  std::uint64_t done_bytes() const { return written_; }

  // Of the last exchange; it failed.
  Error& error() {
    TRINE_CHECK(error_.has_value());
    return *error_;
  }

  long status() const { return status_; }

  const std::string& body() const { return body_; }

  const std::string& error_code() const { return headers_.error_code; }

 private:
  // Of the response being received.
  struct Headers {
    std::string etag;
    std::string linked_etag;
    std::string linked_size;
    std::string content_encoding;
    std::string content_range;
    std::string location;
    std::string error_code;
  };

  static std::size_t header_callback(char* data, std::size_t size, std::size_t count, void* self);
  static std::size_t write_callback(char* data, std::size_t size, std::size_t count, void* self);
  bool on_header(std::string_view line);
  bool on_headers_end();
  bool on_body(std::string_view bytes);
  bool begin_body();
  bool begin_partial_body();
  bool take_announcement();
  bool write_bytes(std::string_view bytes);

  Step finish_success(CURLcode code);
  Step complete();
  Step redirect();
  Step retry(std::string_view why, std::int64_t retry_after_s, int max_failures);
  Step refuse_status();
  Step failed(tl::unexpected<Error> error);
  bool fatal(tl::unexpected<Error> error);
  void forget_part();
  bool open_part();
  void read_note(std::string& etag, std::string& sha256) const;
  void write_note() const;
  void to_first_url();
  std::string amount() const;

  std::filesystem::path part_path() const { return file_->path.string() + ".part"; }

  std::filesystem::path note_path() const { return file_->path.string() + ".part.json"; }

  const HttpOptions& options_;
  const Url first_url_;
  Download* const file_ = nullptr;  // null: to memory
  const std::uint64_t max_bytes_ = 0;
  const std::string name_;

  CURL* handle_ = nullptr;
  curl_slist* header_list_ = nullptr;
  Url url_;
  int hops_ = 0;
  bool token_live_ = false;

  Headers headers_;
  std::size_t header_bytes_ = 0;
  std::size_t ignored_bytes_ = 0;
  long status_ = 0;
  bool headers_ended_ = false;
  bool begun_ = false;    // the body of a 200 or 206 is being taken
  bool restart_ = false;  // the server cannot continue our part: start afresh
  std::uint64_t asked_offset_ = 0;

  int fd_ = -1;
  std::string etag_;    // strong ETag the part was begun with
  std::string git_id_;  // the hub's word on a file outside LFS; empty: none
  std::uint64_t written_ = 0;
  std::uint64_t best_ = 0;  // most bytes so far: an attempt that does not pass it made no progress
  std::uint64_t limit_ = 0;
  Sha256 hash_;
  std::string body_;
  bool resumed_ = false;  // bytes of more than one response are in the part
  bool restarted_ = false;

  int failures_ = 0;
  int attempts_ = 0;
  Clock::time_point not_before_;
  bool finished_ = false;
  std::optional<Error> error_;
};

}  // namespace trine::hub
