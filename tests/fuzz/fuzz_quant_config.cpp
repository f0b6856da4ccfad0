// The first byte says which file the rest is the text of. Any text is a configuration or an error;
// what is accepted gives each module a scheme that the reader of matrices knows, or none.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/log.h"
#include "format/quant_config.h"
#include "fuzz_support.h"
#include "model/module_patterns.h"

namespace {

using trine::QuantConfig;
using trine::StoredMethod;
using trine::WeightScheme;

trine::Result<QuantConfig> parse(char kind, std::string_view text) {
  switch (kind) {
    case 'g':
      return trine::parse_gguf_quant_config(text, "trine.quantization_config");
    case 'a':
      return trine::parse_quant_config_file(text, StoredMethod::kAwq);
    default:
      return trine::parse_quant_config_file(text, StoredMethod::kGptq);
  }
}

void check(const WeightScheme& scheme) {
  using Strategy = WeightScheme::Strategy;
  trine::require(scheme.bits == 2 || scheme.bits == 3 || scheme.bits == 4 || scheme.bits == 8);
  trine::require(!scheme.is_float || scheme.bits == 8);
  trine::require(scheme.strategy != Strategy::kGroup ||
                 (scheme.group >= 1 && scheme.group <= trine::kMaxQuantGroup));
  trine::require(scheme.strategy != Strategy::kBlock ||
                 (scheme.block_rows >= 1 && scheme.block_cols >= 1));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  trine::log::set_level(trine::log::Level::kOff);
  if (size == 0) {
    return 0;
  }
  const auto config =
      parse(static_cast<char>(data[0]), {reinterpret_cast<const char*>(data) + 1, size - 1});
  if (!config.has_value()) {
    trine::require_printable(config.error());
    return 0;
  }
  trine::ModulePatterns patterns;
  for (const char* module : {"model.layers.0.self_attn.q_proj", "blk.0.ffn_down", "lm_head"}) {
    const auto scheme = trine::scheme_of_module(
        *config, module, "Linear", [&patterns](const std::string& pattern, std::string_view name) {
          return patterns.matches(pattern, name);
        });
    if (!scheme.has_value()) {
      trine::require_printable(scheme.error());
    } else if (scheme->has_value()) {
      check(**scheme);
    }
  }
  return 0;
}
