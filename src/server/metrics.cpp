#include "server/metrics.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <sstream>
#include <utility>
#include <vector>

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

namespace trine::server {

namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Buckets = prometheus::Histogram::BucketBoundaries;

const Buckets kTtftBuckets = {0.001, 0.005, 0.01, 0.02,  0.04,  0.06,  0.08, 0.1,
                              0.25,  0.5,   0.75, 1.0,   2.5,   5.0,   7.5,  10.0,
                              20.0,  40.0,  80.0, 160.0, 640.0, 2560.0};
const Buckets kTokenGapBuckets = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1,  0.15, 0.2,
                                  0.3,   0.4,    0.5,   0.75, 1.0,   2.5,  5.0,   10.0, 20.0, 80.0};
const Buckets kRequestBuckets = {0.001, 0.01,  0.05,  0.1,   0.3,   0.5,    0.8,   1.0,  1.5,
                                 2.0,   2.5,   5.0,   10.0,  15.0,  20.0,   30.0,  40.0, 50.0,
                                 60.0,  120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0};
const Buckets kStepBuckets = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                              0.25,   0.5,   1.0,    2.5,   5.0,  10.0,  30.0};
const Buckets kTokenBuckets = {1,   2,    5,    10,   20,    50,    100,   200,
                               500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};
const Buckets kIterationBuckets = {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};

// The same metric under vLLM's name.
struct Alias {
  std::string_view ours;
  std::string_view vllm;
};

constexpr Alias kAliases[] = {
    {"trine_requests_running", "vllm:num_requests_running"},
    {"trine_requests_waiting", "vllm:num_requests_waiting"},
    {"trine_kv_cache_usage_ratio", "vllm:kv_cache_usage_perc"},
    {"trine_preemptions_total", "vllm:num_preemptions_total"},
    {"trine_prompt_tokens_total", "vllm:prompt_tokens_total"},
    {"trine_prompt_tokens_cached_total", "vllm:prompt_tokens_cached_total"},
    {"trine_generation_tokens_total", "vllm:generation_tokens_total"},
    {"trine_request_success_total", "vllm:request_success_total"},
    {"trine_time_to_first_token_seconds", "vllm:time_to_first_token_seconds"},
    {"trine_inter_token_latency_seconds", "vllm:inter_token_latency_seconds"},
    {"trine_request_time_per_output_token_seconds", "vllm:request_time_per_output_token_seconds"},
    {"trine_e2e_request_latency_seconds", "vllm:e2e_request_latency_seconds"},
    {"trine_request_queue_time_seconds", "vllm:request_queue_time_seconds"},
    {"trine_request_prefill_time_seconds", "vllm:request_prefill_time_seconds"},
    {"trine_request_decode_time_seconds", "vllm:request_decode_time_seconds"},
    {"trine_request_inference_time_seconds", "vllm:request_inference_time_seconds"},
    {"trine_request_prompt_tokens", "vllm:request_prompt_tokens"},
    {"trine_request_generation_tokens", "vllm:request_generation_tokens"},
    {"trine_iteration_tokens", "vllm:iteration_tokens_total"},
    {"trine_prefix_cache_queries_total", "vllm:prefix_cache_queries_total"},
    {"trine_prefix_cache_hits_total", "vllm:prefix_cache_hits_total"},
};

}  // namespace

struct Metrics::Impl {
  prometheus::Registry registry;
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<Model>> models;

  prometheus::Counter& counter(const std::string& name, const std::string& help,
                               const prometheus::Labels& labels) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add(labels);
  }

  prometheus::Histogram& histogram(const std::string& name, const std::string& help,
                                   const prometheus::Labels& labels, const Buckets& buckets) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add(labels,
                                                                                     buckets);
  }
};

