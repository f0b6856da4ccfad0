// A whole model quantized: calibration, block after block, output, report.
//
// Memory: one block in float32, the calibration tokens' activations, and what is written at the
// moment; results of finished blocks lie in OUT.work beside the output, from which an interrupted
// run goes on. A directory that is to become a GGUF file is converted there first. The output
// appears complete or not at all. The result does not depend on the number of threads. Thread rule:
// one run at a time on the calling thread, which owns its thread team.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "compress/block_weights.h"
#include "compress/calibration_text.h"
#include "compress/options.h"
#include "compress/output.h"

namespace trine {

enum class QuantizeStage : std::uint8_t { kConversion, kBlocks, kOutput };

struct QuantizeProgress {
  QuantizeStage stage = QuantizeStage::kBlocks;
  std::int64_t done = 0, total = 0;  // bytes, blocks, tensors of the output
  bool resumed = false;              // the block was done by an earlier run
};

struct QuantizeRequest {
  std::string source;  // GGUF file or Hugging Face directory in full precision
  std::string out;     // a file for GGUF, else a directory
  QuantizeOptions options;
  // For methods that need it; tokens 0: the fewest that cover every layer four times, at least
  // kLeastCalibration.
  CalibrationSpec calibration;
  int threads = 1;
  bool dry_run = false;  // checks and predicts, leaves nothing
  bool restart = false;  // forgets what an interrupted run left
  bool replace = false;  // an output that exists
  std::function<void(const QuantizeProgress&)> progress;
  std::function<void(std::string_view)> warn;
  const std::atomic<bool>* cancel = nullptr;
};

inline constexpr std::int64_t kLeastCalibration = 32768;

struct QuantizeReport {
  std::string source, out;
  QuantizeOptions options;
  CalibrationSet calibration;  // without its sequences
  std::vector<ModuleReport> modules;
  std::uint64_t source_bytes = 0;
  OutputSizes predicted;  // from shapes and schemes, before anything was computed
  OutputSizes written;
  std::int64_t num_blocks = 0, resumed_blocks = 0;
  double calibration_seconds = 0, block_seconds = 0, output_seconds = 0;
};

// Errors: those of opening the model and of check_options(); invalid_argument for an output that
// exists, an override that matches nothing, a source that is quantized already, too few calibration
// tokens, the remains of a run with other options; cancelled, after which the same call goes on
// where it was.
Result<QuantizeReport> quantize_model(const QuantizeRequest& request);

}  // namespace trine
