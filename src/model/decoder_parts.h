// A model file opened and bound, before anything is packed: what Model::load() begins with and a
// quantizer works from. Thread rule: pure function on the file system.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/error.h"
#include "format/open.h"
#include "model/config.h"
#include "model/weights.h"

namespace trine {

struct DecoderParts {
  ModelConfig config;
  DecoderWeights weights;                              // views into the checkpoint
  std::shared_ptr<const OpenedCheckpoint> checkpoint;  // owns what they view
};

// max_context as in Model::LoadOptions. Errors: those of Model::load.
Result<DecoderParts> open_decoder(const std::string& path, std::int32_t max_context);

}  // namespace trine