namespace {

constexpr std::array<FinishReason, 4> kReasons = {FinishReason::kStop, FinishReason::kLength,
                                                  FinishReason::kCancelled, FinishReason::kError};

// "abort" and not "cancelled": the word that dashboards know.
std::string reason_label(FinishReason reason) {
  return reason == FinishReason::kCancelled ? "abort" : std::string(finish_reason_name(reason));
}

class ModelSeries final : public Metrics::Model {
 public:
  template <typename Impl>
  ModelSeries(Impl& impl, const std::string& name)
      : ttft_(impl.histogram("trine_time_to_first_token_seconds",
                             "From a request's arrival at the engine to its first token",
                             labels(name), kTtftBuckets)),
        itl_(impl.histogram("trine_inter_token_latency_seconds", "Between two tokens of one answer",
                            labels(name), kTokenGapBuckets)),
        tpot_(impl.histogram("trine_request_time_per_output_token_seconds",
                             "Mean time per token after an answer's first one", labels(name),
                             kTokenGapBuckets)),
        e2e_(impl.histogram("trine_e2e_request_latency_seconds",
                            "From a request's arrival at the engine to its last token",
                            labels(name), kRequestBuckets)),
        queue_(impl.histogram("trine_request_queue_time_seconds",
                              "From arrival to the first step with the request", labels(name),
                              kRequestBuckets)),
        prefill_(impl.histogram("trine_request_prefill_time_seconds",
                                "From the first step to the first token", labels(name),
                                kRequestBuckets)),
        decode_(impl.histogram("trine_request_decode_time_seconds",
                               "From the first token to the last", labels(name), kRequestBuckets)),
        inference_(impl.histogram("trine_request_inference_time_seconds",
                                  "From the first step to the last token", labels(name),
                                  kRequestBuckets)),
        prompt_(impl.histogram("trine_request_prompt_tokens", "Tokens of a prompt", labels(name),
                               kTokenBuckets)),
        generation_(impl.histogram("trine_request_generation_tokens",
                                   "Tokens generated for a request", labels(name), kTokenBuckets)),
        iteration_(impl.histogram("trine_iteration_tokens", "Tokens computed in a step",
                                  labels(name), kIterationBuckets)),
        step_(impl.histogram("trine_step_seconds", "Time of a step", labels(name), kStepBuckets)),
        prompt_tokens_(impl.counter("trine_prompt_tokens_total",
                                    "Prompt tokens read, computed or found in the prefix cache",
                                    labels(name))),
        cached_tokens_(impl.counter("trine_prompt_tokens_cached_total",
                                    "Of those, found in the prefix cache", labels(name))),
        generation_tokens_(
            impl.counter("trine_generation_tokens_total", "Tokens generated", labels(name))) {
    for (const FinishReason reason : kReasons) {
      prometheus::Labels with_reason = labels(name);
      with_reason["finished_reason"] = reason_label(reason);
      ended_[static_cast<std::size_t>(reason)] =
          &impl.counter("trine_request_success_total", "Ended answers by reason", with_reason);
    }
  }

  void step(std::int32_t num_tokens, double step_ms) override {
    iteration_.Observe(num_tokens);
    step_.Observe(step_ms * 1e-3);
  }

  void tokens(std::int64_t prompt, std::int64_t cached, std::int64_t generated) override {
    prompt_tokens_.Increment(static_cast<double>(prompt));
    cached_tokens_.Increment(static_cast<double>(cached));
    generation_tokens_.Increment(static_cast<double>(generated));
  }

  void inter_token(double ms) override { itl_.Observe(ms * 1e-3); }

  void answer_ended(FinishReason reason) override {
    ended_[static_cast<std::size_t>(reason)]->Increment();
  }

  void request_ended(const RequestStats& stats, double e2e_ms) override {
    prompt_.Observe(stats.prompt_tokens);
    e2e_.Observe(e2e_ms * 1e-3);
    if (stats.generated_tokens == 0) {
      return;  // ended before its first token: there are no phases to measure
    }
    generation_.Observe(stats.generated_tokens);
    ttft_.Observe(stats.ttft_ms * 1e-3);
    queue_.Observe(stats.queue_ms * 1e-3);
    prefill_.Observe(stats.prefill_ms * 1e-3);
    decode_.Observe(stats.decode_ms * 1e-3);
    inference_.Observe((stats.prefill_ms + stats.decode_ms) * 1e-3);
    if (stats.decode_steps > 0) {
      tpot_.Observe(stats.decode_ms * 1e-3 / stats.decode_steps);
    }
  }

