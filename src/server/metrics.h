// Everything /metrics shows.
//
// Counters and histograms are fed as things happen; the engines' gauges are read when the page is
// made. Each metric has our name (trine_...) and, where vLLM has the same one, also its name
// (vllm:...), so that dashboards made for it work. Label: model_name. Thread rule: any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "engine/engine.h"
#include "server/http/server.h"

namespace trine::server {

struct ModelMetrics {
  std::string model;
  EngineMetrics engine;
  bool loaded = false;
  double weight_bytes = 0.0;
};

class Metrics {
 public:
  Metrics();
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // The series of one model; finding it takes a lock, so callers keep it.
  class Model;
  Model& model(const std::string& name);

  // Text in Prometheus' format 0.0.4.
  std::string page(std::span<const ModelMetrics> models, const http::ServerCounters& http) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

class Metrics::Model {
 public:
  virtual ~Model() = default;
  // A step of so many tokens in so many milliseconds was computed.
  virtual void step(std::int32_t num_tokens, double step_ms) = 0;
  // What it did for prompts and answers.
  virtual void tokens(std::int64_t prompt, std::int64_t cached, std::int64_t generated) = 0;
  // Between two tokens of one answer.
  virtual void inter_token(double ms) = 0;
  virtual void answer_ended(FinishReason reason) = 0;
  virtual void request_ended(const RequestStats& stats, double e2e_ms) = 0;
};

}  // namespace trine::server
