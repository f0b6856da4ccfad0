// Measures the packed kernels against the machine's own limits in the same run.
//
// Each measurement is a pair: the work, and right beside it a plain read of the same bytes and a
// register-only loop of int8 products, on the same threads. Shares are medians of paired ratios,
// because on a shared machine both sides change within seconds. Thread rule: the main thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernels/packed.h"
#include "platform/thread_team.h"
#include "tensor/dtype.h"

namespace trine::app {

struct NamedScheme {
  std::string name;  // "w4g64"
  kernels::PackedScheme scheme;
  DType plain = DType::kI8;  // a float type that is multiplied as it is stored; kI8: packed

  bool packed() const { return plain == DType::kI8; }
};

// w{2,3,4,5,6,8}g{32,64,128,256,row}, an "a" behind for zero points (w4g128a), the GGUF types
// "q4_0", "q4_k", ..., and what is multiplied as it is stored: "f32", "f16", "bf16", "f8_e4m3".
// Errors: invalid_argument naming the scheme and what there is.
Result<NamedScheme> parse_scheme(const std::string& name);

struct KernelBenchOptions {
  std::vector<NamedScheme> schemes;
  std::vector<std::int64_t> rows;  // M
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t bytes = 0;  // of weights that a pass reads: far more than the caches hold
  int repeats = 0;
};

struct KernelRow {
  std::string scheme;
  std::int32_t group = 0;  // 0: the whole row, -1: none, the weights are floats
  std::int64_t n = 0, k = 0, m = 0;
  double ms = 0;
  double gbps = 0, pct_read = 0;
  double gops = 0, pct_int8 = 0;
};

struct KernelReport {
  double read_gbps = 0;
  double int8_gops = 0;
  std::vector<KernelRow> rows;
};

// Errors: exhausted when the weights do not fit; cancelled after an interrupt.
Result<KernelReport> bench_kernels(ThreadTeam& team, const KernelBenchOptions& options);

}  // namespace trine::app
