#include "compress/options.h"

#include <array>

#include "base/printable.h"

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
    return fail(
        ErrorCode::kInvalidArgument,
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
    return fail(
        ErrorCode::kInvalidArgument,
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

namespace {

Status parse_part(std::string_view part, QuantScheme& scheme) {
  if (part == "2" || part == "3" || part == "4" || part == "8") {
    scheme.bits = part[0] - '0';
  } else if (part == "g32" || part == "g64" || part == "g128" || part == "g256") {
    scheme.group = part == "g32" ? 32 : part == "g64" ? 64 : part == "g128" ? 128 : 256;
  } else if (part == "row") {
    scheme.group = 0;
  } else if (part == "sym") {
    scheme.kind = GridKind::kSymmetric;
  } else if (part == "asym") {
    scheme.kind = GridKind::kZeroPoint;
  } else if (part == "fp8") {
    scheme = {8, 0, GridKind::kFloat8};
  } else {
    return fail(
        ErrorCode::kInvalidArgument,
        "\"{}\" is none of keep, w8a16, fp8, 2, 3, 4, 8, g32, g64, g128, g256, row, sym, asym",
        printable(part));
  }
  return {};
}

}  // namespace

Result<ModuleRule> parse_rule(std::string_view text, const QuantScheme& base) {
  const std::size_t equals = text.rfind('=');
  if (equals == std::string_view::npos || equals == 0 || equals + 1 == text.size()) {
    return fail(ErrorCode::kInvalidArgument,
                "--override {}: PATTERN=WHAT is expected, as in '*.down_proj=8:g32'",
                printable(text));
  }
  ModuleRule rule;
  rule.pattern = std::string(text.substr(0, equals));
  rule.scheme = base;
  std::string_view what = text.substr(equals + 1);
  if (what == "keep" || what == "w8a16") {
    rule.keep = what == "keep";
    rule.plain_activations = what == "w8a16";
    return rule;
  }
  for (bool more = true; more;) {
    const std::size_t colon = what.find(':');
    const Status parsed = parse_part(what.substr(0, colon), rule.scheme);
    if (!parsed.has_value()) {
      return fail(ErrorCode::kInvalidArgument, "--override {}: {}", printable(text),
                  parsed.error().message);
    }
    more = colon != std::string_view::npos;
    what.remove_prefix(more ? colon + 1 : what.size());
  }
  return rule;
}

QuantScheme format_scheme(OutputFormat format, QuantScheme scheme) {
  if (format == OutputFormat::kGguf && scheme.kind == GridKind::kZeroPoint && scheme.bits == 4 &&
      scheme.group == 32) {
    scheme.kind = GridKind::kMin;
  }
  return scheme;
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
