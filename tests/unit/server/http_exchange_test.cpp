#include <atomic>
#include <memory>
#include <thread>

#include <gtest/gtest.h>

#include "server/http/exchange.h"
#include "server/http/responder.h"

namespace trine::server::http {
namespace {

std::shared_ptr<Exchange> exchange(std::size_t max_bytes = 100) {
  return std::make_shared<Exchange>(max_bytes, [] {});
}

TEST(Exchange, TheFirstAnswerCounts) {
  const auto way = exchange();
  const Responder responder(way);
  responder.send({.status = 202, .body = "a"});
  responder.send({.status = 500, .body = "b"});
  responder.start_stream();
  EXPECT_FALSE(responder.write("x"));
  const Exchange::Piece piece = way->take();
  ASSERT_TRUE(piece.head.has_value());
  EXPECT_EQ(piece.head->status, 202);
  EXPECT_TRUE(piece.last && !piece.streams);
  EXPECT_FALSE(way->take().head.has_value());
}

TEST(Exchange, WhoForgetsToAnswerGives500) {
  const auto way = exchange();
  { const Responder dropped(way); }
  const Exchange::Piece piece = way->take();
  ASSERT_TRUE(piece.head.has_value());
  EXPECT_EQ(piece.head->status, 500);
}

TEST(Exchange, AStreamThatIsLeftIsBroken) {
  const auto way = exchange();
  {
    const Responder dropped(way);
    dropped.start_stream();
    EXPECT_TRUE(dropped.write("a"));
  }
  const Exchange::Piece piece = way->take();
  EXPECT_EQ(piece.bytes, "a");
  EXPECT_TRUE(piece.last && piece.broken);
}

TEST(Exchange, ASlowReaderIsGivenUpAndTheWorkIsTold) {
  const auto way = exchange(10);
  const Responder responder(way);
  int told = 0;
  responder.start_stream();
  responder.on_disconnect([&told] { ++told; });
  EXPECT_TRUE(responder.write("12345"));
  EXPECT_EQ(way->take().bytes, "12345");
  EXPECT_TRUE(responder.write("67890"));  // in flight counts
  EXPECT_FALSE(responder.write("x"));
  EXPECT_EQ(told, 1);
  EXPECT_TRUE(way->overflowed() && way->gone() && responder.gone());
  way->client_gone();
  EXPECT_EQ(told, 1);
  responder.on_disconnect([&told] { ++told; });  // has gone already: at once
  EXPECT_EQ(told, 2);
}

TEST(Exchange, AfterTheEndNobodyIsTold) {
  const auto way = exchange();
  const Responder responder(way);
  bool told = false;
  responder.on_disconnect([&told] { told = true; });
  responder.send({});
  way->client_gone();
  EXPECT_FALSE(told);
}

TEST(Exchange, ManyThreads) {
  const auto way = exchange(std::size_t{1} << 20);
  const Responder responder(way);
  responder.start_stream();
  std::atomic<int> told{0};
  responder.on_disconnect([&told] { ++told; });
  std::thread writer([responder] {
    for (int i = 0; i < 1000 && responder.write("event\n\n"); ++i) {
    }
    responder.finish();
  });
  std::size_t bytes = 0;
  for (bool last = false; !last;) {
    const Exchange::Piece piece = way->take();
    bytes += piece.bytes.size();
    last = piece.last;
    way->written();
  }
  writer.join();
  EXPECT_EQ(bytes + way->take().bytes.size(), 7000U);
  EXPECT_EQ(told, 0);
}

}  // namespace
}  // namespace trine::server::http
