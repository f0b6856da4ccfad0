// Paged grouped-query attention over spans, and the write of a step's new keys and values.
//
// Numeric contract: per (row, head) the context is cut into segments at absolute positions; softmax
// is exact inside a segment and segments are merged in ascending order (kernels/attention.h). Which
// member computes a segment, and beside which other rows, is free, so one query of a long context
// uses the whole team. The result of a row depends on its query, its visible keys and values only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/ops.h"
#include "tensor/kv_layout.h"

namespace trine::ops {

// The part of one sequence that a step computes. Token i of the span is stored in slot first_slot +
// i.
struct AttentionSpan {
  std::span<std::byte* const> pages;  // of the sequence; cover first_slot + num_rows tokens
  std::int32_t first_slot = 0;        // committed length before the step
  std::int32_t num_rows = 0;          // n new tokens
  std::int64_t first_row = 0;         // row of the span's first token in the step's matrices
  // Tree of drafts: parents[i] is the span index of token i's parent, or -1 for the committed
  // prefix; null for a chain. Token i then sees the prefix, its ancestors and itself.
  const std::int32_t* parents = nullptr;
};

struct AttentionParams {
  std::int32_t layer = 0;
  std::int32_t num_heads = 0;     // H
  std::int32_t num_kv_heads = 0;  // G, divides H
  std::int32_t head_dim_k = 0;
  std::int32_t head_dim_v = 0;
  float scale = 1.0f;          // multiplies q.k
  std::int32_t window = 0;     // a row at position p sees positions > p - window; 0 = all
  float logit_softcap = 0.0f;  // c * tanh(s / c) before the softmax; 0 = none
};

// A span that breaks the rules above is a bug: checked.
void check_span(const AttentionSpan& span);

// Stores k [T, G, Dk] and v [T, G, Dv] (rows `stride` floats apart) of every span into its pages,
// rounded to the geometry's type. I8: per token and head, scale = max |x| / 127 as binary16 and
// codes = round(x / scale); a token's numbers depend on that token only, so one can be taken back
// or written again. What I8 cannot hold (NaN, beyond 8.3e6) is read back as NaN.
void write_kv(Context& ctx, const KvGeometry& geometry, std::int32_t layer,
              std::span<const AttentionSpan> spans, const float* k, std::int64_t k_stride,
              const float* v, std::int64_t v_stride);

// out [T, H, Dv] = softmax(scale q k^T + mask) v, for q [T, H, Dk]. write_kv ran before for the
// same spans.
void attention(Context& ctx, const KvGeometry& geometry, const AttentionParams& params,
               std::span<const AttentionSpan> spans, const float* q, std::int64_t q_stride,
               float* out, std::int64_t out_stride);

}  // namespace trine::ops
