// Any bytes as a GGUF file give a configuration with bound weights, or an error. Running what
// loads, and the safetensors side, are in tests/property/model_property_test.cpp.
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/log.h"
#include "format/gguf.h"
#include "fuzz_support.h"
#include "model/config_sources.h"
#include "model/weights.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  trine::log::set_level(trine::log::Level::kOff);
  const auto file = trine::parse_gguf(std::as_bytes(std::span(data, size)), "fuzz");
  if (!file.has_value()) {
    trine::require_printable(file.error());
    return 0;
  }
  auto config = trine::model_config_from_gguf(*file);
  if (!config.has_value()) {
    trine::require_printable(config.error());
    return 0;
  }
  const auto weights = trine::bind_gguf_weights(file->checkpoint, *config);
  if (!weights.has_value()) {
    trine::require_printable(weights.error());
    return 0;
  }
  trine::require(weights->layers.size() == static_cast<std::size_t>(config->num_layers));
  return 0;
}
