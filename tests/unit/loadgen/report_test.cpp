#include "loadgen/report.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace trine::loadgen {
namespace {

Outcome answer(double at, double sent, std::vector<double> outputs, double end,
               std::int64_t tokens) {
  Outcome out;
  out.scheduled_s = at;
  out.sent_s = sent;
  out.output_s = std::move(outputs);
  out.end_s = end;
  out.status = 200;
  out.prompt_tokens = 10;
  out.output_tokens = tokens;
  return out;
}

RunResult sample() {
  RunResult out;
  out.start_s = 100.0;
  out.end_s = 104.0;
  out.outcomes.push_back(answer(100.0, 100.5, {101.0, 101.5, 103.0}, 103.25, 5));
  out.outcomes.push_back(answer(101.0, 101.0, {101.25}, 101.5, 1));
  Outcome refused;
  refused.scheduled_s = refused.sent_s = 102.0;
  refused.end_s = 102.0;
  refused.failure = Failure::kRefused;
  refused.status = 429;
  refused.error = "queue full";
  out.outcomes.push_back(refused);
  Outcome slow = refused;
  slow.failure = Failure::kTimeout;
  slow.status = 0;
  out.outcomes.push_back(slow);
  return out;
}

// Latencies count from the schedule, not from the sending; failures are in no latency.
TEST(Report, Figures) {
  const Slo slo = parse_slo({"ttft:500", "e2el:1000"}).value();
  const Report r = make_report(sample(), slo, 1);
  EXPECT_EQ(r.completed, 2);
  EXPECT_EQ(r.failed(), 2);
  EXPECT_EQ(r.failures.at("http_429"), 1);
  EXPECT_EQ(r.failures.at("timeout"), 1);
  EXPECT_EQ(r.input_tokens, 20);
  EXPECT_EQ(r.output_tokens, 6);
  EXPECT_EQ(r.ttft_ms.count, 2U);
  EXPECT_DOUBLE_EQ(r.ttft_ms.mean, 625.0);  // 1000, 250
  EXPECT_EQ(r.tpot_ms.count, 1U);
  EXPECT_DOUBLE_EQ(r.tpot_ms.mean, 500.0);  // 2 s over 4 tokens after the first
  EXPECT_EQ(r.itl_ms.count, 2U);
  EXPECT_DOUBLE_EQ(r.itl_ms.mean, 1000.0);   // 500, 1500
  EXPECT_DOUBLE_EQ(r.e2el_ms.mean, 1875.0);  // 3250, 500
  EXPECT_EQ(r.good, 1);
  EXPECT_EQ(r.peak_concurrent, 2);
  EXPECT_DOUBLE_EQ(r.per_second(static_cast<double>(r.output_tokens)), 1.5);
  EXPECT_NEAR(r.peak_output_rate, 2.0 * 5.0 / 3.0 + 1.0, 1e-9);  // second 1
}

TEST(Report, BlockHasTheLabelsThatParsersKnow) {
  const Slo slo = parse_slo({"tpot:50"}).value();
  RunResult result = sample();
  result.void_reason = "schedule_lag";
  result.void_text = "late";
  const Report r = make_report(result, slo, 1);
  const std::string text =
      report_text(r, result, {.request_rate = 2.0, .max_concurrency = 16}, slo);
  for (const char* line : {
           "============ Serving Benchmark Result ============\n",
           "Successful requests:                     2         \n",
           "Failed requests:                         2         \n",
           "Maximum request concurrency:             16        \n",
           "Request rate configured (RPS):           2.00      \n",
           "Benchmark duration (s):                  4.00      \n",
           "Total input tokens:                      20        \n",
           "Total generated tokens:                  6         \n",
           "Request throughput (req/s):              0.50      \n",
           "Request goodput (req/s):                 0.25      \n",
           "Output token throughput (tok/s):         1.50      \n",
           "Peak output token throughput (tok/s):    4.33      \n",
           "Peak concurrent requests:                2.00      \n",
           "Total token throughput (tok/s):          6.50      \n",
           "---------------Time to First Token----------------\n",
           "Mean TTFT (ms):                          625.00    \n",
           "Median TTFT (ms):                        625.00    \n",
           "-----Time per Output Token (excl. 1st token)------\n",
           "---------------Inter-token Latency----------------\n",
           "P99 ITL (ms):                            1490.00   \n",
           "----------------End-to-end Latency----------------\n",
           "==================================================\n",
           "failed, http_429: 1 (queue full)\n",
           "VOID (schedule_lag): late\n",
       }) {
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }
}

TEST(Report, JsonHasTheKeysThatParsersKnow) {
  const Slo slo;
  const RunResult result = sample();
  const auto json =
      report_json(make_report(result, slo, 1), result, {.request_rate = 2.0, .seed = 3}, slo, true);
  for (const char* key : {"date",
                          "backend",
                          "model_id",
                          "num_prompts",
                          "request_rate",
                          "burstiness",
                          "max_concurrency",
                          "duration",
                          "completed",
                          "failed",
                          "total_input_tokens",
                          "total_output_tokens",
                          "request_throughput",
                          "request_goodput",
                          "output_throughput",
                          "total_token_throughput",
                          "max_output_tokens_per_s",
                          "max_concurrent_requests",
                          "input_lens",
                          "output_lens",
                          "ttfts",
                          "itls",
                          "errors"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  for (const char* metric : {"ttft", "tpot", "itl", "e2el"}) {
    for (const char* figure : {"mean", "median", "std", "p50", "p90", "p95", "p99"}) {
      EXPECT_TRUE(json.contains(std::string(figure) + "_" + metric + "_ms")) << figure << metric;
    }
  }
  EXPECT_EQ(json["intervals_95"]["mean_ttft_ms"].size(), 2U);
  EXPECT_TRUE(json["void"].is_null());
  EXPECT_EQ(json["errors"][2], "http_429: queue full");
  EXPECT_EQ(json["itls"][0][1], 1.5);
}

TEST(Slo, Refusals) {
  for (const char* bad : {"ttft", "ttft:", "ttft:0", "itl:5", "ttft:5x", "", "ttft:nan"}) {
    const auto slo = parse_slo({bad});
    ASSERT_FALSE(slo.has_value()) << bad;
    EXPECT_TRUE(slo.error().message.starts_with("--goodput ")) << bad;
  }
  EXPECT_FALSE(parse_slo({"ttft:5", "ttft:6"}).has_value());
}

}  // namespace
}  // namespace trine::loadgen
