#include <gtest/gtest.h>

#include "server/http/parser.h"

namespace trine::server::http {
namespace {

using State = RequestParser::State;

constexpr ParserLimits kSmall = {.max_header_bytes = 200, .max_body_bytes = 16};

// The status that a request is refused with; 200 when it is taken.
int status_of(std::string bytes, const ParserLimits& limits = kSmall) {
  RequestParser parser(limits);
  const State state = parser.feed(bytes);
  return state == State::kDone ? 200 : state == State::kError ? parser.error().status : 0;
}

TEST(RequestParser, ReadsWhatHandlersNeed) {
  std::string bytes =
      "POST /v1/models/a%2Fb?x=1 HTTP/1.1\r\nHost: A:80\r\nX-Y:  z \r\nContent-Length: "
      "3\r\n\r\nabcGET";
  RequestParser parser(kSmall);
  ASSERT_EQ(parser.feed(bytes), State::kDone);
  EXPECT_EQ(bytes, "GET");
  const Request request = parser.take();
  EXPECT_EQ(request.method, Method::kPost);
  EXPECT_EQ(request.path, "/v1/models/a/b");
  EXPECT_EQ(request.query, "x=1");
  EXPECT_EQ(request.authority, "A:80");
  EXPECT_EQ(request.body, "abc");
  ASSERT_NE(request.header("x-y"), nullptr);
  EXPECT_EQ(*request.header("x-y"), "z");
  EXPECT_EQ(parser.state(), State::kHeader);
}

TEST(RequestParser, AnyCutGivesTheSameRequest) {
  const std::string whole =
      "\r\nPOST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: "
      "chunked\r\n\r\n3;a=b\r\nabc\r\n2\r\nde\r\n0\r\nT: "
      "1\r\n\r\n";
  for (std::size_t cut = 0; cut <= whole.size(); ++cut) {
    RequestParser parser(kSmall);
    std::string input = whole.substr(0, cut);
    parser.feed(input);
    input += whole.substr(cut);
    ASSERT_EQ(parser.feed(input), State::kDone) << cut;
    EXPECT_TRUE(input.empty()) << cut;
    EXPECT_EQ(parser.take().body, "abcde") << cut;
  }
}

TEST(RequestParser, LimitsHoldAtTheByte) {
  const std::string head = "GET / HTTP/1.1\r\nHost: h\r\nA: ";
  EXPECT_EQ(status_of(head + std::string(200 - head.size(), 'x') + "\r\n\r\n"), 200);
  EXPECT_EQ(status_of(head + std::string(201 - head.size(), 'x') + "\r\n\r\n"), 431);
  EXPECT_EQ(status_of(std::string(201, 'x')), 431);
  EXPECT_EQ(status_of(std::string(200, 'x')), 0);
  const std::string post = "POST / HTTP/1.1\r\nHost: h\r\n";
  EXPECT_EQ(status_of(post + "Content-Length: 16\r\n\r\n" + std::string(16, 'x')), 200);
  EXPECT_EQ(status_of(post + "Content-Length: 17\r\n\r\n"), 413);
  EXPECT_EQ(status_of(post + "Content-Length: 99999999999999999999\r\n\r\n"), 400);
  EXPECT_EQ(status_of(post + "Transfer-Encoding: chunked\r\n\r\n11\r\n" + std::string(17, 'x')),
            413);
  EXPECT_EQ(status_of(post + "Transfer-Encoding: chunked\r\n\r\n1;" + std::string(300, 'x')), 400);
}

TEST(RequestParser, RefusesWhatProxiesReadDifferently) {
  const std::string post = "POST / HTTP/1.1\r\nHost: h\r\n";
  EXPECT_EQ(status_of(post + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"), 400);
  EXPECT_EQ(status_of(post + "Content-Length: 1\r\nContent-Length: 1\r\n\r\nx"), 400);
  EXPECT_EQ(status_of(post + "Transfer-Encoding: gzip, chunked\r\n\r\n"), 501);
  EXPECT_EQ(status_of(post + "Host: h\r\n\r\n"), 400);
  EXPECT_EQ(status_of(post + "A: b\r\n c\r\n\r\n"), 400);
  EXPECT_EQ(status_of(post + "A: b\nC: d\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nA: b\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), 501);
  EXPECT_EQ(status_of("GET / HTTP/1.0\r\nA: b\r\n\r\n"), 200);
  EXPECT_EQ(status_of("GET /%0a HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET /%2 HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
}

}  // namespace
}  // namespace trine::server::http
