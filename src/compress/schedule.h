// Which linear layers of a model are quantized and how, decided and checked before any work is
// done. Thread rule: pure functions on an opened model.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "compress/options.h"
#include "compress/output.h"
#include "model/decoder_parts.h"

namespace trine {

// One tensor of linear layers: several on top of each other when they are fused or are experts.
struct ScheduledModule {
  std::string module;
  std::int32_t layer_idx = 0;
  std::int64_t rows = 0, cols = 0;
  std::optional<QuantScheme> scheme;  // none: stays as it is
  bool plain_activations = false;     // SmoothQuant: W8A16 by the user's rule
};

using QuantizeSchedule = std::map<std::string, ScheduledModule, std::less<>>;

// Errors: invalid_argument for a layer that the format cannot hold, a rule that matches no layer,
// nothing left to quantize, and a source that is quantized (unless options.requantize).
Result<QuantizeSchedule> schedule_modules(const DecoderParts& parts,
                                          const QuantizeOptions& options);

// What the output's weights will take.
OutputSizes predict_sizes(const DecoderParts& parts, const QuantizeOptions& options,
                          const QuantizeSchedule& schedule);

// The widest input of a scheduled layer, and its module: decides how many calibration tokens are
// enough.
struct WidestInput {
  std::string module;
  std::int64_t cols = 0;
};

WidestInput widest_input(const QuantizeSchedule& schedule);

}  // namespace trine
