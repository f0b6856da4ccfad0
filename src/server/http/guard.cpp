#include "server/http/guard.h"

#include <algorithm>
#include <array>
#include <utility>

#include <arpa/inet.h>
#include <fmt/format.h>

#include "base/printable.h"

namespace trine::server::http {

namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  }
  return out;
}

Response unauthorized() {
  Response out = error_response(401, "a valid API key is needed: Authorization: Bearer KEY",
                                "authentication_error", "invalid_api_key");
  out.headers.push_back({"WWW-Authenticate", "Bearer"});
  return out;
}

std::string_view bearer(const Request& request) {
  const std::string* header = request.header("authorization");
  if (header == nullptr) {
    return {};
  }
  std::string_view text = *header;
  if (text.size() < 7 || lower(text.substr(0, 7)) != "bearer ") {
    return {};
  }
  text.remove_prefix(7);
  while (text.starts_with(' ')) {
    text.remove_prefix(1);
  }
  return text;
}

}  // namespace

std::string host_of(std::string_view authority) {
  const bool bracketed = authority.starts_with('[');
  const std::size_t end = bracketed ? authority.find(']') : authority.find(':');
  if (bracketed && end == std::string_view::npos) {
    return {};
  }
  // Behind the name a port and nothing else: "localhost:80@evil.example" names no host.
  const std::string_view rest = end == std::string_view::npos
                                    ? std::string_view()
                                    : authority.substr(end + (bracketed ? 1 : 0));
  if (!rest.empty() &&
      (rest.front() != ':' || rest.find_first_not_of("0123456789", 1) != std::string_view::npos)) {
    return {};
  }
  if (bracketed) {
    return lower(authority.substr(1, end - 1));
  }
  std::string host = lower(authority.substr(0, end));
  if (host.ends_with('.')) {
    host.pop_back();
  }
  return host;
}

bool is_address_or_localhost(std::string_view host) {
  const std::string text(host);
  std::array<unsigned char, 16> bytes{};
  return host == "localhost" || host.ends_with(".localhost") ||
         ::inet_pton(AF_INET, text.c_str(), bytes.data()) == 1 ||
         ::inet_pton(AF_INET6, text.c_str(), bytes.data()) == 1;
}

bool is_loopback(std::string_view host) {
  const std::string text(host);
  in_addr v4{};
  in6_addr v6{};
  return host == "localhost" ||
         (::inet_pton(AF_INET, text.c_str(), &v4) == 1 && (ntohl(v4.s_addr) >> 24) == 127) ||
         (::inet_pton(AF_INET6, text.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6));
}

Status Guard::check_options(const GuardOptions& options) {
  for (const std::string& origin : options.cors_origins) {
    const std::size_t scheme = origin.find("://");
    const bool known = origin.starts_with("http://") || origin.starts_with("https://");
    if (!known || origin.size() == scheme + 3 ||
        origin.find_first_of("/?#* ", scheme + 3) != std::string::npos) {
      return fail(ErrorCode::kInvalidArgument,
                  "cors origin '{}': give scheme, host and port exactly, as in "
                  "https://app.example:8443, without a path or *",
                  origin);
    }
  }
  return {};
}

bool Guard::origin_allowed(std::string_view origin) const {
  return std::find(options_.cors_origins.begin(), options_.cors_origins.end(), origin) !=
         options_.cors_origins.end();
}

std::optional<Response> Guard::check_site(const Request& request) const {
  const std::string host = host_of(request.authority);
  const auto& allowed = options_.allowed_hosts;
  const auto has = [&allowed](std::string_view name) {
    return std::find(allowed.begin(), allowed.end(), name) != allowed.end();
  };
  // Behind keys a foreign page can do nothing, unless the names were given.
  // Browsers always name a host; HTTP/1.0 need not.
  const bool named = !request.authority.empty() || request.header("host") != nullptr;
  const bool checked = named && !has("*") && (!needs_key() || !allowed.empty());
  if (checked && !is_address_or_localhost(host) && !has(host)) {
    return error_response(
        403,
        fmt::format("the host '{}' is not served here; --allowed-hosts adds it", printable(host)),
        "permission_error", "host_not_allowed");
  }
  const std::string* origin = request.header("origin");
  if (origin != nullptr && !origin_allowed(*origin)) {
    const std::string own =
        fmt::format("{}://{}", options_.secure ? "https" : "http", lower(request.authority));
    if (lower(*origin) != own) {
      return error_response(403,
                            fmt::format("pages of '{}' may not use this server; --cors-origins "
                                        "adds an origin",
                                        printable(*origin)),
                            "permission_error", "origin_not_allowed");
    }
  }
  return std::nullopt;
}

std::optional<Response> Guard::check(const Route& route, Request& request) const {
  if (auto refused = check_site(request); refused.has_value()) {
    return refused;
  }
  if (route.auth == Auth::kNone) {
    return std::nullopt;
  }
  if (route.auth == Auth::kAdmin && !options_.keys.has_admin_keys()) {
    return error_response(403, "admin endpoints are off; --admin-key-file turns them on",
                          "permission_error", "admin_off");
  }
  if (route.auth == Auth::kUser && !needs_key()) {
    return std::nullopt;
  }
  const std::optional<Principal> found = options_.keys.find(bearer(request));
  if (!found.has_value()) {
    return unauthorized();
  }
  if (route.auth == Auth::kAdmin && !found->admin) {
    return error_response(403, "this endpoint needs an admin key", "permission_error", "not_admin");
  }
  request.principal = *found;
  return std::nullopt;
}

Response Guard::options_answer(const Request& request, std::string_view allow) const {
  Response out;
  out.status = 204;
  out.headers.push_back({"Allow", fmt::format("{}, OPTIONS", allow)});
  const std::string* origin = request.header("origin");
  if (origin != nullptr && request.header("access-control-request-method") != nullptr &&
      origin_allowed(*origin)) {
    out.headers.push_back({"Access-Control-Allow-Methods", std::string(allow)});
    // Any: clients send their own (OpenAI's in browsers X-Stainless-*). Authorization has to be
    // named.
    out.headers.push_back({"Access-Control-Allow-Headers", "Authorization, *"});
    out.headers.push_back({"Access-Control-Max-Age", "600"});
  }
  return out;
}

void Guard::add_cors(const Request& request, std::vector<Header>& headers) const {
  if (options_.cors_origins.empty()) {
    return;
  }
  headers.push_back({"Vary", "Origin"});
  const std::string* origin = request.header("origin");
  if (origin != nullptr && origin_allowed(*origin)) {
    headers.push_back({"Access-Control-Allow-Origin", *origin});
    headers.push_back({"Access-Control-Expose-Headers", "X-Request-Id, Retry-After"});
  }
}

}  // namespace trine::server::http
