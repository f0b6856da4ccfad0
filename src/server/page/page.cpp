#include "server/page/page.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/printable.h"
#include "server/page/page_data.h"

namespace trine::server::page {

using http::Request;
using http::Response;

namespace {

constexpr std::string_view kIndex = "index.html";

// What the page may do is what it needs: its own scripts and styles, requests to its own server.
// No inline script, no other host, no frame around it, and no text turned into markup (trusted
// types): a model's output cannot become code.
constexpr std::string_view kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'";

std::string_view content_type(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kTypes = {
      {{".html", "text/html; charset=utf-8"},
       {".css", "text/css; charset=utf-8"},
       {".js", "text/javascript; charset=utf-8"},
       {".svg", "image/svg+xml"}}};
  for (const auto& [ending, type] : kTypes) {
    if (name.ends_with(ending)) {
      return type;
    }
  }
  return "application/octet-stream";
}

// Whether an If-None-Match value names this tag. A weak mark does not matter to the comparison.
bool names_tag(std::string_view list, std::string_view etag) {
  while (!list.empty()) {
    std::string_view one = list.substr(0, list.find(','));
    list.remove_prefix(std::min(one.size() + 1, list.size()));
    while (one.starts_with(' ') || one.starts_with('\t')) {
      one.remove_prefix(1);
    }
    while (one.ends_with(' ') || one.ends_with('\t')) {
      one.remove_suffix(1);
    }
    if (one.starts_with("W/")) {
      one.remove_prefix(2);
    }
    if (one == etag || one == "*") {
      return true;
    }
  }
  return false;
}

}  // namespace

Response file_response(std::string_view name, const Request& request) {
  const auto files = embedded_files();
  const auto file = std::find_if(files.begin(), files.end(),
                                 [name](const EmbeddedFile& one) { return one.name == name; });
  if (file == files.end()) {
    return http::error_response(404, fmt::format("there is no {}", printable(request.path)),
                                "not_found_error", "unknown_path");
  }
  Response out;
  out.content_type = content_type(name);
  // Kept by the browser, asked for each time: after an upgrade the page fits its server.
  out.headers = {{"ETag", std::string(file->etag)},
                 {"Cache-Control", "no-cache"},
                 {"Content-Security-Policy", std::string(kPolicy)},
                 {"Referrer-Policy", "no-referrer"},
                 {"X-Frame-Options", "DENY"},
                 {"Cross-Origin-Opener-Policy", "same-origin"},
                 {"Cross-Origin-Resource-Policy", "same-origin"}};
  const std::string* known = request.header("if-none-match");
  if (known != nullptr && names_tag(*known, file->etag)) {
    out.status = 304;
    return out;
  }
  out.body.assign(file->bytes, file->bytes + file->size);
  return out;
}

void add_routes(http::RouteTable& table) {
  table.push_back({.method = http::Method::kGet,
                   .path = "/",
                   .auth = http::Auth::kNone,
                   .handler = [](const Request& request, const http::Responder& responder) {
                     responder.send(file_response(kIndex, request));
                   }});
  table.push_back({.method = http::Method::kGet,
                   .path = "/page/*",
                   .auth = http::Auth::kNone,
                   .handler = [](const Request& request, const http::Responder& responder) {
                     responder.send(file_response(request.argument, request));
                   }});
}

}  // namespace trine::server::page
