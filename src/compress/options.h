// What a user may ask of `trine quantize`. Thread rule: plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "quant/quant_grid.h"

namespace trine {

enum class QuantMethod : std::uint8_t { kRtn, kGptq, kAwq, kAwqGptq, kSmoothQuant, kFp8 };
enum class OutputFormat : std::uint8_t { kGguf, kGptq, kAwq, kCompressedTensors };

std::string method_name(QuantMethod method);
std::string format_name(OutputFormat format);

// How modules whose name matches are treated instead of as the others.
struct ModuleRule {
  std::string pattern;  // '*' any text, '?' one character; the whole name without ".weight"
  bool keep = false;    // stays as it is in the source
  bool plain_activations = false;  // SmoothQuant: W8A16 for this one
  QuantScheme scheme;
};

struct QuantizeOptions {
  QuantMethod method = QuantMethod::kGptq;
  OutputFormat format = OutputFormat::kGguf;
  QuantScheme scheme;  // of every linear layer that no rule names
  std::vector<ModuleRule> rules;
  int head_bits = 0;       // 8 or 16; 0: 8 in GGUF, 16 elsewhere
  int embedding_bits = 0;  // likewise
  bool clip = false;       // search smaller ranges, weighed by the inputs
  double damping = 0.01;
  bool act_order = true;
  bool true_sequential = true;  // inputs of a block's later layers come from its quantized earlier
                                // ones; else all from the block as it was
  // SmoothQuant: layers whose outputs change by more than this share of their energy keep plain
  // activations (W8A16).
  double smooth_limit = 0.01;
  std::vector<float> alphas{0.4F, 0.5F, 0.6F, 0.7F, 0.8F, 0.9F};
  bool requantize = false;  // take a source that is quantized already
};

bool needs_calibration(QuantMethod method);
// GPTQ and AWQ work from second moments, which few tokens do not determine.
bool uses_second_moments(QuantMethod method);

// The options fit each other and the format. Errors: invalid_argument naming the option and what
// there is instead.
Status check_options(const QuantizeOptions& options);

// "PATTERN=WHAT": keep, w8a16, fp8, or parts apart from each other by ':' of bits (2, 3, 4, 8),
// group (g32, row) and sym or asym; what is left out is as in `base`. Errors: invalid_argument
// naming the part.
Result<ModuleRule> parse_rule(std::string_view text, const QuantScheme& base);

// The scheme as the format holds it: GGUF's blocks of 4 bits with a minimum instead of a zero
// point.
QuantScheme format_scheme(OutputFormat format, QuantScheme scheme);

// Whether `name` matches a rule's pattern.
bool pattern_matches(std::string_view pattern, std::string_view name);

// The scheme of a module. nullptr: it stays as it is.
const ModuleRule* rule_for(const QuantizeOptions& options, std::string_view module);

}  // namespace trine
