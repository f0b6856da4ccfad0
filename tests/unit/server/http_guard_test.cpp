#include <gtest/gtest.h>

#include "server/http/guard.h"
#include "server/http/routes.h"

namespace trine::server::http {
namespace {

constexpr std::string_view kUser = "user-key-000";
constexpr std::string_view kAdmin = "admin-key-000";

void nothing(const Request& /*request*/, const Responder& /*responder*/) {}

Route route(Auth auth) {
  return {.method = Method::kGet, .path = "/x", .auth = auth, .handler = nothing};
}

Request from(std::string host, std::string key = {}) {
  Request out;
  out.authority = host;
  out.headers.push_back({"host", std::move(host)});
  if (!key.empty()) {
    out.headers.push_back({"authorization", "Bearer " + key});
  }
  return out;
}

int status(const Guard& guard, Auth auth, Request request) {
  const auto refused = guard.check(route(auth), request);
  return refused.has_value() ? refused->status : 200;
}

TEST(Routes, EveryRouteNeedsAnAuthClass) {
  EXPECT_TRUE(check_routes({route(Auth::kUser)}).has_value());
  const Status unset = check_routes({route(Auth::kNone), {.path = "/new", .handler = nothing}});
  ASSERT_FALSE(unset.has_value());
  EXPECT_NE(unset.error().message.find("/new"), std::string::npos);
  EXPECT_FALSE(check_routes({route(Auth::kNone), route(Auth::kUser)}).has_value());
  EXPECT_FALSE(check_routes({{.path = "/x", .auth = Auth::kNone, .handler = {}}}).has_value());
}

TEST(Routes, AreFoundByMethodAndPath) {
  RouteTable table = {
      route(Auth::kNone),
      {.method = Method::kPost, .path = "/x", .auth = Auth::kUser, .handler = nothing},
      {.path = "/m/*", .auth = Auth::kUser, .handler = nothing}};
  EXPECT_EQ(find_route(table, Method::kHead, "/x").route, table.data());
  EXPECT_EQ(find_route(table, Method::kPost, "/x").route, &table[1]);
  EXPECT_EQ(find_route(table, Method::kDelete, "/x").allow, "GET, HEAD, POST");
  EXPECT_EQ(find_route(table, Method::kGet, "/m/a/b").argument, "a/b");
  EXPECT_EQ(find_route(table, Method::kGet, "/m/").route, nullptr);
  EXPECT_TRUE(find_route(table, Method::kGet, "/xy").allow.empty());
}

TEST(Guard, ClassesAndKeys) {
  GuardOptions options;
  ASSERT_TRUE(options.keys.add(kUser, false, "test").has_value());
  ASSERT_TRUE(options.keys.add(kAdmin, true, "test").has_value());
  const Guard guard(std::move(options));
  for (const std::string key : {"", "wrong-key-00", "user-key-00", "user-key-0000"}) {
    EXPECT_EQ(status(guard, Auth::kNone, from("h", key)), 200);
    EXPECT_EQ(status(guard, Auth::kUser, from("h", key)), 401);
    EXPECT_EQ(status(guard, Auth::kAdmin, from("h", key)), 401);
  }
  EXPECT_EQ(status(guard, Auth::kUser, from("h", std::string(kUser))), 200);
  EXPECT_EQ(status(guard, Auth::kAdmin, from("h", std::string(kUser))), 403);
  EXPECT_EQ(status(guard, Auth::kUser, from("h", std::string(kAdmin))), 200);
  EXPECT_EQ(status(guard, Auth::kAdmin, from("h", std::string(kAdmin))), 200);
}

TEST(Guard, WithoutKeysAdminIsOffAndHostsAreChecked) {
  const Guard guard({.keys = {}, .allowed_hosts = {"a.example"}, .cors_origins = {}});
  EXPECT_EQ(status(guard, Auth::kAdmin, from("localhost")), 403);
  for (const char* host :
       {"localhost", "localhost:1", "127.0.0.1", "[::1]:8", "a.example", "A.Example:1"}) {
    EXPECT_EQ(status(guard, Auth::kUser, from(host)), 200) << host;
  }
  for (const char* host :
       {"", "evil.example", "a.example.evil", "localhost.evil", "127.0.0.1.evil", "[::1",
        "localhost:80@evil.example", "localhost:x", "[::1]evil.example", "[::1]:8x"}) {
    EXPECT_EQ(status(guard, Auth::kUser, from(host)), 403) << host;
    EXPECT_EQ(status(guard, Auth::kNone, from(host)), 403) << host;
  }
  Request foreign = from("localhost:1");
  foreign.headers.push_back({"origin", "http://evil.example"});
  EXPECT_EQ(status(guard, Auth::kUser, foreign), 403);
  foreign.headers.back().value = "http://localhost:1";
  EXPECT_EQ(status(guard, Auth::kUser, foreign), 200);
}

TEST(KeyRing, TenantsDifferAndTellNothing) {
  KeyRing ring;
  ASSERT_TRUE(ring.add("first-key-1\n# note\n\nsecond-key-2\r\n", false, "test").has_value());
  EXPECT_EQ(ring.size(), 2U);
  const auto first = ring.find("first-key-1");
  const auto second = ring.find("second-key-2");
  ASSERT_TRUE(first.has_value() && second.has_value());
  EXPECT_NE(first->tenant, second->tenant);
  EXPECT_EQ(first->tenant.find("first"), std::string::npos);
  EXPECT_FALSE(ring.find("# note").has_value());
  EXPECT_FALSE(ring.find("").has_value());
  for (const char* bad : {"", "# only\n", "short", "with blank in",
                          "b\x01"
                          "ell-key-00"}) {
    EXPECT_FALSE(ring.add(bad, false, "test").has_value()) << bad;
  }
}

}  // namespace
}  // namespace trine::server::http
