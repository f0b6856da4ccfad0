// The models of a server: loading, unloading, keep-alive, the memory budget.
//
// A thread of its own loads and unloads, one model after the other. Requests wait for a model that
// is being loaded; a model that was idle for its keep-alive time is unloaded and loaded again when
// it is asked for; one that an admin unloaded stays so until it is loaded again. Unloading lets
// running answers finish, up to a limit. Memory of a model is counted as the bytes of its files and
// of its key/value cache. Thread rule: any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/bundle.h"
#include "engine/engine.h"
#include "grammar/compile.h"
#include "server/engine_thread.h"
#include "server/metrics.h"
#include "server/openai/error.h"
#include "server/openai/tool_calls.h"
#include "server/worker_pool.h"

namespace trine::server {

struct ModelSpec {
  std::string id;    // what requests call it
  std::string path;  // a .gguf file or a directory
};

// What requests get that leave a field out: what the model's authors ship, or nothing.
struct RequestDefaults {
  sampling::SamplingParams sampling = {};
  std::optional<std::int32_t> max_tokens = std::nullopt;  // yields to a context with less room
  std::string text = {};  // "temperature 0.6, top_k 20 (generation_config.json)"; empty: none
};

// A model that answers. Immutable but for the engine behind its thread.
struct ServedModel {
  ModelSpec spec;
  ModelBundle bundle;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::unique_ptr<grammar::GrammarCache> grammars;
  RequestDefaults defaults;
  openai::ToolFamily tool_family = openai::ToolFamily::kGeneric;
  std::int64_t loaded_unix_s = 0;
  std::int64_t weight_bytes = 0;
  std::int64_t kv_bytes = 0;
  std::unique_ptr<EngineThread> engine;
};

// Keeps the model loaded while it lives.
using Lease = std::shared_ptr<const ServedModel>;

struct ModelHostOptions {
  Model::LoadOptions load;
  EngineOptions engine;
  double keep_alive_s = 0.0;             // 0: forever
  std::int64_t memory_budget_bytes = 0;  // of all models; 0: no limit
  double drain_timeout_s = 30.0;         // of an unload
  bool generation_config = true;         // the model's own sampling defaults apply
  // From a name that an admin gives to a path; not_found when there is no such model.
  std::function<Result<std::string>(std::string_view name)> resolve;
};

enum class ModelState : std::uint8_t { kUnloaded, kLoading, kReady, kDraining, kFailed };

std::string_view model_state_name(ModelState state);

struct ModelStatus {
  ModelSpec spec;
  ModelState state = ModelState::kUnloaded;
  bool on_demand = false;  // requests are taken, and wait if it has to be loaded
  std::string error;       // of the last load
  std::int64_t weight_bytes = 0;
  std::int64_t kv_bytes = 0;
  std::int64_t loaded_unix_s = 0;   // of the last load
  std::int32_t context_tokens = 0;  // the same
  std::string defaults;             // RequestDefaults::text
  std::int32_t num_leases = 0;
  bool queue_full = false;
  EngineMetrics engine;
  EngineProgress progress;
};

class ModelHost {
 public:
  ModelHost(ModelHostOptions options, WorkerPool& answers, Metrics& metrics);
  ~ModelHost();
  ModelHost(const ModelHost&) = delete;
  ModelHost& operator=(const ModelHost&) = delete;

  using Done = std::function<void(Status)>;
  using OnModel = std::function<void(openai::ApiResult<Lease>)>;

  // Adds the model if it is new and loads it; `done` is called by the loading thread.
  void load(ModelSpec spec, Done done);
  // The same by a name: one that was served before, or one that options.resolve knows.
  void load_by_name(const std::string& name, Done done);
  // Lets its requests finish and unloads it. Errors: not_found; unavailable when it is not loaded.
  void unload(const std::string& id, Done done);
  // Calls back with the model, at once or when it is loaded. An empty id is the first model.
  void acquire(const std::string& id, OnModel on_model);

  std::vector<ModelStatus> status() const;
  // Of the loaded models; 0 when none is.
  std::int32_t longest_context() const;
  // Ends all answers in work.
  void abort_all(const openai::ApiError& error);
  // Forgets cached prefixes of all models.
  void clear_prefix_caches();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trine::server
