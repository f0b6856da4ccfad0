// Measures attention over a long context beside a plain read of as many bytes: one sequence whose
// keys and values, over all layers, are far more than the caches hold. Thread rule: the main
// thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "platform/thread_team.h"
#include "tensor/dtype.h"

namespace trine::app {

// "32/4x64": 32 query heads, 4 heads of keys and values, 64 dimensions each.
struct AttentionShape {
  std::int32_t num_heads = 0;
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;

  std::string text() const;
};

// Errors: invalid_argument with the form and the limits.
Result<AttentionShape> parse_attention_shape(const std::string& text);

struct AttentionBenchOptions {
  std::vector<AttentionShape> shapes;
  std::vector<DType> kv_dtypes;
  std::vector<std::int64_t> rows;  // of the span that attends, behind `depth` tokens
  std::int64_t depth = 0;
  std::int64_t bytes = 0;  // of keys and values, over as many layers as that takes
  int repeats = 0;
};

struct AttentionRow {
  AttentionShape shape;
  DType kv_dtype = DType::kF16;
  std::int64_t rows = 0;
  double us = 0;  // of one layer
  double gbps = 0, pct_read = 0;
  double gflops = 0;  // multiplications and additions of both products
};

struct AttentionReport {
  double read_gbps = 0;
  std::vector<AttentionRow> rows;
};

// Types of one shape and row count are measured in turn. Errors: exhausted when the keys and values
// do not fit; cancelled after an interrupt.
Result<AttentionReport> bench_attention(ThreadTeam& team, const AttentionBenchOptions& options);

}  // namespace trine::app
