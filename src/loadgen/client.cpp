#include "loadgen/client.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <unordered_map>
#include <utility>

#include <curl/curl.h>

#include "loadgen/stream_reader.h"

namespace trine::loadgen {
namespace {

// Of an answer that is no stream.
constexpr std::size_t kMostPlainBytes = std::size_t{1} << 20;

struct MultiDeleter {
  void operator()(CURLM* multi) const { curl_multi_cleanup(multi); }
};

struct EasyDeleter {
  void operator()(CURL* easy) const { curl_easy_cleanup(easy); }
};

struct ListDeleter {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};

struct Exchange {
  std::unique_ptr<CURL, EasyDeleter> easy;
  std::string body;
  Outcome outcome;
  Client::Done done;
  StreamReader reader;
  std::string plain;
  std::optional<Error> broken;

  bool streams() const { return outcome.status == 200 && !body.empty(); }
};

std::size_t take_body(char* data, std::size_t, std::size_t count, void* self) {
  auto& exchange = *static_cast<Exchange*>(self);
  const std::string_view bytes(data, count);
  if (exchange.outcome.status == 0) {
    curl_easy_getinfo(exchange.easy.get(), CURLINFO_RESPONSE_CODE, &exchange.outcome.status);
  }
  if (!exchange.streams()) {
    exchange.plain +=
        bytes.substr(0, kMostPlainBytes - std::min(exchange.plain.size(), kMostPlainBytes));
    return count;
  }
  auto found = exchange.reader.add(bytes);
  if (!found.has_value()) {
    exchange.broken = std::move(found).error();
    return CURL_WRITEFUNC_ERROR;
  }
  const double now = now_s();
  exchange.outcome.output_s.insert(exchange.outcome.output_s.end(),
                                   static_cast<std::size_t>(found->num_outputs), now);
  return count;
}

std::size_t take_header(char* data, std::size_t, std::size_t count, void* self) {
  constexpr std::string_view kName = "retry-after:";
  std::string line(data, count);
  std::transform(line.begin(), line.end(), line.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  if (line.starts_with(kName)) {
    const std::size_t begin = line.find_first_not_of(' ', kName.size());
    double seconds = -1.0;
    if (begin != line.npos &&
        std::from_chars(line.data() + begin, line.data() + line.size(), seconds).ec ==
            std::errc()) {
      static_cast<Exchange*>(self)->outcome.retry_after_s = seconds;
    }
  }
  return count;
}

void judge(Exchange& exchange, CURLcode code) {
  Outcome& out = exchange.outcome;
  if (exchange.broken.has_value()) {
    out.failure = exchange.broken->code == ErrorCode::kUnavailable ? Failure::kErrorEvent
                                                                   : Failure::kMalformed;
    out.error = exchange.broken->message;
    return;
  }
  if (code == CURLE_OPERATION_TIMEDOUT) {
    out.failure = Failure::kTimeout;
    out.error = "no complete answer within the time limit";
    return;
  }
  if (code != CURLE_OK) {
    out.failure = Failure::kConnection;
    out.error = curl_easy_strerror(code);
    return;
  }
  curl_easy_getinfo(exchange.easy.get(), CURLINFO_RESPONSE_CODE, &out.status);
  if (out.status != 200) {
    out.failure = Failure::kRefused;
    out.error = error_text(exchange.plain);
    return;
  }
  if (!exchange.streams()) {
    return;
  }
  if (const Status end = exchange.reader.finish(); !end.has_value()) {
    out.failure = Failure::kMalformed;
    out.error = end.error().message;
    return;
  }
  const auto prompt_tokens = exchange.reader.prompt_tokens();
  const auto output_tokens = exchange.reader.completion_tokens();
  if (!prompt_tokens.has_value() || !output_tokens.has_value()) {
    out.failure = Failure::kNoUsage;
    out.error = "the stream has no usage with prompt_tokens and completion_tokens";
    return;
  }
  out.prompt_tokens = *prompt_tokens;
  out.output_tokens = *output_tokens;
  out.cached_tokens = exchange.reader.cached_tokens();
}

}  // namespace

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string_view failure_name(Failure failure) {
  switch (failure) {
    case Failure::kNone:
      return "none";
    case Failure::kRefused:
      return "refused";
    case Failure::kConnection:
      return "connection";
    case Failure::kTimeout:
      return "timeout";
    case Failure::kErrorEvent:
      return "error_event";
    case Failure::kMalformed:
      return "malformed";
    case Failure::kNoUsage:
      return "no_usage";
  }
  return "none";
}

struct Client::Impl {
  ClientOptions options;
  std::unique_ptr<curl_slist, ListDeleter> headers;
  // After what it uses, so that it goes first.
  std::unordered_map<CURL*, std::unique_ptr<Exchange>> running;
  std::unique_ptr<CURLM, MultiDeleter> multi;

