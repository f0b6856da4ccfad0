#include "hub/http.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include <curl/curl.h>

#include "base/check.h"
#include "hub/transfer.h"

namespace trine::hub {
namespace {

using Clock = Transfer::Clock;

constexpr std::chrono::milliseconds kTick{100};

struct MultiDeleter {
  void operator()(CURLM* multi) const { curl_multi_cleanup(multi); }
};

// Runs transfers until all are finished or one fails.
class Runner {
 public:
  Runner(const HttpOptions& options, std::uint64_t done_before)
      : options_(options), done_before_(done_before) {}

  ~Runner() { stop(); }

  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  Status run(std::span<const std::unique_ptr<Transfer>> transfers) {
    for (const auto& transfer : transfers) {
      all_.push_back(transfer.get());
      if (!transfer->finished()) {
        waiting_.push_back(transfer.get());
      }
    }
    while (!waiting_.empty() || !active_.empty()) {
      if (is_cancelled(options_.cancel)) {
        return fail(ErrorCode::kCancelled,
                    "interrupted; what is there is kept, the same command resumes");
      }
      TRINE_TRY(start_ready());
      int running = 0;
      curl_multi_perform(multi_.get(), &running);
      TRINE_TRY_ASSIGN(const bool any_ended, collect());
      show_progress();
      if (!any_ended) {
        curl_multi_poll(multi_.get(), nullptr, 0, static_cast<int>(next_wait().count()), nullptr);
      }
    }
    return {};
  }

 private:
  Status start_ready() {
    const Clock::time_point now = Clock::now();
    for (auto it = waiting_.begin();
         it != waiting_.end() && std::cmp_less(active_.size(), options_.parallel);) {
      Transfer* transfer = *it;
      if (transfer->not_before() > now) {
        ++it;
        continue;
      }
      TRINE_TRY_ASSIGN(CURL * handle, transfer->start());
      it = waiting_.erase(it);
      active_.emplace_back(transfer, handle);
      if (curl_multi_add_handle(multi_.get(), handle) != CURLM_OK) {
        return fail(ErrorCode::kExhausted, "cannot start a transfer: out of memory or descriptors");
      }
    }
    return {};
  }

  // Ends what curl has finished with. True when something ended, so that another may start at once.
  Result<bool> collect() {
    bool any = false;
    int left = 0;
    while (CURLMsg* message = curl_multi_info_read(multi_.get(), &left)) {
      if (message->msg != CURLMSG_DONE) {
        continue;
      }
      any = true;
      CURL* handle = message->easy_handle;
      const CURLcode code = message->data.result;
      const auto it = std::find_if(active_.begin(), active_.end(),
                                   [handle](const auto& entry) { return entry.second == handle; });
      TRINE_CHECK(it != active_.end());
      Transfer* transfer = it->first;
      active_.erase(it);
      curl_multi_remove_handle(multi_.get(), handle);
      const Transfer::Step step = transfer->finish(code);
      transfer->close();
      if (step == Transfer::Step::kFailed) {
        return tl::unexpected(transfer->error());
      }
      if (step == Transfer::Step::kAgain) {
        waiting_.insert(waiting_.begin(), transfer);
      }
    }
    return any;
  }

  void show_progress() {
    std::uint64_t done = done_before_;
    for (const Transfer* transfer : all_) {
      done += transfer->done_bytes();
    }
    options_.progress->update(done);
  }

  // Until the next retry is due, at most a tick: the cancel flag and the progress want to be looked
  // at.
  std::chrono::milliseconds next_wait() const {
    std::chrono::milliseconds wait = kTick;
    if (std::cmp_less(active_.size(), options_.parallel)) {
      for (const Transfer* transfer : waiting_) {
        const auto until =
            std::chrono::ceil<std::chrono::milliseconds>(transfer->not_before() - Clock::now());
        wait = std::clamp(until, std::chrono::milliseconds{0}, wait);
      }
    }
    return wait;
  }

  void stop() {
    for (const auto& [transfer, handle] : active_) {
      curl_multi_remove_handle(multi_.get(), handle);
      transfer->close();
    }
    active_.clear();
  }

  const HttpOptions& options_;
  const std::uint64_t done_before_;
  std::unique_ptr<CURLM, MultiDeleter> multi_{curl_multi_init()};
  std::vector<Transfer*> all_;
  std::vector<Transfer*> waiting_;
  std::vector<std::pair<Transfer*, CURL*>> active_;
};

Status init_curl() {
  static const CURLcode code = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (code != CURLE_OK) {
    return fail(ErrorCode::kInternal, "libcurl does not start: {}", curl_easy_strerror(code));
  }
  return {};
}

}  // namespace

Status download_files(const HttpOptions& options, std::span<Download> files,
                      std::uint64_t done_before, long* http_status) {
  TRINE_TRY(init_curl());
  std::vector<std::unique_ptr<Transfer>> transfers;
  for (Download& file : files) {
    TRINE_TRY_ASSIGN(Url url, parse_url(file.url));
    transfers.push_back(std::make_unique<Transfer>(options, std::move(url), &file));
    TRINE_TRY(transfers.back()->prepare());
  }
  Runner runner(options, done_before);
  Status status = runner.run(transfers);
  if (!status.has_value() && http_status != nullptr) {
    for (const auto& transfer : transfers) {
      if (!transfer->finished() && transfer->status() >= 400) {
        *http_status = transfer->status();
      }
    }
  }
  return status;
}

Result<HttpAnswer> http_get(const HttpOptions& options, const std::string& url,
                            std::uint64_t max_bytes) {
  TRINE_TRY(init_curl());
  TRINE_TRY_ASSIGN(Url parsed, parse_url(url));
  std::vector<std::unique_ptr<Transfer>> transfers;
  transfers.push_back(std::make_unique<Transfer>(options, std::move(parsed), max_bytes));
  HttpOptions quiet = options;
  const std::unique_ptr<ProgressSink> none = make_progress(ProgressStyle::kQuiet, nullptr);
  quiet.progress = none.get();
  Runner runner(quiet, 0);
  TRINE_TRY(runner.run(transfers));
  return HttpAnswer{transfers.front()->status(), transfers.front()->body(),
                    transfers.front()->error_code()};
}

Result<std::string> clean_token(std::string_view text, std::string_view origin) {
  const std::size_t begin = std::min(text.find_first_not_of(" \t\r\n"), text.size());
  text.remove_prefix(begin);
  text = text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
  const bool printable =
      std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7F; });
  if (!printable || text.size() > 4096) {
    return fail(ErrorCode::kInvalidArgument,
                "{}: the token holds spaces, control or non-ASCII characters", origin);
  }
  return std::string(text);
}

}  // namespace trine::hub
