#include "server/http/routes.h"

#include <utility>

namespace trine::server::http {

std::string_view auth_name(Auth auth) {
  switch (auth) {
    case Auth::kUnset:
      return "unset";
    case Auth::kNone:
      return "none";
    case Auth::kUser:
      return "user";
    case Auth::kAdmin:
      return "admin";
  }
  return "unset";
}

Status check_routes(const RouteTable& routes) {
  for (std::size_t i = 0; i < routes.size(); ++i) {
    const Route& route = routes[i];
    if (route.auth == Auth::kUnset) {
      return fail(ErrorCode::kInternal, "route {} {} has no auth class; give it one",
                  method_name(route.method), route.path);
    }
    if (!route.handler) {
      return fail(ErrorCode::kInternal, "route {} {} has no handler", method_name(route.method),
                  route.path);
    }
    for (std::size_t j = 0; j < i; ++j) {
      if (routes[j].path == route.path && routes[j].method == route.method) {
        return fail(ErrorCode::kInternal, "route {} {} is there twice", method_name(route.method),
                    route.path);
      }
    }
  }
  return {};
}

namespace {

bool path_matches(std::string_view pattern, std::string_view path, std::string& argument) {
  if (!pattern.ends_with("/*")) {
    return pattern == path;
  }
  pattern.remove_suffix(1);
  if (!path.starts_with(pattern) || path.size() == pattern.size()) {
    return false;
  }
  argument = path.substr(pattern.size());
  return true;
}

}  // namespace

Match find_route(const RouteTable& routes, Method method, std::string_view path) {
  Match out;
  const auto allow = [&out](std::string_view name) {
    if (out.allow.find(name) == std::string::npos) {
      out.allow += out.allow.empty() ? "" : ", ";
      out.allow += name;
    }
  };
  const Method wanted = method == Method::kHead ? Method::kGet : method;
  for (const Route& route : routes) {
    std::string argument;
    if (!path_matches(route.path, path, argument)) {
      continue;
    }
    if (route.method == wanted) {
      out.route = &route;
      out.argument = std::move(argument);
      out.allow.clear();
      return out;
    }
    allow(method_name(route.method));
    if (route.method == Method::kGet) {
      allow("HEAD");
    }
  }
  return out;
}

}  // namespace trine::server::http
