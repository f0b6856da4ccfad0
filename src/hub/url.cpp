#include "hub/url.h"

#include <memory>

#include <curl/curl.h>

#include "hub/files.h"

namespace trine::hub {
namespace {

struct UrlDeleter {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};

using UrlHandle = std::unique_ptr<CURLU, UrlDeleter>;

std::string part_of(CURLU* url, CURLUPart part, unsigned int flags = 0) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, flags) != CURLUE_OK || text == nullptr) {
    return "";
  }
  std::string out = text;
  curl_free(text);
  return out;
}

bool set_url(CURLU* url, const std::string& text) {
  return curl_url_set(url, CURLUPART_URL, text.c_str(), CURLU_NON_SUPPORT_SCHEME) == CURLUE_OK;
}

// What curl understood of the URL; an empty scheme or host when it is not one of ours.
Url read_url(CURLU* url) {
  curl_url_set(url, CURLUPART_FRAGMENT, nullptr, 0);
  Url out;
  out.scheme = to_lower_ascii(part_of(url, CURLUPART_SCHEME));
  out.host = to_lower_ascii(part_of(url, CURLUPART_HOST));
  out.port = part_of(url, CURLUPART_PORT, CURLU_DEFAULT_PORT);
  out.text = part_of(url, CURLUPART_URL);
  return out;
}

bool has_credentials(CURLU* url) {
  return !part_of(url, CURLUPART_USER).empty() || !part_of(url, CURLUPART_PASSWORD).empty();
}

bool is_plain_text(std::string_view text) {
  for (const char c : text) {
    if (static_cast<unsigned char>(c) <= 0x20 || c == 0x7F) {
      return false;
    }
  }
  return !text.empty();
}

}  // namespace

bool Url::is_loopback() const {
  // 127.evil.example is a name, not an address of this machine.
  const bool address = host.find_first_not_of("0123456789.") == std::string::npos;
  return host == "localhost" || host == "[::1]" || (address && host.starts_with("127."));
}

Result<Url> parse_url(std::string_view text) {
  const UrlHandle url(curl_url());
  if (!is_plain_text(text) || url == nullptr || !set_url(url.get(), std::string(text))) {
    return fail(ErrorCode::kInvalidArgument,
                "\"{}\" is not a URL; write https://HOST[:PORT][/PATH]", text);
  }
  Url out = read_url(url.get());
  if ((out.scheme != "http" && out.scheme != "https") || out.host.empty()) {
    return fail(ErrorCode::kInvalidArgument, "\"{}\": scheme \"{}\" is not http or https", text,
                out.scheme);
  }
  if (has_credentials(url.get())) {
    return fail(ErrorCode::kInvalidArgument,
                "a URL with a user name or password is refused: give a token instead");
  }
  return out;
}

Result<Url> resolve_redirect(const Url& from, std::string_view location) {
  const UrlHandle url(curl_url());
  if (!is_plain_text(location) || url == nullptr || !set_url(url.get(), from.text) ||
      !set_url(url.get(), std::string(location))) {
    return fail(ErrorCode::kCorruptData, "{} redirects to something that is not a URL",
                from.origin());
  }
  Url out = read_url(url.get());
  if ((out.scheme != "http" && out.scheme != "https") || out.host.empty()) {
    return fail(ErrorCode::kCorruptData,
                "{} redirects to scheme \"{}\": refused, only http and https are followed",
                from.origin(), out.scheme);
  }
  if (from.scheme == "https" && out.scheme == "http") {
    return fail(ErrorCode::kCorruptData, "{} redirects to unencrypted {}: refused", from.origin(),
                out.origin());
  }
  if (has_credentials(url.get())) {
    return fail(ErrorCode::kCorruptData,
                "{} redirects to a URL with a user name or password: refused", from.origin());
  }
  return out;
}

std::string encode_path(std::string_view path) {
  std::string out;
  for (const char c : path) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       c == '-' || c == '.' || c == '_' || c == '~' || c == '/';
    if (plain) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

}  // namespace trine::hub