 private:
  static prometheus::Labels labels(const std::string& name) { return {{"model_name", name}}; }

  prometheus::Histogram& ttft_;
  prometheus::Histogram& itl_;
  prometheus::Histogram& tpot_;
  prometheus::Histogram& e2e_;
  prometheus::Histogram& queue_;
  prometheus::Histogram& prefill_;
  prometheus::Histogram& decode_;
  prometheus::Histogram& inference_;
  prometheus::Histogram& prompt_;
  prometheus::Histogram& generation_;
  prometheus::Histogram& iteration_;
  prometheus::Histogram& step_;
  prometheus::Counter& prompt_tokens_;
  prometheus::Counter& cached_tokens_;
  prometheus::Counter& generation_tokens_;
  std::array<prometheus::Counter*, 4> ended_{};
};

// Families of values that are read when the page is made.
class Page {
 public:
  explicit Page(std::span<const ModelMetrics> models) : models_(models) {}

  void per_model(const char* name, const char* help, MetricType type, auto value) {
    MetricFamily family{.name = name, .help = help, .type = type, .metric = {}};
    for (const ModelMetrics& model : models_) {
      family.metric.push_back(metric(type, value(model)));
      family.metric.back().label.push_back({"model_name", model.model});
    }
    if (!family.metric.empty()) {
      families.push_back(std::move(family));
    }
  }

  void single(const char* name, const char* help, MetricType type, std::int64_t value) {
    families.push_back({.name = name,
                        .help = help,
                        .type = type,
                        .metric = {metric(type, static_cast<double>(value))}});
  }

  std::vector<MetricFamily> families;

 private:
  static ClientMetric metric(MetricType type, double value) {
    ClientMetric out;
    (type == MetricType::Counter ? out.counter.value : out.gauge.value) = value;
    return out;
  }

