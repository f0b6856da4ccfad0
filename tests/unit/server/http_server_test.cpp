// The server with real sockets and trivial handlers: threads, disconnects, drain.
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/http/server.h"

namespace trine::server::http {
namespace {

class Client {
 public:
  explicit Client(std::uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }

  ~Client() { ::close(fd_); }

  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void send(const std::string& text) const {
    EXPECT_EQ(::send(fd_, text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }

  // Until the text has come, or the end.
  std::string read_until(const std::string& text) {
    while (received_.find(text) == std::string::npos) {
      std::array<char, 4096> buffer{};
      const ssize_t bytes = ::recv(fd_, buffer.data(), buffer.size(), 0);
      if (bytes <= 0) {
        break;
      }
      received_.append(buffer.data(), static_cast<std::size_t>(bytes));
    }
    return received_;
  }

 private:
  int fd_;
  std::string received_;
};

struct Fixture {
  std::vector<std::thread> threads;
  std::atomic<int> disconnects{0};
  std::atomic<bool> release{false};
  std::unique_ptr<Server> server;

  explicit Fixture(ServerOptions options = {}) {
    options.port = 0;
    RouteTable table;
    const auto add = [&table](std::string path, Handler handler) {
      table.push_back(
          {.path = std::move(path), .auth = Auth::kNone, .handler = std::move(handler)});
    };
    add("/now", [](const Request& /*request*/, const Responder& responder) {
      responder.send({.body = "now"});
    });
    add("/stream", [this](const Request& /*request*/, const Responder& responder) {
      threads.emplace_back([this, responder] {
        responder.start_stream();
        responder.on_disconnect([this] { ++disconnects; });
        while (!release.load() && responder.write("data: x\n\n")) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        responder.finish();
      });
    });
    add("/never", [this](const Request& /*request*/, const Responder& responder) {
      responder.on_disconnect([this] { ++disconnects; });
      // Held by nobody but this: the answer is a 500.
    });
    auto made = Server::create(std::move(options), {}, std::move(table));
    EXPECT_TRUE(made.has_value());
    server = *std::move(made);
    server->start();
  }

  ~Fixture() {
    release.store(true);
    for (std::thread& thread : threads) {
      thread.join();
    }
    server->stop();
  }

  void wait_disconnects(int count) const {
    while (disconnects.load() < count) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
};

TEST(Server, AnswersFromOtherThreadsAndNoticesWhoGoes) {
  Fixture fixture;
  {
    Client client(fixture.server->port());
    client.send("GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_NE(client.read_until("data: x").find("200 OK"), std::string::npos);
  }
  fixture.wait_disconnects(1);
  EXPECT_TRUE(fixture.server->wait_idle(60));
  EXPECT_EQ(fixture.server->counters().disconnects, 1);
}

TEST(Server, ADroppedRequestIsA500AndTheConnectionGoesOn) {
  Fixture fixture;
  Client client(fixture.server->port());
  client.send(
      "GET /never HTTP/1.1\r\nHost: localhost\r\n\r\nGET /now HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const std::string text = client.read_until("\r\n\r\nnow");
  EXPECT_LT(text.find("500 Internal"), text.find("200 OK"));
}

TEST(Server, DrainLetsStreamsEndAndClosesTheRest) {
  Fixture fixture;
  Client idle(fixture.server->port());
  idle.send("GET /now HTTP/1.1\r\nHost: localhost\r\n\r\n");
  (void)idle.read_until("\r\n\r\nnow");
  Client client(fixture.server->port());
  client.send("GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n");
  (void)client.read_until("data: x");
  fixture.server->drain();
  (void)idle.read_until("nothing: the server closes");
  EXPECT_FALSE(fixture.server->wait_idle(0.01));
  fixture.release.store(true);
  EXPECT_TRUE(fixture.server->wait_idle(60));
  EXPECT_TRUE(client.read_until("\r\n0\r\n\r\n").ends_with("0\r\n\r\n"));
  EXPECT_EQ(fixture.disconnects.load(), 0);
}

TEST(Server, StopsWithStreamsInWork) {
  Fixture fixture;
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(std::make_unique<Client>(fixture.server->port()));
    clients.back()->send("GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n");
    (void)clients.back()->read_until("data: x");
  }
  fixture.server->stop();
  fixture.wait_disconnects(8);
}

TEST(Server, ARouteWithoutAClassDoesNotStart) {
  const auto made = Server::create(
      {.port = 0}, {}, {{.path = "/x", .handler = [](const Request&, const Responder&) {}}});
  ASSERT_FALSE(made.has_value());
  EXPECT_NE(made.error().message.find("auth class"), std::string::npos);
}

}  // namespace
}  // namespace trine::server::http