  Status add(const std::string& url, std::unique_ptr<Exchange> exchange);
  void collect();
};

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Client::~Client() {
  for (const auto& [easy, exchange] : impl_->running) {
    curl_multi_remove_handle(impl_->multi.get(), easy);
  }
}

Result<std::unique_ptr<Client>> Client::create(ClientOptions options) {
  static const CURLcode started = curl_global_init(CURL_GLOBAL_DEFAULT);
  auto impl = std::make_unique<Impl>();
  impl->multi.reset(curl_multi_init());
  std::vector<std::string> lines{"Content-Type: application/json", "Expect:"};
  if (!options.api_key.empty()) {
    lines.push_back("Authorization: Bearer " + options.api_key);
  }
  for (const std::string& line : lines) {
    curl_slist* longer = curl_slist_append(impl->headers.get(), line.c_str());
    if (longer != nullptr) {
      (void)impl->headers.release();
      impl->headers.reset(longer);
    }
  }
  if (started != CURLE_OK || impl->multi == nullptr || impl->headers == nullptr) {
    return fail(ErrorCode::kInternal, "libcurl does not start: {}", curl_easy_strerror(started));
  }
  constexpr long kMostIdleConnections = 4096;
  curl_multi_setopt(impl->multi.get(), CURLMOPT_MAXCONNECTS, kMostIdleConnections);
  impl->options = std::move(options);
  return std::unique_ptr<Client>(new Client(std::move(impl)));
}

Status Client::Impl::add(const std::string& url, std::unique_ptr<Exchange> exchange) {
  exchange->easy.reset(curl_easy_init());
  CURL* easy = exchange->easy.get();
  if (easy == nullptr) {
    return fail(ErrorCode::kExhausted, "cannot start a request: out of memory");
  }
  curl_easy_setopt(easy, CURLOPT_URL, url.c_str());
  curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(easy, CURLOPT_PROXY, "");
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
  curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, static_cast<long>(options.timeout_s * 1e3));
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_body);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, exchange.get());
  curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, take_header);
  curl_easy_setopt(easy, CURLOPT_HEADERDATA, exchange.get());
  if (!exchange->body.empty()) {
    curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE,
                     static_cast<curl_off_t>(exchange->body.size()));
    curl_easy_setopt(easy, CURLOPT_POSTFIELDS, exchange->body.c_str());
  }
  exchange->outcome.sent_s = now_s();
  if (curl_multi_add_handle(multi.get(), easy) != CURLM_OK) {
    return fail(ErrorCode::kExhausted, "cannot start a request: out of memory or descriptors");
  }
  running.emplace(easy, std::move(exchange));
  return {};
}

Status Client::start(std::string_view path, std::string body, double scheduled_s, Done done) {
  auto exchange = std::make_unique<Exchange>();
  exchange->body = std::move(body);
  exchange->outcome.scheduled_s = scheduled_s;
  exchange->done = std::move(done);
  return impl_->add(impl_->options.base_url + std::string(path), std::move(exchange));
}

void Client::Impl::collect() {
  int left = 0;
  while (CURLMsg* message = curl_multi_info_read(multi.get(), &left)) {
    if (message->msg != CURLMSG_DONE) {
      continue;
    }
    CURL* easy = message->easy_handle;
    const CURLcode code = message->data.result;
    const auto at = running.find(easy);
    if (at == running.end()) {
      continue;
    }
    const std::unique_ptr<Exchange> exchange = std::move(at->second);
    running.erase(at);
    exchange->outcome.end_s = now_s();
    judge(*exchange, code);
    curl_multi_remove_handle(multi.get(), easy);
    if (exchange->done) {
      exchange->done(std::move(exchange->outcome));
    }
  }
}

void Client::poll(double seconds) {
  int running = 0;
  curl_multi_perform(impl_->multi.get(), &running);
  impl_->collect();
  const int ms = static_cast<int>(std::clamp(seconds, 0.0, 1.0) * 1e3);
  curl_multi_poll(impl_->multi.get(), nullptr, 0, ms, nullptr);
  curl_multi_perform(impl_->multi.get(), &running);
  impl_->collect();
}

std::size_t Client::num_running() const {
  return impl_->running.size();
}

Result<std::string> Client::get(std::string_view path) {
  auto exchange = std::make_unique<Exchange>();
  Exchange* raw = exchange.get();
  std::optional<Outcome> end;
  std::string plain;
  exchange->done = [&](Outcome outcome) {
    plain = std::move(raw->plain);
    end = std::move(outcome);
  };
  TRINE_TRY(impl_->add(impl_->options.base_url + std::string(path), std::move(exchange)));
  while (!end.has_value()) {
    poll(0.1);
  }
  if (end->failure != Failure::kNone) {
    return fail(ErrorCode::kUnavailable, "{}{}: {}{}", impl_->options.base_url, path,
                end->status != 0 ? fmt::format("HTTP status {}: ", end->status) : "", end->error);
  }
  return plain;
}

}  // namespace trine::loadgen
