// An attention problem of one sequence with random queries, keys and values, that can be computed
// in any chunking, page placement and team, and a naive reference in double precision.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "base/half.h"
#include "ops/attention.h"
#include "ops/ops.h"
#include "support/numeric.h"
#include "tensor/kv_layout.h"

namespace trine::test {

struct AttentionShape {
  std::int32_t num_heads = 4;
  std::int32_t num_kv_heads = 2;
  std::int32_t head_dim_k = 16;
  std::int32_t head_dim_v = 16;
  std::int32_t window = 0;
  float softcap = 0.0f;
  DType dtype = DType::kF16;
  std::int32_t length = 100;
};

// Separately allocated pages, handed out in an order that `placement` shuffles and full of NaN, so
// that reading a slot that was never written shows.
class Pages {
 public:
  Pages(const KvGeometry& geometry, std::int32_t num_tokens, std::uint64_t placement) {
    const auto count = static_cast<std::size_t>((num_tokens + kPageTokens - 1) / kPageTokens);
    const auto bytes = static_cast<std::size_t>(geometry.page_bytes());
    std::vector<std::size_t> order(count);
    std::iota(order.begin(), order.end(), std::size_t{0});
    for (std::size_t i = count; i > 1 && placement != 0; --i) {
      std::swap(order[i - 1], order[static_cast<std::size_t>(
                                  random_int(placement, i, 0, static_cast<std::int64_t>(i) - 1))]);
    }
    memory_.assign(count * bytes, std::byte{0xff});
    for (const std::size_t at : order) {
      pages_.push_back(memory_.data() + at * bytes);
    }
  }

  std::span<std::byte* const> span() const { return pages_; }

 private:
  std::vector<std::byte> memory_;
  std::vector<std::byte*> pages_;
};

class AttentionCase {
 public:
  AttentionCase(const AttentionShape& shape, std::uint64_t seed) : shape_(shape) {
    q = random_floats(seed, std::int64_t{shape.length} * q_width(), 2.0f);
    k = random_floats(seed + 1, std::int64_t{shape.length} * k_width(), 2.0f);
    v = random_floats(seed + 2, std::int64_t{shape.length} * v_width(), 2.0f);
  }

  const AttentionShape& shape() const { return shape_; }

  std::int64_t q_width() const { return std::int64_t{shape_.num_heads} * shape_.head_dim_k; }

  std::int64_t k_width() const { return std::int64_t{shape_.num_kv_heads} * shape_.head_dim_k; }

  std::int64_t v_width() const { return std::int64_t{shape_.num_kv_heads} * shape_.head_dim_v; }

  std::int64_t out_width() const { return std::int64_t{shape_.num_heads} * shape_.head_dim_v; }

  KvGeometry geometry() const {
    KvGeometry g;
    g.num_layers = 2;
    g.num_kv_heads = shape_.num_kv_heads;
    g.head_dim_k = shape_.head_dim_k;
    g.head_dim_v = shape_.head_dim_v;
    g.dtype = shape_.dtype;
    return g;
  }

  ops::AttentionParams params() const {
    ops::AttentionParams p;
    p.layer = 1;
    p.num_heads = shape_.num_heads;
    p.num_kv_heads = shape_.num_kv_heads;
    p.head_dim_k = shape_.head_dim_k;
    p.head_dim_v = shape_.head_dim_v;
    p.scale = 1.0f / std::sqrt(static_cast<float>(shape_.head_dim_k));
    p.window = shape_.window;
    p.logit_softcap = shape_.softcap;
    return p;
  }

  // The rows of the whole sequence, computed in steps of these sizes (the last one repeats).
  std::vector<float> run(ThreadTeam& team, const std::vector<std::int32_t>& chunks,
                         std::uint64_t placement) const {
    ops::Context ctx(team);
    const Pages pages(geometry(), shape_.length, placement);
    std::vector<float> out(static_cast<std::size_t>(shape_.length * out_width()));
    std::size_t step = 0;
    for (std::int32_t at = 0; at < shape_.length; ++step) {
      ops::AttentionSpan span;
      span.pages = pages.span();
      span.first_slot = at;
      span.num_rows = std::min(chunks[std::min(step, chunks.size() - 1)], shape_.length - at);
      span.first_row = at;
      const std::span<const ops::AttentionSpan> spans(&span, 1);
      write_kv(ctx, geometry(), 1, spans, k.data(), k_width(), v.data(), v_width());
      attention(ctx, geometry(), params(), spans, q.data(), q_width(), out.data(), out_width());
      at += span.num_rows;
    }
    return out;
  }

  // What the pages store of x, [length, heads, dim], in double precision.
  std::vector<double> stored(const std::vector<float>& x, std::int64_t dim) const {
    std::vector<double> out(x.size());
    for (std::size_t first = 0; first < x.size(); first += static_cast<std::size_t>(dim)) {
      const std::size_t end = first + static_cast<std::size_t>(dim);
      float largest = 0.0f;
      for (std::size_t i = first; i < end; ++i) {
        largest = std::max(largest, std::fabs(x[i]));
      }
      const double scale = f16_to_f32(f32_to_f16(largest / 127.0f));  // of eight-bit codes
      for (std::size_t i = first; i < end; ++i) {
        out[i] = stored_value(x[i], scale);
      }
    }
    return out;
  }

