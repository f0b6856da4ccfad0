#include "server/http/parser.h"

#include <algorithm>
#include <cctype>
#include <memory>
#include <utility>

#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <fmt/format.h>

#include "base/check.h"

namespace trine::server::http {

namespace beast = boost::beast;

namespace {

using Parser = beast::http::request_parser<beast::http::string_body>;

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) {
    return static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  });
  return out;
}

Method method_of(beast::http::verb verb) {
  switch (verb) {
    case beast::http::verb::get:
      return Method::kGet;
    case beast::http::verb::head:
      return Method::kHead;
    case beast::http::verb::post:
      return Method::kPost;
    case beast::http::verb::delete_:
      return Method::kDelete;
    case beast::http::verb::options:
      return Method::kOptions;
    default:
      return Method::kOther;
  }
}

std::string_view view(beast::string_view text) {
  return {text.data(), text.size()};
}

// What may be sent twice by proxies and is read nowhere here may repeat.
bool must_be_single(std::string_view name) {
  constexpr std::string_view kSingle[] = {
      "authorization", "content-encoding", "content-length",    "content-type", "expect",
      "host",          "origin",           "transfer-encoding", "x-request-id"};
  return std::find(std::begin(kSingle), std::end(kSingle), name) != std::end(kSingle);
}

// A line end is CR LF, and no line continues another.
bool lines_are_strict(std::string_view header) {
  for (std::size_t i = 0; i < header.size(); ++i) {
    const bool cr = header[i] == '\r';
    const bool lf = header[i] == '\n';
    if (header[i] == '\0' || (cr && (i + 1 == header.size() || header[i + 1] != '\n')) ||
        (lf && (i == 0 || header[i - 1] != '\r'))) {
      return false;
    }
    if (lf && i + 1 < header.size() && (header[i + 1] == ' ' || header[i + 1] == '\t')) {
      return false;
    }
  }
  return true;
}

}  // namespace

struct RequestParser::Impl {
  ParserLimits limits;
  State state = State::kHeader;
  std::unique_ptr<Parser> parser;  // of the message at hand, from its whole header on
  Request request;
  Response error;
  bool expects_continue = false;
  std::size_t scanned = 0;  // of the header, without finding its end

  State refuse(int status, std::string_view message, std::string_view code = {}) {
    error = error_response(status, message, "invalid_request_error", code);
    state = State::kError;
    return state;
  }

  State feed_header(std::string& input);
  State feed_body(std::string& input);
  bool read_head();
  bool read_framing();
  bool read_target(std::string_view target);
  State fail_with(const beast::error_code& why);
};

RequestParser::RequestParser(const ParserLimits& limits) : impl_(std::make_unique<Impl>()) {
  impl_->limits = limits;
}

RequestParser::~RequestParser() = default;

RequestParser::State RequestParser::state() const {
  return impl_->state;
}

bool RequestParser::expects_continue() const {
  return impl_->expects_continue;
}

const Response& RequestParser::error() const {
  return impl_->error;
}

const Request& RequestParser::so_far() const {
  return impl_->request;
}

Request RequestParser::take() {
  TRINE_CHECK(impl_->state == State::kDone);
  Request out = std::move(impl_->request);
  impl_->request = {};
  impl_->parser.reset();
  impl_->state = State::kHeader;
  impl_->expects_continue = false;
  impl_->scanned = 0;
  return out;
}

RequestParser::State RequestParser::Impl::fail_with(const beast::error_code& why) {
  if (why == beast::http::error::body_limit) {
    return refuse(413, fmt::format("the body is larger than {} bytes", limits.max_body_bytes),
                  "body_too_large");
  }
  if (why == beast::http::error::bad_version) {
    return refuse(505, "HTTP/1.0 and HTTP/1.1 are served");
  }
  return refuse(400, fmt::format("malformed HTTP request: {}", why.message()));
}

bool RequestParser::Impl::read_target(std::string_view target) {
  request.target = target;
  if (target.starts_with("http://") || target.starts_with("https://")) {
    target.remove_prefix(target.find("://") + 3);
    const std::size_t slash = std::min(target.find_first_of("/?"), target.size());
    request.authority = target.substr(0, slash);
    target.remove_prefix(slash);
    if (!target.starts_with('/')) {
      refuse(400, "the request target has no path");
      return false;
    }
  } else if (const std::string* host = request.header("host"); host != nullptr) {
    request.authority = *host;
  }
  if (target == "*" && request.method == Method::kOptions) {
    request.path = "*";
    return true;
  }
  const std::size_t mark = target.find('?');
  if (mark != std::string_view::npos) {
    request.query = target.substr(mark + 1);
  }
  if (!target.starts_with('/') || !decode_path(target.substr(0, mark), request.path)) {
    refuse(400, "the request target is not a path");
    return false;
  }
  return true;
}

