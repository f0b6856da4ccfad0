// What stands before every handler: Host and Origin, CORS, keys. Pure decisions on a request.
//
// Host: where no key is needed, a page of another site could reach this server through a name of
// its own that it points here (DNS rebinding). So a Host header must then be an address, localhost,
// or a name given as allowed. Origin: a request that a browser sends from another site is refused,
// but for the origins given. Thread rule: immutable; pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/keys.h"
#include "server/http/message.h"
#include "server/http/routes.h"

namespace trine::server::http {

struct GuardOptions {
  KeyRing keys;
  std::vector<std::string> allowed_hosts;  // names without port, in lower case; "*": any
  std::vector<std::string> cors_origins;   // "https://host[:port]", exact
  bool secure = false;                     // TLS is on
};

class Guard {
 public:
  explicit Guard(GuardOptions options) : options_(std::move(options)) {}

  // Errors: invalid_argument for an origin that is not scheme://host[:port].
  static Status check_options(const GuardOptions& options);

  // The answer in place of a handler's, or none: then request.principal is set.
  std::optional<Response> check(const Route& route, Request& request) const;
  // For a path that exists: a preflight of a browser, or what is allowed.
  Response options_answer(const Request& request, std::string_view allow) const;
  // Host and Origin alone, for requests that match no route. None: pass.
  std::optional<Response> check_site(const Request& request) const;
  // Headers that let a page of an allowed origin read the answer.
  void add_cors(const Request& request, std::vector<Header>& headers) const;

  bool needs_key() const { return options_.keys.has_user_keys(); }

  const KeyRing& keys() const { return options_.keys; }

 private:
  bool origin_allowed(std::string_view origin) const;

  GuardOptions options_;
};

// "[::1]:80" -> "::1", "Localhost:80" -> "localhost"; empty when it is no host.
std::string host_of(std::string_view authority);
// An IPv4 or IPv6 address, or localhost.
bool is_address_or_localhost(std::string_view host);
// 127.0.0.0/8, ::1, localhost.
bool is_loopback(std::string_view host);

}  // namespace trine::server::http
