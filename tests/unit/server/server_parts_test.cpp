#include <atomic>
#include <fstream>
#include <set>
#include <string>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "server/api.h"
#include "server/engine_thread.h"
#include "server/worker_pool.h"

namespace trine::server {
namespace {

TEST(Progress, IsStalledOnlyWithWork) {
  EXPECT_FALSE(is_stalled({.has_work = false, .idle_ms = 1e9}, 60));
  EXPECT_FALSE(is_stalled({.has_work = true, .idle_ms = 59'999}, 60));
  EXPECT_TRUE(is_stalled({.has_work = true, .idle_ms = 60'001}, 60));
}

TEST(WorkerPool, RefusesPastItsBoundAndKeepsOrder) {
  std::string order;
  {
    std::atomic<bool> go{false};
    WorkerPool pool(1, 2);
    EXPECT_TRUE(pool.post([&go] {
      while (!go.load()) {
        std::this_thread::yield();
      }
    }));
    while (pool.num_queued() > 0) {
      std::this_thread::yield();
    }
    EXPECT_TRUE(pool.post([&order] { order += 'a'; }));
    EXPECT_TRUE(pool.post([&order] { order += 'b'; }));
    EXPECT_FALSE(pool.post([&order] { order += 'c'; }));
    go.store(true);
  }
  EXPECT_EQ(order, "ab");
}

TEST(StepGate, LetsOneIn) {
  StepGate gate;
  int inside = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 200; ++k) {
        gate.enter();
        EXPECT_EQ(++inside, 1);
        --inside;
        gate.leave();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

// Who may call what is a decision, so it stands in a document that a change must touch.
TEST(Api, RoutesAreThoseOfTheDocumentation) {
  WorkerPool answers(1, 10);
  Metrics metrics;
  ModelHost models({}, answers, metrics);
  WorkerPool text(1, 10);
  Api api(models, text, metrics, {});
  const http::RouteTable table = api.routes();
  EXPECT_TRUE(http::check_routes(table).has_value());
  std::set<std::string> ours;
  for (const http::Route& route : table) {
    ours.insert(fmt::format("| {} | `{}` | {} |", http::method_name(route.method), route.path,
                            http::auth_name(route.auth)));
  }
  std::set<std::string> documented;
  std::ifstream in(std::string(TRINE_SOURCE_DIR) + "/docs/serving.md");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("| GET |") || line.starts_with("| POST |")) {
      std::size_t end = 0;
      for (int bar = 0; bar < 4; ++bar) {
        end = line.find('|', end) + 1;
      }
      documented.insert(line.substr(0, end));
    }
  }
  EXPECT_EQ(ours, documented);
}

TEST(Metrics, PageHasBothNames) {
  Metrics metrics;
  metrics.model("m").inter_token(5.0);
  metrics.model("m").answer_ended(FinishReason::kCancelled);
  const std::vector<ModelMetrics> models = {{.model = "m", .engine = {}}};
  const std::string page = metrics.page(models, {});
  for (const char* line :
       {"trine_inter_token_latency_seconds_count{model_name=\"m\"} 1",
        "vllm:inter_token_latency_seconds_count{model_name=\"m\",engine=\"0\"} 1",
        "vllm:num_requests_running{model_name=\"m\",engine=\"0\"} 0", "finished_reason=\"abort\"",
        "# TYPE trine_http_requests_total counter"}) {
    EXPECT_NE(page.find(line), std::string::npos) << line;
  }
}

}  // namespace
}  // namespace trine::server