  std::span<const ModelMetrics> models_;
};

void add_engine(Page& page) {
  const auto number = [](auto value) { return static_cast<double>(value); };
  constexpr MetricType kGauge = MetricType::Gauge;
  constexpr MetricType kCounter = MetricType::Counter;
  page.per_model("trine_model_loaded", "1 when the model can answer", kGauge,
                 [&](const auto& m) { return m.loaded ? 1.0 : 0.0; });
  page.per_model("trine_model_weight_bytes", "Bytes of the model's files", kGauge,
                 [&](const auto& m) { return m.weight_bytes; });
  page.per_model("trine_requests_running", "Requests at work", kGauge,
                 [&](const auto& m) { return number(m.engine.requests.running); });
  page.per_model("trine_requests_waiting", "Requests in the queue", kGauge,
                 [&](const auto& m) { return number(m.engine.requests.waiting); });
  page.per_model("trine_waiting_tokens", "Prompt tokens in the queue", kGauge,
                 [&](const auto& m) { return number(m.engine.requests.waiting_tokens); });
  page.per_model("trine_requests_submitted_total", "Requests taken into the queue", kCounter,
                 [&](const auto& m) { return number(m.engine.requests.submitted); });
  page.per_model("trine_requests_rejected_total", "Requests refused because the queue was full",
                 kCounter, [&](const auto& m) { return number(m.engine.requests.rejected); });
  page.per_model("trine_requests_expired_total", "Requests past their deadline", kCounter,
                 [&](const auto& m) { return number(m.engine.requests.expired); });
  page.per_model("trine_preemptions_total", "Requests that gave up their pages", kCounter,
                 [&](const auto& m) { return number(m.engine.requests.preempted); });
  page.per_model("trine_recomputed_tokens_total", "Tokens computed again after preemptions",
                 kCounter,
                 [&](const auto& m) { return number(m.engine.requests.recomputed_tokens); });
  page.per_model("trine_kv_pages", "Pages of the key/value cache", kGauge,
                 [&](const auto& m) { return number(m.engine.kv_pages); });
  page.per_model("trine_kv_pages_free", "Of those, holding nothing", kGauge,
                 [&](const auto& m) { return number(m.engine.kv_pages_free); });
  page.per_model("trine_kv_pages_cached", "Of those, known to the prefix cache", kGauge,
                 [&](const auto& m) { return number(m.engine.kv_pages_cached); });
  page.per_model("trine_kv_pages_evictable", "Of the cached ones, in use by no request", kGauge,
                 [&](const auto& m) { return number(m.engine.kv_pages_evictable); });
  page.per_model("trine_kv_cache_bytes", "Bytes of the key/value cache", kGauge,
                 [&](const auto& m) { return number(m.engine.kv_bytes); });
  page.per_model("trine_kv_cache_usage_ratio", "Part of the pages that requests use, 0 to 1",
                 kGauge, [&](const auto& m) {
                   const int idle = m.engine.kv_pages_free + m.engine.kv_pages_evictable;
                   return m.engine.kv_pages == 0 ? 0.0
                                                 : 1.0 - number(idle) / number(m.engine.kv_pages);
                 });
  page.per_model("trine_prefix_cache_queries_total", "Prompt tokens looked up", kCounter,
                 [&](const auto& m) { return number(m.engine.prefix_query_tokens); });
  page.per_model("trine_prefix_cache_hits_total", "Prompt tokens found", kCounter,
                 [&](const auto& m) { return number(m.engine.prefix_hit_tokens); });
  page.per_model("trine_prefix_cache_evictions_total", "Pages given up", kCounter,
                 [&](const auto& m) { return number(m.engine.prefix_evictions); });
  page.per_model("trine_steps_total", "Steps computed", kCounter,
                 [&](const auto& m) { return number(m.engine.steps); });
}

void add_http(Page& page, const http::ServerCounters& http) {
  constexpr MetricType kGauge = MetricType::Gauge;
  constexpr MetricType kCounter = MetricType::Counter;
  page.single("trine_http_connections", "Open connections", kGauge, http.open_connections);
  page.single("trine_http_requests_open", "HTTP requests in work", kGauge, http.open_requests);
  page.single("trine_http_connections_total", "Connections taken", kCounter, http.connections);
  page.single("trine_http_connections_refused_total", "Connections over a cap", kCounter,
              http.refused_connections);
  page.single("trine_http_requests_total", "HTTP requests", kCounter, http.requests);
  page.single("trine_http_bad_requests_total", "Requests that were no HTTP or over a limit",
              kCounter, http.bad_requests);
  page.single("trine_http_timeouts_total", "Headers, bodies and handshakes that came too slowly",
              kCounter, http.timeouts);
  page.single("trine_http_slow_readers_total", "Clients dropped because they did not read",
              kCounter, http.slow_readers);
  page.single("trine_http_disconnects_total", "Clients that went before their answer was out",
              kCounter, http.disconnects);
}

void add_aliases(std::vector<MetricFamily>& families) {
  std::vector<MetricFamily> more;
  for (const MetricFamily& family : families) {
    for (const Alias& alias : kAliases) {
      if (family.name == alias.ours) {
        MetricFamily copy = family;
        copy.name = alias.vllm;
        for (ClientMetric& metric : copy.metric) {
          metric.label.push_back({"engine", "0"});
        }
        more.push_back(std::move(copy));
      }
    }
  }
  std::move(more.begin(), more.end(), std::back_inserter(families));
}

}  // namespace

Metrics::Metrics() : impl_(std::make_unique<Impl>()) {}

Metrics::~Metrics() = default;

Metrics::Model& Metrics::model(const std::string& name) {
  const std::unique_lock lock(impl_->mutex);
  std::unique_ptr<Model>& place = impl_->models[name];
  if (place == nullptr) {
    place = std::make_unique<ModelSeries>(*impl_, name);
  }
  return *place;
}

std::string Metrics::page(std::span<const ModelMetrics> models,
                          const http::ServerCounters& http) const {
  Page page(models);
  page.families = impl_->registry.Collect();
  add_engine(page);
  add_http(page, http);
  std::sort(page.families.begin(), page.families.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  add_aliases(page.families);
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, page.families);
  return std::move(out).str();
}

}  // namespace trine::server
