// URLs as the downloader needs them: origins, redirects, percent-encoding. Thread rule: pure
// functions.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"

namespace trine::hub {

struct Url {
  std::string text;    // normalised, without fragment
  std::string scheme;  // "http" or "https"
  std::string host;
  std::string port;  // always given: the scheme's own when the text has none

  // Scheme, host and port agree: the only place where a token for `other` may go.
  bool same_origin(const Url& other) const {
    return scheme == other.scheme && host == other.host && port == other.port;
  }

  bool is_loopback() const;

  std::string origin() const { return scheme + "://" + host + ":" + port; }
};

// Errors: invalid_argument for anything but an absolute http or https URL without user name and
// password.
Result<Url> parse_url(std::string_view text);

// Where a redirect from `from` leads. Errors: corrupt_data for other schemes, https -> http,
// credentials in the URL.
Result<Url> resolve_redirect(const Url& from, std::string_view location);

// Percent-encodes everything but unreserved characters; '/' is kept.
std::string encode_path(std::string_view path);

}  // namespace trine::hub
