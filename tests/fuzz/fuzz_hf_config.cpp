// Any text is a configuration or an error; what is accepted gives a model configuration whose sizes
// agree.
#include <cstddef>
#include <cstdint>

#include "base/log.h"
#include "format/hf_config.h"
#include "fuzz_support.h"
#include "model/config_sources.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  trine::log::set_level(trine::log::Level::kOff);
  const auto hf = trine::parse_hf_config({reinterpret_cast<const char*>(data), size});
  if (!hf.has_value()) {
    trine::require_printable(hf.error());
    return 0;
  }
  const auto config = trine::model_config_from_hf(*hf);
  if (!config.has_value()) {
    trine::require_printable(config.error());
    return 0;
  }
  const bool sound = config->layers.size() == static_cast<std::size_t>(config->num_layers) &&
                     config->num_heads % config->num_kv_heads == 0 && config->context_length >= 1;
  if (!sound) {
    __builtin_trap();
  }
  for (const trine::RopeConfig& rope : config->ropes) {
    for (const float frequency : trine::rope_inverse_frequencies(rope, config->context_length)) {
      if (frequency != frequency) {
        __builtin_trap();
      }
    }
  }
  return 0;
}
