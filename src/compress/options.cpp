#include "compress/options.h"

#include <array>

#include "base/check.h"

namespace trine {

std::string method_name(QuantMethod method) {
  constexpr std::array kNames{"rtn", "gptq", "awq", "awq+gptq", "smoothquant", "fp8"};
  return kNames[static_cast<std::size_t>(method)];
}

std::string format_name(OutputFormat format) {
  constexpr std::array kNames{"gguf", "gptq", "awq", "compressed-tensors"};
  return kNames[static_cast<std::size_t>(format)];
}

bool needs_calibration(QuantMethod method) {
  return method != QuantMethod::kRtn && method != QuantMethod::kFp8;
}

bool uses_second_moments(QuantMethod method) {
  return method == QuantMethod::kGptq || method == QuantMethod::kAwq ||
         method == QuantMethod::kAwqGptq;
}

namespace {

Status check_gptq_format(const QuantScheme& scheme) {
  if (scheme.kind == GridKind::kFloat8) {
    return fail(ErrorCode::kInvalidArgument,
                "--format gptq has no FP8; --format compressed-tensors has");
  }
  return {};
}

Status check_awq_format(const QuantScheme& scheme) {
  if (scheme.bits != 4 || scheme.kind == GridKind::kFloat8) {
    return fail(ErrorCode::kInvalidArgument,
                "--format awq has 4 bits only, not {}; gptq, compressed-tensors and gguf have others",
                scheme.text());
  }
  return {};
}

Status check_format(const QuantizeOptions& options, const QuantScheme& scheme) {
  switch (options.format) {
    case OutputFormat::kGptq:
      return check_gptq_format(scheme);
    case OutputFormat::kAwq:
      return check_awq_format(scheme);
    case OutputFormat::kGguf:
      if (scheme.kind == GridKind::kFloat8) {
        return fail(ErrorCode::kInvalidArgument,
                    "--format gguf has no FP8; --format compressed-tensors has");
      }
      return {};
    case OutputFormat::kCompressedTensors:
      return {};
  }
  return {};
}

Status check_bits_of(std::string_view option, int bits, OutputFormat format) {
  if (bits != 0 && bits != 8 && bits != 16) {
    return fail(ErrorCode::kInvalidArgument, "--{} {}: there are 8 and 16", option, bits);
  }
  if (bits == 8 && format != OutputFormat::kGguf) {
    return fail(ErrorCode::kInvalidArgument,
                "--{} 8: readers of {} files expect this table in 16 bits; --format gguf holds it in 8",
                option, format_name(format));
  }
  return {};
}

}  // namespace

Status check_options(const QuantizeOptions& options) {
  const bool smooth = options.method == QuantMethod::kSmoothQuant;
  if (smooth && (options.scheme.bits != 8 || options.scheme.group != 0 ||
                 options.scheme.kind != GridKind::kSymmetric)) {
    return fail(ErrorCode::kInvalidArgument,
                "--method smoothquant is 8 bits with one scale per row, symmetric: leave --bits, "
                "--group and --asym out");
  }
  if (smooth && (options.format == OutputFormat::kGptq || options.format == OutputFormat::kAwq)) {
    return fail(ErrorCode::kInvalidArgument,
                "--format {} has no 8-bit activations; compressed-tensors and gguf have",
                format_name(options.format));
  }
  TRINE_TRY(check_format(options, options.scheme));
  for (const ModuleRule& rule : options.rules) {
    if (!rule.keep && !rule.plain_activations) {
      TRINE_TRY(check_format(options, rule.scheme));
    }
    if (rule.plain_activations && !smooth) {
      return fail(ErrorCode::kInvalidArgument,
                  "--override {}=w8a16: activations have 8 bits under --method smoothquant only",
                  rule.pattern);
    }
  }
  TRINE_TRY(check_bits_of("head-bits", options.head_bits, options.format));
  TRINE_TRY(check_bits_of("embedding-bits", options.embedding_bits, options.format));
  return {};
}

bool pattern_matches(std::string_view pattern, std::string_view name) {
  // The last star is the only place to come back to: a longer match of an earlier one never helps.
  std::size_t p = 0;
  std::size_t n = 0;
  std::size_t star = std::string_view::npos;
  std::size_t after = 0;
  while (n < name.size()) {
    if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n]) && pattern[p] != '*') {
      ++p;
      ++n;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      after = n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++after;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') {
    ++p;
  }
  return p == pattern.size();
}

const ModuleRule* rule_for(const QuantizeOptions& options, std::string_view module) {
  for (const ModuleRule& rule : options.rules) {
    if (pattern_matches(rule.pattern, module)) {
      return &rule;
    }
  }
  return nullptr;
}

}  // namespace trine
