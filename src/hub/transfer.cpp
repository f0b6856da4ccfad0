#include "hub/transfer.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <random>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"

namespace trine::hub {
namespace {

constexpr std::size_t kMaxHeaderBytes = std::size_t{256} << 10;
constexpr std::size_t kMaxIgnoredBytes = std::size_t{64} << 10;
constexpr std::uint64_t kMaxNoteBytes = std::uint64_t{64} << 10;
constexpr int kMaxAttempts = 100;   // with progress in between
constexpr int kMaxUnreachable = 3;  // no such host, nobody listening: waiting rarely helps
constexpr int kMaxPauseMs = 10'000;
constexpr long kConnectTimeoutS = 15;
constexpr long kStallBytesPerS = 1000;

std::string_view trim(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) {
    return {};
  }
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

std::optional<std::uint64_t> parse_count(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

// The text between the quotes of a strong ETag; a weak one does not promise equal bytes.
std::string_view strong_tag(std::string_view etag) {
  return etag.size() > 2 && etag.front() == '"' && etag.back() == '"' ? etag : std::string_view{};
}

std::string_view unquote(std::string_view etag) {
  if (etag.starts_with("W/")) {
    etag.remove_prefix(2);
  }
  if (etag.size() >= 2 && etag.front() == '"' && etag.back() == '"') {
    etag = etag.substr(1, etag.size() - 2);
  }
  return etag;
}

bool is_redirect(long status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

bool is_transient(long status) {
  return status == 408 || status == 429 || (status >= 500 && status != 501);
}

// Where the certificates of trusted authorities are, when the user says so: the variables of the
// curl program and of OpenSSL's tools, in the order of the former. libcurl by itself uses the path
// it was built with.
std::string ca_bundle() {
  for (const char* name : {"CURL_CA_BUNDLE", "SSL_CERT_FILE"}) {
    if (const char* path = std::getenv(name); path != nullptr && *path != '\0') {
      return path;
    }
  }
  return "";
}

// What went wrong and what can be done about it.
std::string describe(CURLcode code) {
  std::string text = curl_easy_strerror(code);
  if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_ISSUER_ERROR) {
    return text +
           "; when the server's authority is one of your own, name a file with its "
           "certificate in SSL_CERT_FILE";
  }
  if (code == CURLE_SSL_CACERT_BADFILE) {
    return fmt::format("{}: cannot use the certificates in {}", text, ca_bundle());
  }
  return text;
}

// Failures that another attempt cannot mend.
bool is_final(CURLcode code) {
  return code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE ||
         code == CURLE_URL_MALFORMAT || code == CURLE_UNSUPPORTED_PROTOCOL ||
         code == CURLE_OUT_OF_MEMORY || code == CURLE_SSL_ISSUER_ERROR;
}

}  // namespace

Transfer::Transfer(const HttpOptions& options, Url url, Download* file)
    : options_(options), first_url_(std::move(url)), file_(file), name_(file->name) {
  to_first_url();
}

Transfer::Transfer(const HttpOptions& options, Url url, std::uint64_t max_bytes)
    : options_(options), first_url_(std::move(url)), max_bytes_(max_bytes), name_(first_url_.text) {
  to_first_url();
}

Transfer::~Transfer() {
  close();
  if (file_ != nullptr && !finished_ && written_ == 0) {
    forget_part();  // nothing in it to resume
  }
  if (handle_ != nullptr) {
    curl_easy_cleanup(handle_);
  }
}

void Transfer::to_first_url() {
  url_ = first_url_;
  hops_ = 0;
  // Unencrypted, a token is for anyone on the way to read; a server on this machine is the
  // exception.
  token_live_ = !options_.token.empty() && url_.same_origin(options_.base) &&
                (url_.scheme == "https" || url_.is_loopback());
}

Status Transfer::prepare() {
  if (file_ == nullptr) {
    return {};
  }
  std::error_code ignored;
  if (std::filesystem::exists(file_->path, ignored)) {
    // Finished by an earlier run of the same pull, which was interrupted in another file.
    const Result<std::uint64_t> size = size_of_file(file_->path);
    if (size.has_value() && file_->size == *size && !file_->sha256.empty()) {
      TRINE_TRY_ASSIGN(const std::string sha256, sha256_file(file_->path, options_.cancel));
      if (sha256 == file_->sha256) {
        written_ = *size;
        finished_ = true;
        options_.progress->file_done(name_, written_, sha256);
        return {};
      }
    }
    TRINE_TRY(remove_tree(file_->path));
  }
  const Result<std::uint64_t> have = size_of_file(part_path());
  if (!have.has_value() || *have == 0) {
    return {};
  }
  std::string note_sha256;
  read_note(etag_, note_sha256);
  const bool same_content = !file_->sha256.empty() && note_sha256 == file_->sha256;
  const bool same_tag = file_->sha256.empty() && !etag_.empty();
  if ((!same_content && !same_tag) || (file_->size.has_value() && *have > *file_->size)) {
    forget_part();
    return {};
  }
  TRINE_TRY(hash_file_prefix(part_path(), *have, hash_, options_.cancel));
  written_ = *have;
  resumed_ = true;
  if (file_->size == written_ && !file_->sha256.empty()) {
    // Everything was there before the interruption. A wrong hash makes complete() start afresh.
    if (!open_part()) {
      return tl::unexpected(error());
    }
    const Step step = complete();
    close();
    if (step == Step::kFailed) {
      return tl::unexpected(error());
    }
  }
  return {};
}

Result<CURL*> Transfer::start() {
  if (handle_ == nullptr) {
    handle_ = curl_easy_init();
    if (handle_ == nullptr) {
      return fail(ErrorCode::kExhausted, "cannot create a transfer: out of memory");
    }
  }
  if (file_ != nullptr && !open_part()) {
    return tl::unexpected(error());
  }
  headers_ = {};
  header_bytes_ = 0;
  ignored_bytes_ = 0;
  status_ = 0;
  headers_ended_ = false;
  begun_ = false;
  restart_ = false;
  best_ = std::max(best_, written_);
  asked_offset_ = file_ != nullptr ? written_ : 0;

  curl_easy_reset(handle_);
  curl_slist_free_all(std::exchange(header_list_, nullptr));
  curl_easy_setopt(handle_, CURLOPT_URL, url_.text.c_str());
  curl_easy_setopt(handle_, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(handle_, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(handle_, CURLOPT_SSL_VERIFYPEER, 1L);
  curl_easy_setopt(handle_, CURLOPT_SSL_VERIFYHOST, 2L);
  curl_easy_setopt(handle_, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(handle_, CURLOPT_USERAGENT, "trine");
  curl_easy_setopt(handle_, CURLOPT_CONNECTTIMEOUT, kConnectTimeoutS);
  curl_easy_setopt(handle_, CURLOPT_LOW_SPEED_LIMIT, kStallBytesPerS);
  curl_easy_setopt(handle_, CURLOPT_LOW_SPEED_TIME, static_cast<long>(options_.stall_timeout_s));
  // One connection per file: several streams in one connection would share its window and its cuts.
  curl_easy_setopt(handle_, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  curl_easy_setopt(handle_, CURLOPT_BUFFERSIZE, 256L * 1024L);
  curl_easy_setopt(handle_, CURLOPT_HEADERFUNCTION, &Transfer::header_callback);
  curl_easy_setopt(handle_, CURLOPT_HEADERDATA, this);
  curl_easy_setopt(handle_, CURLOPT_WRITEFUNCTION, &Transfer::write_callback);
  curl_easy_setopt(handle_, CURLOPT_WRITEDATA, this);
  curl_easy_setopt(handle_, CURLOPT_PRIVATE, this);
  if (const std::string bundle = ca_bundle(); !bundle.empty()) {
    curl_easy_setopt(handle_, CURLOPT_CAINFO, bundle.c_str());
  }
  if (token_live_) {
    header_list_ =
        curl_slist_append(header_list_, ("Authorization: Bearer " + options_.token).c_str());
  }
  if (asked_offset_ > 0) {
    curl_easy_setopt(handle_, CURLOPT_RANGE, fmt::format("{}-", asked_offset_).c_str());
    if (!etag_.empty()) {
      header_list_ = curl_slist_append(header_list_, ("If-Range: " + etag_).c_str());
    }
  }
  curl_easy_setopt(handle_, CURLOPT_HTTPHEADER, header_list_);
  return handle_;
}

void Transfer::close() {
  curl_slist_free_all(std::exchange(header_list_, nullptr));
  if (fd_ >= 0) {
    ::close(std::exchange(fd_, -1));
  }
}

std::size_t Transfer::header_callback(char* data, std::size_t size, std::size_t count, void* self) {
  return static_cast<Transfer*>(self)->on_header({data, size * count}) ? size * count : 0;
}

std::size_t Transfer::write_callback(char* data, std::size_t size, std::size_t count, void* self) {
  return static_cast<Transfer*>(self)->on_body({data, size * count}) ? size * count : 0;
}

bool Transfer::on_header(std::string_view line) {
  if (begun_) {
    return true;  // trailers
  }
  header_bytes_ += line.size();
  if (header_bytes_ > kMaxHeaderBytes) {
    return fatal(fail(ErrorCode::kCorruptData, "{}: {} sends more than {} bytes of headers", name_,
                      url_.origin(), kMaxHeaderBytes));
  }
  if (line.starts_with("HTTP/")) {
    headers_ = {};
    return true;
  }
  if (trim(line).empty()) {
    return on_headers_end();
  }
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos) {
    return true;
  }
  const std::string key = to_lower_ascii(trim(line.substr(0, colon)));
  const std::string value(trim(line.substr(colon + 1)));
  const std::pair<std::string_view, std::string*> wanted[] = {
      {"etag", &headers_.etag},
      {"x-linked-etag", &headers_.linked_etag},
      {"x-linked-size", &headers_.linked_size},
      {"content-encoding", &headers_.content_encoding},
      {"content-range", &headers_.content_range},
      {"location", &headers_.location},
      {"x-error-code", &headers_.error_code},
  };
  for (const auto& [name, target] : wanted) {
    if (key == name) {
      *target = value;
    }
  }
  return true;
}

bool Transfer::on_headers_end() {
  curl_easy_getinfo(handle_, CURLINFO_RESPONSE_CODE, &status_);
  if (status_ >= 100 && status_ < 200) {
    return true;
  }
  headers_ended_ = true;
  if (file_ != nullptr && url_.same_origin(options_.base) &&
      (is_redirect(status_) || status_ == 200 || status_ == 206)) {
    return take_announcement();
  }
  return true;
}

// What the hub itself says about the file's content, on a redirect or on the answer.
bool Transfer::take_announcement() {
  if (!headers_.linked_size.empty()) {
    const std::optional<std::uint64_t> size = parse_count(headers_.linked_size);
    if (!size.has_value()) {
      return fatal(fail(ErrorCode::kCorruptData, "{}: X-Linked-Size \"{}\" is not a size", name_,
                        headers_.linked_size.substr(0, 40)));
    }
    if (file_->size.has_value() && *file_->size != *size) {
      return fatal(fail(ErrorCode::kCorruptData,
                        "{}: the hub's listing says {} bytes, its X-Linked-Size {}: changed "
                        "meanwhile? Pull again",
                        name_, *file_->size, *size));
    }
    file_->size = size;
  }
  std::string_view tag = unquote(headers_.linked_etag);
  if (tag.empty() && !is_redirect(status_)) {
    tag = unquote(headers_.etag);
  }
  // Files outside LFS have git's hash here, on simple servers something else.
  git_id_ = is_sha1_hex(tag) ? to_lower_ascii(tag) : std::string();
  if (!is_sha256_hex(tag)) {
    return true;
  }
  const std::string sha256 = to_lower_ascii(tag);
  if (!file_->sha256.empty() && file_->sha256 != sha256) {
    return fatal(
        fail(ErrorCode::kCorruptData,
             "{}: the hub's listing says sha256 {}, its headers {}: changed meanwhile? Pull again",
             name_, file_->sha256, sha256));
  }
  file_->sha256 = sha256;
  return true;
}

bool Transfer::on_body(std::string_view bytes) {
  const bool wanted = file_ == nullptr ? !is_redirect(status_) : status_ == 200 || status_ == 206;
  if (!wanted) {
    // Error pages are not shown: the status says it, and the page is the server's text, not ours.
    ignored_bytes_ += bytes.size();
    return ignored_bytes_ <= kMaxIgnoredBytes;
  }
  if (!begun_ && !begin_body()) {
    return false;
  }
  if (file_ == nullptr) {
    if (bytes.size() > max_bytes_ - body_.size()) {
      return fatal(
          fail(ErrorCode::kExhausted, "{}: the answer exceeds {} bytes", name_, max_bytes_));
    }
    body_ += bytes;
    return true;
  }
  if (bytes.size() > limit_ - written_) {
    return fatal(fail(ErrorCode::kCorruptData, "{}: {} sends more than the {} bytes {}: cut off",
                      name_, url_.origin(), limit_,
                      file_->size.has_value() ? "announced" : "allowed without an announced size"));
  }
  return write_bytes(bytes);
}

bool Transfer::begin_body() {
  if (!headers_.content_encoding.empty() &&
      to_lower_ascii(headers_.content_encoding) != "identity") {
    return fatal(fail(ErrorCode::kCorruptData,
                      "{}: {} sends Content-Encoding \"{}\", which was not asked for", name_,
                      url_.origin(), headers_.content_encoding.substr(0, 40)));
  }
  begun_ = true;
  if (file_ == nullptr) {
    body_.clear();
    return true;
  }
  if (status_ == 206) {
    return begin_partial_body();
  }
  curl_off_t length = -1;
  curl_easy_getinfo(handle_, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
  if (length >= 0) {
    const auto announced = static_cast<std::uint64_t>(length);
    if (file_->size.has_value() && *file_->size != announced) {
      return fatal(fail(ErrorCode::kCorruptData, "{}: the hub says {} bytes, but {} announces {}",
                        name_, *file_->size, url_.origin(), announced));
    }
    if (!file_->size.has_value()) {
      if (Status space = check_disk_space(file_->path.parent_path(), announced);
          !space.has_value()) {
        return fatal(tl::unexpected(std::move(space).error()));
      }
    }
    file_->size = announced;
  }
  limit_ = file_->size.value_or(kMaxUnannouncedBytes);
  if (written_ > 0) {
    // The whole file although a part was asked for: the server knows no ranges, or the file is
    // another one now.
    written_ = 0;
    resumed_ = false;
    hash_.reset();
  }
  if (::ftruncate(fd_, 0) != 0) {
    return fatal(fail(ErrorCode::kUnavailable, "{}: cannot truncate: {}", part_path().string(),
                      std::strerror(errno)));
  }
  etag_ = strong_tag(headers_.etag);
  write_note();
  return true;
}

// Content-Range: bytes FIRST-LAST/TOTAL must continue exactly where the part ends.
bool Transfer::begin_partial_body() {
  std::string_view range = headers_.content_range;
  const auto malformed = [this] {
    return fatal(fail(ErrorCode::kCorruptData,
                      "{}: {} answers 206 with Content-Range \"{}\" to a request from byte {}",
                      name_, url_.origin(), headers_.content_range.substr(0, 80), asked_offset_));
  };
  if (!range.starts_with("bytes ") || asked_offset_ == 0) {
    return malformed();
  }
  range.remove_prefix(6);
  const std::size_t dash = range.find('-');
  const std::size_t slash = range.find('/');
  if (dash == std::string_view::npos || slash == std::string_view::npos || slash < dash) {
    return malformed();
  }
  const std::optional<std::uint64_t> first = parse_count(range.substr(0, dash));
  const std::optional<std::uint64_t> last = parse_count(range.substr(dash + 1, slash - dash - 1));
  const std::string_view total_text = range.substr(slash + 1);
  const std::optional<std::uint64_t> total = parse_count(total_text);
  if (!first.has_value() || !last.has_value() || *last < *first ||
      (!total.has_value() && total_text != "*")) {
    return malformed();
  }
  if (total.has_value() && file_->size.has_value() && *total != *file_->size) {
    return fatal(fail(ErrorCode::kCorruptData, "{}: the hub says {} bytes, but {} announces {}",
                      name_, *file_->size, url_.origin(), *total));
  }
  if (*first != written_) {
    restart_ = true;
    return false;
  }
  if (!file_->size.has_value()) {
    file_->size = total;
  }
  limit_ = file_->size.value_or(kMaxUnannouncedBytes);
  resumed_ = true;
  return true;
}

bool Transfer::write_bytes(std::string_view bytes) {
  hash_.update(bytes);
  while (!bytes.empty()) {
    const ssize_t put = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(written_));
    if (put < 0 && errno == EINTR) {
      continue;
    }
    if (put < 0) {
      const ErrorCode code =
          errno == ENOSPC || errno == EDQUOT ? ErrorCode::kExhausted : ErrorCode::kUnavailable;
      return fatal(fail(code, "{}: cannot write: {}", part_path().string(), std::strerror(errno)));
    }
    written_ += static_cast<std::uint64_t>(put);
    bytes.remove_prefix(static_cast<std::size_t>(put));
  }
  return true;
}

Transfer::Step Transfer::finish(CURLcode code) {
  ++attempts_;
  if (error_.has_value()) {
    return Step::kFailed;
  }
  if (headers_ended_ && is_redirect(status_)) {
    return redirect();
  }
  if (!headers_ended_) {
    if (is_final(code)) {
      return failed(
          fail(ErrorCode::kUnavailable, "{}: {}: {}", name_, url_.origin(), describe(code)));
    }
    const bool unreachable = code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_CONNECT ||
                             code == CURLE_COULDNT_RESOLVE_PROXY;
    return retry(
        code == CURLE_OK ? "no HTTP answer" : curl_easy_strerror(code), 0,
        unreachable ? std::min(kMaxUnreachable, options_.max_failures) : options_.max_failures);
  }
  if (is_transient(status_)) {
    curl_off_t wait = 0;
    curl_easy_getinfo(handle_, CURLINFO_RETRY_AFTER, &wait);
    if (wait > kMaxRetryAfterSeconds) {
      return failed(fail(ErrorCode::kUnavailable,
                         "{}: HTTP {}, {} asks to wait {} s (at most {} s are waited): try later",
                         name_, status_, url_.origin(), std::int64_t{wait}, kMaxRetryAfterSeconds));
    }
    return retry(fmt::format("HTTP {}", status_), std::int64_t{wait}, options_.max_failures);
  }
  if (file_ == nullptr) {
    if (code != CURLE_OK) {
      return retry(curl_easy_strerror(code), 0, options_.max_failures);
    }
    finished_ = true;
    return Step::kDone;
  }
  if (status_ == 200 || status_ == 206) {
    return finish_success(code);
  }
  if (status_ == 403 && !url_.same_origin(first_url_)) {
    // Storage hosts take signed addresses that expire; the hub gives a fresh one.
    return retry(fmt::format("{} answers HTTP 403", url_.origin()), 0,
                 std::min(3, options_.max_failures));
  }
  if (status_ == 416 && asked_offset_ > 0) {
    forget_part();
    return retry("the server cannot continue the part", 0, options_.max_failures);
  }
  return refuse_status();
}

Transfer::Step Transfer::finish_success(CURLcode code) {
  if (!begun_ && !restart_) {
    begin_body();  // an empty body
    if (error_.has_value()) {
      return Step::kFailed;
    }
  }
  if (restart_) {
    forget_part();
    return retry("the server continues at another place", 0, options_.max_failures);
  }
  const bool all = file_->size.has_value() ? written_ == *file_->size : code == CURLE_OK;
  if (all) {
    return complete();
  }
  return retry(
      fmt::format("{} after {}",
                  code == CURLE_OK ? "the server ended the file" : curl_easy_strerror(code),
                  amount()),
      0, options_.max_failures);
}

Transfer::Step Transfer::complete() {
  const std::string sha256 = hash_.finish();
  if (!file_->sha256.empty() && sha256 != file_->sha256) {
    forget_part();
    if (std::exchange(resumed_, false) && !std::exchange(restarted_, true)) {
      // The parts of two responses may not belong together; the whole from one response may be
      // right.
      return retry("the resumed file has a wrong sha256", 0, options_.max_failures);
    }
    return failed(fail(
        ErrorCode::kCorruptData,
        "{}: sha256 is {}, the hub says {}: damaged or replaced on the way; nothing of it was kept",
        name_, sha256, file_->sha256));
  }
  if (file_->sha256.empty() && !git_id_.empty()) {
    const Result<std::string> git_id = git_blob_id(part_path(), options_.cancel);
    if (!git_id.has_value()) {
      return failed(tl::unexpected(git_id.error()));
    }
    if (*git_id != git_id_) {
      forget_part();
      if (std::exchange(resumed_, false) && !std::exchange(restarted_, true)) {
        return retry("the resumed file has a wrong git hash", 0, options_.max_failures);
      }
      return failed(fail(ErrorCode::kCorruptData,
                         "{}: git hash is {}, the hub's ETag says {}: damaged or replaced on the "
                         "way; nothing of it was kept",
                         name_, *git_id, git_id_));
    }
  }
  if (::fsync(fd_) != 0) {
    return failed(fail(ErrorCode::kUnavailable, "{}: cannot write: {}", part_path().string(),
                       std::strerror(errno)));
  }
  if (Status renamed = rename_path(part_path(), file_->path); !renamed.has_value()) {
    return failed(tl::unexpected(std::move(renamed).error()));
  }
  std::error_code ignored;
  std::filesystem::remove(note_path(), ignored);
  file_->size = written_;
  file_->sha256 = sha256;
  finished_ = true;
  options_.progress->file_done(name_, written_, sha256);
  return Step::kDone;
}

Transfer::Step Transfer::redirect() {
  --attempts_;  // a hop is no attempt
  if (++hops_ > kMaxRedirects) {
    return failed(
        fail(ErrorCode::kCorruptData, "{}: more than {} redirects", name_, kMaxRedirects));
  }
  Result<Url> next = resolve_redirect(url_, headers_.location);
  if (!next.has_value()) {
    return failed(tl::unexpected(std::move(next).error().with_context(name_)));
  }
  token_live_ = token_live_ && next->same_origin(options_.base);
  url_ = std::move(*next);
  not_before_ = {};
  return Step::kAgain;
}

Transfer::Step Transfer::retry(std::string_view why, std::int64_t retry_after_s, int max_failures) {
  failures_ = written_ > best_ ? 1 : failures_ + 1;
  if (failures_ >= max_failures || attempts_ >= kMaxAttempts) {
    const std::string kept = written_ > 0
                                 ? fmt::format("; {} are kept, the same command resumes", amount())
                                 : std::string();
    return failed(fail(ErrorCode::kUnavailable, "{}: {}: {}; gave up after {} attempt{}{}", name_,
                       url_.origin(), why, attempts_, attempts_ == 1 ? "" : "s", kept));
  }
  std::int64_t pause_ms = std::min<std::int64_t>(
      std::int64_t{options_.retry_base_ms} << std::min(failures_ - 1, 10), kMaxPauseMs);
  // Jitter, so that parallel files do not come back all at once. Not a result: any generator will
  // do.
  static thread_local std::minstd_rand jitter(std::random_device{}());
  pause_ms = pause_ms * static_cast<std::int64_t>(75 + jitter() % 51) / 100;
  pause_ms = std::max(pause_ms, retry_after_s * 1000);
  options_.progress->note(fmt::format("{}: {}; trying again in {:.1f} s", name_, why,
                                      static_cast<double>(pause_ms) / 1000.0));
  not_before_ = Clock::now() + std::chrono::milliseconds(pause_ms);
  to_first_url();  // the address of a redirect may have expired
  return Step::kAgain;
}

Transfer::Step Transfer::refuse_status() {
  switch (status_) {
    case 401:
    case 403:
      return failed(fail(
          ErrorCode::kUnavailable, "{}: {} refuses (HTTP {}): {}", name_, url_.origin(), status_,
          token_live_
              ? "the token given has no access to it"
              : "it may need a token: set TRINE_HUB_TOKEN or HF_TOKEN, or give --token-file"));
    case 404:
    case 410:
      return failed(fail(ErrorCode::kNotFound, "{}: {} has no such file (HTTP {})", name_,
                         url_.origin(), status_));
    default:
      return failed(
          fail(ErrorCode::kUnavailable, "{}: {} answers HTTP {}", name_, url_.origin(), status_));
  }
}

Transfer::Step Transfer::failed(tl::unexpected<Error> error) {
  error_ = std::move(error).value();
  return Step::kFailed;
}

bool Transfer::fatal(tl::unexpected<Error> error) {
  error_ = std::move(error).value();
  return false;
}

void Transfer::forget_part() {
  if (fd_ >= 0) {
    ::close(std::exchange(fd_, -1));
  }
  std::error_code ignored;
  std::filesystem::remove(part_path(), ignored);
  std::filesystem::remove(note_path(), ignored);
  written_ = 0;
  etag_.clear();
  hash_.reset();
}

bool Transfer::open_part() {
  if (fd_ >= 0) {
    return true;
  }
  fd_ = ::open(part_path().c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd_ < 0) {
    return fatal(fail(ErrorCode::kUnavailable, "{}: cannot create: {}", part_path().string(),
                      std::strerror(errno)));
  }
  return true;
}

void Transfer::read_note(std::string& etag, std::string& sha256) const {
  const Result<std::string> text = read_small_file(note_path(), kMaxNoteBytes);
  if (!text.has_value()) {
    return;
  }
  const auto note = parse_json(*text);
  if (!note.has_value() || !note->is_object()) {
    return;
  }
  const auto get = [&note](const char* key) {
    const auto it = note->find(key);
    return it != note->end() && it->is_string() ? it->get<std::string>() : std::string();
  };
  sha256 = get("sha256");
  const std::string tag = get("etag");
  // It goes into a request header.
  const bool printable =
      std::all_of(tag.begin(), tag.end(), [](char c) { return c >= 0x20 && c < 0x7F; });
  etag = printable ? strong_tag(tag) : std::string_view{};
}

void Transfer::write_note() const {
  const nlohmann::ordered_json note = {{"etag", etag_}, {"sha256", file_->sha256}};
  // Without the note the part is not resumed: a lost convenience, no error.
  static_cast<void>(
      write_file_atomic(note_path(),
                        note.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace))
          .has_value());
}

std::string Transfer::amount() const {
  const std::optional<std::uint64_t> size = file_ != nullptr ? file_->size : std::nullopt;
  return size.has_value() ? fmt::format("{} of {} bytes", written_, *size)
                          : fmt::format("{} bytes", written_);
}

}  // namespace trine::hub
