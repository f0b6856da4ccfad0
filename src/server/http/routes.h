// The table of routes: method, path, who may call it, and the handler.
//
// Deny by default: a route says who may call it, and a table with one that does not is refused at
// start. Thread rule: built once, then read by the io thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "server/http/message.h"
#include "server/http/responder.h"

namespace trine::server::http {

enum class Auth : std::uint8_t {
  kUnset,  // refused by check_routes()
  kNone,   // anybody
  kUser,   // an API key, where any is set
  kAdmin,  // an admin key, always
};

std::string_view auth_name(Auth auth);

// Runs on the io thread and must not wait: long work goes elsewhere with the responder.
using Handler = std::function<void(Request request, Responder responder)>;

struct Route {
  Method method = Method::kGet;  // kGet also answers HEAD
  std::string path;              // exact, or ending in "/*" for the rest of the path
  Auth auth = Auth::kUnset;
  Handler handler;
};

using RouteTable = std::vector<Route>;

// Errors: internal, naming the route without an auth class or handler, or that is there twice.
Status check_routes(const RouteTable& routes);

struct Match {
  const Route* route = nullptr;
  std::string argument;  // what * stands for
  // With no route: the path exists for these methods ("GET, HEAD"); empty when it does not exist.
  std::string allow;
};

Match find_route(const RouteTable& routes, Method method, std::string_view path);

}  // namespace trine::server::http