  // Row `row` of head `head` in double precision, from what `stored` gives for the keys and the
  // values.
  std::vector<double> reference(const std::vector<double>& stored_k,
                                const std::vector<double>& stored_v, std::int64_t row,
                                std::int64_t head) const {
    const std::int64_t g = head / (shape_.num_heads / shape_.num_kv_heads);
    const std::int64_t first =
        shape_.window > 0 ? std::max<std::int64_t>(0, row - shape_.window + 1) : 0;
    const double scale = static_cast<double>(params().scale);
    std::vector<double> weights;
    double max = -HUGE_VAL;
    for (std::int64_t t = first; t <= row; ++t) {
      double score = 0.0;
      for (std::int64_t d = 0; d < shape_.head_dim_k; ++d) {
        score += static_cast<double>(q[at(row * q_width() + head * shape_.head_dim_k + d)]) *
                 stored_k[at(t * k_width() + g * shape_.head_dim_k + d)];
      }
      score *= scale;
      if (shape_.softcap > 0.0f) {
        const double cap = static_cast<double>(shape_.softcap);
        score = cap * std::tanh(score / cap);
      }
      weights.push_back(score);
      max = std::max(max, score);
    }
    double total = 0.0;
    for (double& weight : weights) {
      weight = std::exp(weight - max);
      total += weight;
    }
    std::vector<double> out(static_cast<std::size_t>(shape_.head_dim_v), 0.0);
    for (std::int64_t t = first; t <= row; ++t) {
      for (std::int64_t d = 0; d < shape_.head_dim_v; ++d) {
        out[at(d)] += weights[at(t - first)] / total *
                      stored_v[at(t * v_width() + g * shape_.head_dim_v + d)];
      }
    }
    return out;
  }

  std::vector<float> q, k, v;  // [length, heads, dim]

 private:
  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

  double stored_value(float value, double scale) const {
    switch (shape_.dtype) {
      case DType::kF16:
        return f16_to_f32(f32_to_f16(value));
      case DType::kBF16:
        return bf16_to_f32(f32_to_bf16(value));
      case DType::kI8: {
        // The quotient is rounded to float before it is rounded to an integer.
        const float code = static_cast<float>(static_cast<double>(value) / scale);
        return scale == 0.0 ? 0.0 : scale * std::clamp(std::nearbyint(code), -127.0f, 127.0f);
      }
      default:
        return value;
    }
  }

  AttentionShape shape_;
};

// The nodes of a tree from the root to `node`.
inline std::vector<std::int32_t> tree_path(const std::vector<std::int32_t>& parents,
                                           std::int32_t node) {
  std::vector<std::int32_t> path;
  for (; node >= 0; node = parents[static_cast<std::size_t>(node)]) {
    path.push_back(node);
  }
  std::reverse(path.begin(), path.end());
  return path;
}

// A tree span over the last rows of a case (rows [prefix, length) are its nodes). Row i of the
// result is node i's.
inline std::vector<float> run_tree(const AttentionCase& c, ThreadTeam& team, std::int32_t prefix,
                                   const std::vector<std::int32_t>& parents,
                                   std::uint64_t placement) {
  ops::Context ctx(team);
  const KvGeometry geometry = c.geometry();
  const Pages pages(geometry, c.shape().length, placement);
  std::vector<float> out(static_cast<std::size_t>(c.shape().length * c.out_width()));
  ops::AttentionSpan span;
  span.pages = pages.span();
  span.num_rows = prefix;
  const std::span<const ops::AttentionSpan> spans(&span, 1);
  write_kv(ctx, geometry, 1, spans, c.k.data(), c.k_width(), c.v.data(), c.v_width());
  span.first_slot = prefix;
  span.first_row = prefix;
  span.num_rows = static_cast<std::int32_t>(parents.size());
  span.parents = parents.data();
  write_kv(ctx, geometry, 1, spans, c.k.data(), c.k_width(), c.v.data(), c.v_width());
  attention(ctx, geometry, c.params(), spans, c.q.data(), c.q_width(), out.data(), c.out_width());
  return {out.begin() + prefix * c.out_width(), out.end()};
}

// The case in which the nodes of one path follow the prefix as a chain.
inline AttentionCase chain_of_path(const AttentionCase& c, std::int32_t prefix,
                                   const std::vector<std::int32_t>& path) {
  AttentionShape shape = c.shape();
  shape.length = prefix + static_cast<std::int32_t>(path.size());
  AttentionCase chain(shape, 0);
  const auto copy_rows = [&](const std::vector<float>& from, std::vector<float>& to,
                             std::int64_t width) {
    std::copy_n(from.begin(), prefix * width, to.begin());
    for (std::size_t i = 0; i < path.size(); ++i) {
      std::copy_n(from.begin() + (prefix + path[i]) * width, width,
                  to.begin() + (prefix + static_cast<std::int64_t>(i)) * width);
    }
  };
  copy_rows(c.q, chain.q, c.q_width());
  copy_rows(c.k, chain.k, c.k_width());
  copy_rows(c.v, chain.v, c.v_width());
  return chain;
}

}  // namespace trine::test
