// The web page that the server gives out: files inside the program, no outside source.
//
// The files hold no data and need no key; what they show comes through the API, which does. Thread
// rule: pure functions.
#pragma once

#include <string_view>

#include "server/http/message.h"
#include "server/http/routes.h"

namespace trine::server::page {

// The answer to a request for this file ("style.css"): 200, 304 when the request already has it,
// or 404.
http::Response file_response(std::string_view name, const http::Request& request);

// "/" and "/page/*".
void add_routes(http::RouteTable& table);

}  // namespace trine::server::page
