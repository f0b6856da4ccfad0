#include "hub/url.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hub/http.h"

namespace trine::hub {
namespace {

using testing::HasSubstr;

TEST(UrlTest, OriginHasSchemeHostAndPort) {
  const Url a = parse_url("https://Hub.Example/x/?q#frag").value();
  EXPECT_EQ(a.origin(), "https://hub.example:443");
  EXPECT_EQ(a.text.find('#'), std::string::npos);
  EXPECT_TRUE(a.same_origin(parse_url("https://hub.example:443/y").value()));
  EXPECT_FALSE(a.same_origin(parse_url("https://hub.example:444/y").value()));
  EXPECT_FALSE(a.same_origin(parse_url("http://hub.example:443/y").value()));
  EXPECT_FALSE(a.same_origin(parse_url("https://hub.example.evil/y").value()));
  EXPECT_FALSE(a.same_origin(parse_url("https://sub.hub.example/y").value()));
}

TEST(UrlTest, OnlyAbsoluteHttp) {
  for (const char* text : {"", "hub.example", "/x", "file:///etc/passwd", "ftp://x/y", "http://",
                           "https://a b/", "http://x\n/", "javascript:1"}) {
    EXPECT_FALSE(parse_url(text).has_value()) << text;
  }
  EXPECT_FALSE(parse_url("https://user:pw@x/").has_value());
  EXPECT_EQ(parse_url("https://user:pw@x/").error().message.find("pw@"), std::string::npos);
}

TEST(UrlTest, Loopback) {
  EXPECT_TRUE(parse_url("http://127.0.0.1:80")->is_loopback());
  EXPECT_TRUE(parse_url("http://localhost")->is_loopback());
  EXPECT_TRUE(parse_url("http://[::1]:8")->is_loopback());
  EXPECT_FALSE(parse_url("http://localhost.evil")->is_loopback());
  EXPECT_FALSE(parse_url("http://127.evil.example")->is_loopback());
}

TEST(RedirectTest, RelativeAndAbsolute) {
  const Url from = parse_url("https://hub.example/a/b?x=1").value();
  EXPECT_EQ(resolve_redirect(from, "/c")->text, "https://hub.example/c");
  EXPECT_EQ(resolve_redirect(from, "c?y=2")->text, "https://hub.example/a/c?y=2");
  EXPECT_EQ(resolve_redirect(from, "//other.example/c")->origin(), "https://other.example:443");
  EXPECT_EQ(resolve_redirect(from, "https://other.example/c")->text, "https://other.example/c");
}

TEST(RedirectTest, DowngradeAndOtherSchemesAreRefused) {
  const Url from = parse_url("https://hub.example/a").value();
  const auto message = [&from](const char* location) {
    return resolve_redirect(from, location).error().message;
  };
  EXPECT_THAT(message("http://hub.example/a"), HasSubstr("unencrypted"));
  EXPECT_THAT(message("file:///etc/passwd"), HasSubstr("refused"));
  EXPECT_THAT(message("ftp://x/y"), HasSubstr("refused"));
  EXPECT_THAT(message("https://user@x/"), HasSubstr("user name"));
  EXPECT_FALSE(resolve_redirect(from, "").has_value());
  EXPECT_FALSE(resolve_redirect(from, "https://a b").has_value());
  // From http, both are fine.
  const Url plain = parse_url("http://hub.example/a").value();
  EXPECT_TRUE(resolve_redirect(plain, "https://hub.example/a").has_value());
  EXPECT_TRUE(resolve_redirect(plain, "http://other.example/a").has_value());
}

TEST(EncodeTest, Path) {
  EXPECT_EQ(encode_path("a-b_c.d~/e"), "a-b_c.d~/e");
  EXPECT_EQ(encode_path("a b%?#\xC3\xA9"), "a%20b%25%3F%23%C3%A9");
}

TEST(TokenTest, TrimmedAndChecked) {
  EXPECT_EQ(clean_token(" hf_abc\r\n", "x").value(), "hf_abc");
  EXPECT_EQ(clean_token("", "x").value(), "");
  EXPECT_EQ(clean_token(" \n", "x").value(), "");
  for (const char* text : {"a b", "a\r\nX: y", "\xC3\xA9", "a\x7F"}) {
    EXPECT_FALSE(clean_token(text, "x").has_value());
  }
  EXPECT_FALSE(clean_token(std::string(5000, 'a'), "x").has_value());
}

}  // namespace
}  // namespace trine::hub