// How long the body is, and whether it can be read at all.
bool RequestParser::Impl::read_framing() {
  const std::string* length = request.header("content-length");
  const std::string* coding = request.header("transfer-encoding");
  const std::string* content = request.header("content-encoding");
  if (coding != nullptr && length != nullptr) {
    refuse(400, "Content-Length beside Transfer-Encoding");
    return false;
  }
  if (coding != nullptr && (lower(*coding) != "chunked" || request.minor_version == 0)) {
    refuse(501, "the only Transfer-Encoding is chunked, in HTTP/1.1");
    return false;
  }
  if (content != nullptr && lower(*content) != "identity") {
    refuse(415, "compressed bodies are not read; send the body as it is");
    return false;
  }
  if (const auto bytes = parser->content_length();
      bytes.has_value() && *bytes > limits.max_body_bytes) {
    refuse(413,
           fmt::format("the body has {} bytes, at most {} are read", *bytes, limits.max_body_bytes),
           "body_too_large");
    return false;
  }
  if (const std::string* expect = request.header("expect"); expect != nullptr) {
    if (lower(*expect) != "100-continue") {
      refuse(417, "the only Expect is 100-continue");
      return false;
    }
    expects_continue = request.minor_version == 1;
  }
  return true;
}

bool RequestParser::Impl::read_head() {
  const auto& message = parser->get();
  request.method = method_of(message.method());
  const unsigned version = message.version();
  if (version != 10 && version != 11) {
    refuse(505, "HTTP/1.0 and HTTP/1.1 are served");
    return false;
  }
  request.minor_version = static_cast<int>(version % 10);
  request.keep_alive = message.keep_alive();
  for (const auto& field : message) {
    std::string name = lower(view(field.name_string()));
    if (must_be_single(name) && request.header(name) != nullptr) {
      refuse(400, fmt::format("the header {} is there twice", name));
      return false;
    }
    request.headers.push_back({std::move(name), std::string(view(field.value()))});
  }
  if (request.minor_version == 1 && request.header("host") == nullptr) {
    refuse(400, "an HTTP/1.1 request needs a Host header");
    return false;
  }
  return read_target(view(message.target())) && read_framing();
}

RequestParser::State RequestParser::Impl::feed_header(std::string& input) {
  // Clients of old send an empty line after a body.
  while (input.starts_with("\r\n")) {
    input.erase(0, 2);
    scanned = 0;
  }
  const std::size_t from = scanned < 3 ? 0 : scanned - 3;
  const std::size_t end = input.find("\r\n\r\n", from);
  if (std::min(end, input.size()) > limits.max_header_bytes) {
    return refuse(431, fmt::format("the request line and headers take more than {} bytes",
                                   limits.max_header_bytes));
  }
  if (end == std::string::npos) {
    scanned = input.size();
    return state;
  }
  const std::size_t size = end + 4;
  if (!lines_are_strict(std::string_view(input).substr(0, size))) {
    return refuse(400, "malformed HTTP request: a folded or badly ended header line");
  }
  parser = std::make_unique<Parser>();
  parser->header_limit(static_cast<std::uint32_t>(limits.max_header_bytes + 4));
  parser->body_limit(boost::none);  // read_framing() knows what the header says of it
  beast::error_code error_code;
  std::size_t used = parser->put(boost::asio::buffer(input.data(), size), error_code);
  if (error_code && error_code != beast::http::error::need_more) {
    return fail_with(error_code);
  }
  if (!parser->is_header_done() || used != size) {
    return refuse(400, "malformed HTTP request");
  }
  input.erase(0, size);
  if (!read_head()) {
    return state;
  }
  parser->body_limit(limits.max_body_bytes);
  state = State::kBody;
  return feed_body(input);
}

RequestParser::State RequestParser::Impl::feed_body(std::string& input) {
  while (!parser->is_done() && !input.empty()) {
    beast::error_code error_code;
    const std::size_t used = parser->put(boost::asio::buffer(input), error_code);
    input.erase(0, used);
    if (error_code && error_code != beast::http::error::need_more) {
      return fail_with(error_code);
    }
    if (used == 0) {
      // The line of a chunk's size, its extensions or the trailer: they count as headers do.
      if (input.size() > limits.max_header_bytes) {
        return refuse(400, "malformed HTTP request: a chunk's header is too long");
      }
      return state;
    }
  }
  if (parser->is_done()) {
    request.body = std::move(parser->get().body());
    state = State::kDone;
  }
  return state;
}

RequestParser::State RequestParser::feed(std::string& input) {
  switch (impl_->state) {
    case State::kHeader:
      return impl_->feed_header(input);
    case State::kBody:
      return impl_->feed_body(input);
    case State::kDone:
    case State::kError:
      break;
  }
  return impl_->state;
}

}  // namespace trine::server::http
