#include "ops/attention.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "kernels/dispatch.h"

namespace trine::ops {
namespace {

static_assert(kernels::kAttentionTileKeys == kPageTokens);

constexpr std::int64_t kLanes = 16;
// Queries that share a converted tile: enough to pay for the conversion, few enough for the cache.
constexpr std::int64_t kMaxQueries = 64;
// Items per thread that let fast members take over from slow ones.
constexpr std::int64_t kItemsPerThread = 3;

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

std::int64_t element_bytes(DType dtype) {
  return dtype == DType::kF32 ? 4 : 2;
}

void check_geometry(const KvGeometry& geometry, std::int32_t layer) {
  TRINE_CHECK(geometry.dtype == DType::kF32 || geometry.dtype == DType::kF16 ||
              geometry.dtype == DType::kBF16);
  TRINE_CHECK(layer >= 0 && layer < geometry.num_layers && geometry.num_kv_heads > 0);
  TRINE_CHECK(geometry.head_dim_k > 0 && geometry.head_dim_v > 0);
}

void check_span(const AttentionSpan& span) {
  TRINE_CHECK(span.first_slot >= 0 && span.num_rows >= 0 && span.first_row >= 0);
  const std::int64_t tokens = std::int64_t{span.first_slot} + span.num_rows;
  TRINE_CHECK(static_cast<std::int64_t>(span.pages.size()) * kPageTokens >= tokens);
  if (span.parents != nullptr) {
    for (std::int32_t i = 0; i < span.num_rows; ++i) {
      TRINE_CHECK(span.parents[i] >= -1 && span.parents[i] < i);
    }
  }
}

// How the step is cut into independent items: (span, kv head, part of its query heads, block of
// rows).
struct Plan {
  std::int64_t heads_per_group = 1;  // H / G
  std::int64_t heads_per_item = 1;
  std::int64_t parts = 1;  // of a group
  std::int64_t rows_per_item = 1;
};

std::int64_t num_items(const Plan& plan, const AttentionParams& params, const AttentionSpan& span) {
  const std::int64_t blocks = (span.num_rows + plan.rows_per_item - 1) / plan.rows_per_item;
  return params.num_kv_heads * plan.parts * blocks;
}

Plan make_plan(const AttentionParams& params, std::span<const AttentionSpan> spans,
               int num_threads) {
  Plan plan;
  plan.heads_per_group = params.num_heads / params.num_kv_heads;
  plan.heads_per_item = std::min(plan.heads_per_group, kMaxQueries);
  plan.parts = (plan.heads_per_group + plan.heads_per_item - 1) / plan.heads_per_item;
  plan.rows_per_item = std::max<std::int64_t>(1, kMaxQueries / plan.heads_per_item);
  std::int64_t total = 0;
  for (const AttentionSpan& span : spans) {
    total += num_items(plan, params, span);
  }
  const std::int64_t wanted = num_threads == 1 ? 1 : kItemsPerThread * num_threads;
  if (total > 0 && total < wanted) {
    const std::int64_t pieces = std::min(plan.heads_per_item, (wanted + total - 1) / total);
    plan.heads_per_item = (plan.heads_per_item + pieces - 1) / pieces;
    plan.parts = (plan.heads_per_group + plan.heads_per_item - 1) / plan.heads_per_item;
  }
  return plan;
}

// One member's scratch memory, cut into arrays.
struct Buffers {
  std::int64_t dim_k = 0;  // padded to lanes
  std::int64_t dim_v = 0;
  std::int64_t num_queries = 0;
  float* keys = nullptr;    // [32, dim_k]
  float* values = nullptr;  // [32, dim_v]
  float* q = nullptr;       // [num_queries, dim_k]
  float* acc = nullptr;     // [num_queries, dim_v]
  float* scores = nullptr;  // [num_queries, 32]
  float* max = nullptr;
  float* sum = nullptr;
  std::uint32_t* visible = nullptr;
  std::int32_t* path = nullptr;  // [longest tree span]

  // Bytes needed; with `base` also places the arrays.
  std::size_t place(std::byte* base, std::int64_t max_tree_rows) {
    std::size_t used = 0;
    const auto take = [&](std::int64_t count) {
      std::byte* at = base == nullptr ? nullptr : base + used;
      used += static_cast<std::size_t>(round_up(count, kLanes)) * 4;
      return at;
    };
    keys = reinterpret_cast<float*>(take(kPageTokens * dim_k));
    values = reinterpret_cast<float*>(take(kPageTokens * dim_v));
    q = reinterpret_cast<float*>(take(num_queries * dim_k));
    acc = reinterpret_cast<float*>(take(num_queries * dim_v));
    scores = reinterpret_cast<float*>(take(num_queries * kPageTokens));
    max = reinterpret_cast<float*>(take(num_queries));
    sum = reinterpret_cast<float*>(take(num_queries));
    visible = reinterpret_cast<std::uint32_t*>(take(num_queries));
    path = reinterpret_cast<std::int32_t*>(take(max_tree_rows));
    return used;
  }
};

using Widen = void (*)(const void*, float*, std::int64_t);

void copy_f32(const void* src, float* dst, std::int64_t n) {
  std::memcpy(dst, src, static_cast<std::size_t>(n) * sizeof(float));
}

// The computation of one member for one item.
class Item {
 public:
  Item(const KvGeometry& geometry, const AttentionParams& params, const AttentionSpan& span,
       Buffers& buffers)
      : geometry_(geometry), params_(params), span_(span), buffers_(buffers) {
    const auto& convert = kernels::convert_table();
    widen_ = geometry.dtype == DType::kF32   ? &copy_f32
             : geometry.dtype == DType::kF16 ? convert.f16_to_f32
                                             : convert.bf16_to_f32;
  }

  // Rows [row_begin, row_end) of the span, query heads [head_begin, head_end) of kv head `kv_head`.
  void run(std::int64_t kv_head, std::int64_t head_begin, std::int64_t head_end,
           std::int64_t row_begin, std::int64_t row_end, const float* q, std::int64_t q_stride,
           float* out, std::int64_t out_stride) {
    key_offset_ = geometry_.key_offset(params_.layer, static_cast<std::int32_t>(kv_head));
    value_offset_ = geometry_.value_offset(params_.layer, static_cast<std::int32_t>(kv_head));
    num_heads_ = head_end - head_begin;
    const std::int64_t num_queries = (row_end - row_begin) * num_heads_;
    load_queries(q, q_stride, head_begin, row_begin, row_end);
    std::fill_n(buffers_.max, num_queries, -std::numeric_limits<float>::infinity());
    std::fill_n(buffers_.sum, num_queries, 0.0f);
    std::fill_n(buffers_.acc, num_queries * buffers_.dim_v, 0.0f);
    if (span_.parents == nullptr) {
      chain_tiles(row_begin, row_end);
    } else {
      tree_tiles(row_begin, row_end);
    }
    const auto& table = kernels::attention_tile_table();
    for (std::int64_t i = 0; i < num_queries; ++i) {
      const std::int64_t row = span_.first_row + row_begin + i / num_heads_;
      const std::int64_t head = head_begin + i % num_heads_;
      table.finish(buffers_.acc + i * buffers_.dim_v, buffers_.sum[i], params_.head_dim_v,
                   out + row * out_stride + head * params_.head_dim_v);
    }
  }

 private:
  void load_queries(const float* q, std::int64_t q_stride, std::int64_t head_begin,
                    std::int64_t row_begin, std::int64_t row_end) {
    float* to = buffers_.q;
    for (std::int64_t row = row_begin; row < row_end; ++row) {
      for (std::int64_t h = 0; h < num_heads_; ++h) {
        const float* from =
            q + (span_.first_row + row) * q_stride + (head_begin + h) * params_.head_dim_k;
        std::copy_n(from, params_.head_dim_k, to);
        std::fill(to + params_.head_dim_k, to + buffers_.dim_k, 0.0f);
        to += buffers_.dim_k;
      }
    }
  }

  // The first position that a row at `position` sees.
  std::int64_t first_visible(std::int64_t position) const {
    return params_.window > 0 ? std::max<std::int64_t>(0, position - params_.window + 1) : 0;
  }

  // The token in `slot` as key `key` of the tile, in float32, padded with zeros.
  void load_key(std::int64_t slot, std::int64_t key) {
    const std::byte* page = span_.pages[static_cast<std::size_t>(slot / kPageTokens)];
    const std::int64_t in_page = slot % kPageTokens;
    const std::int64_t element = element_bytes(geometry_.dtype);
    float* k = buffers_.keys + key * buffers_.dim_k;
    widen_(page + key_offset_ + in_page * geometry_.head_dim_k * element, k, geometry_.head_dim_k);
    std::fill(k + geometry_.head_dim_k, k + buffers_.dim_k, 0.0f);
    float* v = buffers_.values + key * buffers_.dim_v;
    widen_(page + value_offset_ + in_page * geometry_.head_dim_v * element, v,
           geometry_.head_dim_v);
    std::fill(v + geometry_.head_dim_v, v + buffers_.dim_v, 0.0f);
  }

  // Bits of the tile's positions in [first, last]; 0 when there are none.
  static std::uint32_t visible_bits(std::int64_t tile, std::int64_t first, std::int64_t last) {
    const std::int64_t low = std::max<std::int64_t>(first - tile * kPageTokens, 0);
    const std::int64_t high = std::min<std::int64_t>(last - tile * kPageTokens, kPageTokens - 1);
    if (low > high) {
      return 0;
    }
    return (~std::uint32_t{0} >> (kPageTokens - 1 - high)) & (~std::uint32_t{0} << low);
  }

  // The loaded tile against queries [query, query + count).
  void compute(std::int64_t query, std::int64_t count) {
    kernels::AttentionTileArgs args{};
    args.q = buffers_.q + query * buffers_.dim_k;
    args.q_stride = buffers_.dim_k;
    args.num_queries = count;
    args.k = buffers_.keys;
    args.k_stride = buffers_.dim_k;
    args.v = buffers_.values;
    args.v_stride = buffers_.dim_v;
    args.dim_k = buffers_.dim_k;
    args.dim_v = buffers_.dim_v;
    args.scale = params_.scale;
    args.softcap = params_.logit_softcap;
    args.visible = buffers_.visible + query;
    args.scores = buffers_.scores + query * kPageTokens;
    args.max = buffers_.max + query;
    args.sum = buffers_.sum + query;
    args.acc = buffers_.acc + query * buffers_.dim_v;
    args.acc_stride = buffers_.dim_v;
    kernels::attention_tile_table().tile(&args);
  }

  // Tiles [.., end_tile) whose positions are slots: row r of the block stands at position_of(r) and
  // sees nothing past it.
  template <typename PositionOf>
  void slot_tiles(std::int64_t row_begin, std::int64_t row_end, std::int64_t end_tile,
                  PositionOf&& position_of) {
    std::int64_t first = std::numeric_limits<std::int64_t>::max();
    for (std::int64_t row = row_begin; row < row_end; ++row) {
      first = std::min(first, first_visible(position_of(row)));
    }
    for (std::int64_t tile = first / kPageTokens; tile < end_tile; ++tile) {
      std::uint32_t any = 0;
      for (std::int64_t row = row_begin; row < row_end; ++row) {
        const std::int64_t position = position_of(row);
        const std::uint32_t bits = visible_bits(tile, first_visible(position), position);
        std::fill_n(buffers_.visible + (row - row_begin) * num_heads_, num_heads_, bits);
        any |= bits;
      }
      load_range(any, [&](std::int64_t key) { return tile * kPageTokens + key; });
      compute(0, (row_end - row_begin) * num_heads_);
    }
  }

  // Every key between the first and the last set bit: the kernel computes scores for all of them.
  template <typename SlotOf>
  void load_range(std::uint32_t bits, SlotOf&& slot_of) {
    if (bits == 0) {
      return;
    }
    const int last = 31 - __builtin_clz(bits);
    for (int key = __builtin_ctz(bits); key <= last; ++key) {
      load_key(slot_of(key), key);
    }
  }

  void chain_tiles(std::int64_t row_begin, std::int64_t row_end) {
    const std::int64_t last = span_.first_slot + row_end - 1;
    slot_tiles(row_begin, row_end, last / kPageTokens + 1,
               [&](std::int64_t row) { return span_.first_slot + row; });
  }

  // A tree row stands at position first_slot + depth. Tiles before the one of first_slot hold the
  // prefix only and are shared. From there on each row sees its own path: its keys are gathered at
  // the positions that they would have in a chain, so a path's results are those of plain decoding,
  // bit for bit.
  void tree_tiles(std::int64_t row_begin, std::int64_t row_end) {
    const std::int64_t first_own_tile = span_.first_slot / kPageTokens;
    slot_tiles(row_begin, row_end, first_own_tile, [&](std::int64_t row) {
      return span_.first_slot + depth(static_cast<std::int32_t>(row));
    });
    for (std::int64_t row = row_begin; row < row_end; ++row) {
      const std::int64_t row_depth = depth(static_cast<std::int32_t>(row));
      auto node = static_cast<std::int32_t>(row);
      for (std::int64_t d = row_depth; d >= 0; --d) {
        buffers_.path[d] = node;
        node = span_.parents[node];
      }
      const std::int64_t position = span_.first_slot + row_depth;
      const std::int64_t first = first_visible(position);
      const std::int64_t query = (row - row_begin) * num_heads_;
      for (std::int64_t tile = std::max(first_own_tile, first / kPageTokens);
           tile <= position / kPageTokens; ++tile) {
        const std::uint32_t bits = visible_bits(tile, first, position);
        std::fill_n(buffers_.visible + query, num_heads_, bits);
        load_range(bits, [&](std::int64_t key) {
          const std::int64_t at = tile * kPageTokens + key;
          return at < span_.first_slot ? at
                                       : span_.first_slot + buffers_.path[at - span_.first_slot];
        });
        compute(query, num_heads_);
      }
    }
  }

  std::int64_t depth(std::int32_t row) const {
    std::int64_t count = 0;
    for (std::int32_t node = span_.parents[row]; node >= 0; node = span_.parents[node]) {
      ++count;
    }
    return count;
  }

  const KvGeometry& geometry_;
  const AttentionParams& params_;
  const AttentionSpan& span_;
  Buffers& buffers_;
  Widen widen_ = nullptr;
  std::int64_t key_offset_ = 0;
  std::int64_t value_offset_ = 0;
  std::int64_t num_heads_ = 0;  // of the item
};

}  // namespace

void write_kv(Context& ctx, const KvGeometry& geometry, std::int32_t layer,
              std::span<const AttentionSpan> spans, const float* k, std::int64_t k_stride,
              const float* v, std::int64_t v_stride) {
  check_geometry(geometry, layer);
  TRINE_CHECK(k_stride >= std::int64_t{geometry.num_kv_heads} * geometry.head_dim_k);
  TRINE_CHECK(v_stride >= std::int64_t{geometry.num_kv_heads} * geometry.head_dim_v);
  std::int64_t total_rows = 0;
  for (const AttentionSpan& span : spans) {
    check_span(span);
    total_rows += span.num_rows;
  }
  const auto& convert = kernels::convert_table();
  const auto store = [&](const float* src, std::byte* dst, std::int64_t n) {
    if (geometry.dtype == DType::kF32) {
      std::memcpy(dst, src, static_cast<std::size_t>(n) * sizeof(float));
    } else if (geometry.dtype == DType::kF16) {
      convert.f32_to_f16(src, dst, n);
    } else {
      convert.f32_to_bf16(src, dst, n);
    }
  };
  const std::int64_t element = element_bytes(geometry.dtype);
  const auto write_row = [&](const AttentionSpan& span, std::int64_t i) {
    const std::int64_t slot = span.first_slot + i;
    std::byte* page = span.pages[static_cast<std::size_t>(slot / kPageTokens)];
    const std::int64_t in_page = slot % kPageTokens;
    const float* k_row = k + (span.first_row + i) * k_stride;
    const float* v_row = v + (span.first_row + i) * v_stride;
    for (std::int32_t g = 0; g < geometry.num_kv_heads; ++g) {
      store(k_row + std::int64_t{g} * geometry.head_dim_k,
            page + geometry.key_offset(layer, g) + in_page * geometry.head_dim_k * element,
            geometry.head_dim_k);
      store(v_row + std::int64_t{g} * geometry.head_dim_v,
            page + geometry.value_offset(layer, g) + in_page * geometry.head_dim_v * element,
            geometry.head_dim_v);
    }
  };
  const auto work = [&](int thread_idx, int num_threads) {
    std::int64_t base = 0;
    const auto [begin, end] = split_range(total_rows, 1, thread_idx, num_threads);
    for (const AttentionSpan& span : spans) {
      const std::int64_t first = std::max<std::int64_t>(begin - base, 0);
      const std::int64_t last = std::min<std::int64_t>(end - base, span.num_rows);
      for (std::int64_t i = first; i < last; ++i) {
        write_row(span, i);
      }
      base += span.num_rows;
    }
  };
  constexpr std::int64_t kMinParallelRows = 64;
  const int num_threads = ctx.team().num_threads();
  if (num_threads == 1 || total_rows < kMinParallelRows) {
    work(0, 1);
    return;
  }
  ctx.team().run([&](int thread_idx) { work(thread_idx, num_threads); });
}

void attention(Context& ctx, const KvGeometry& geometry, const AttentionParams& params,
               std::span<const AttentionSpan> spans, const float* q, std::int64_t q_stride,
               float* out, std::int64_t out_stride) {
  check_geometry(geometry, params.layer);
  TRINE_CHECK(params.num_kv_heads == geometry.num_kv_heads && params.num_heads > 0);
  TRINE_CHECK(params.num_heads % params.num_kv_heads == 0 && params.window >= 0);
  TRINE_CHECK(params.head_dim_k == geometry.head_dim_k && params.head_dim_v == geometry.head_dim_v);
  TRINE_CHECK(q_stride >= std::int64_t{params.num_heads} * params.head_dim_k);
  TRINE_CHECK(out_stride >= std::int64_t{params.num_heads} * params.head_dim_v);
  const int num_threads = ctx.team().num_threads();
  const Plan plan = make_plan(params, spans, num_threads);
  std::int64_t total = 0;
  std::int64_t max_tree_rows = 0;
  for (const AttentionSpan& span : spans) {
    check_span(span);
    total += num_items(plan, params, span);
    if (span.parents != nullptr) {
      max_tree_rows = std::max<std::int64_t>(max_tree_rows, span.num_rows);
    }
  }
  Buffers shape;
  shape.dim_k = round_up(params.head_dim_k, kLanes);
  shape.dim_v = round_up(params.head_dim_v, kLanes);
  shape.num_queries = plan.heads_per_item * plan.rows_per_item;
  ctx.reserve_scratch(shape.place(nullptr, max_tree_rows));

  // Items are taken in order by whoever is free; which member computes one does not change its
  // result.
  std::atomic<std::int64_t> next{0};
  ctx.team().run([&](int thread_idx) {
    Buffers buffers = shape;
    buffers.place(ctx.scratch(thread_idx), max_tree_rows);
    std::size_t span_idx = 0;
    std::int64_t base = 0;  // first item of the span
    for (std::int64_t id = next.fetch_add(1, std::memory_order_relaxed); id < total;
         id = next.fetch_add(1, std::memory_order_relaxed)) {
      std::int64_t count = num_items(plan, params, spans[span_idx]);
      while (id - base >= count) {
        base += count;
        ++span_idx;
        count = num_items(plan, params, spans[span_idx]);
      }
      const AttentionSpan& span = spans[span_idx];
      // Late rows see most keys: they come first, so that no long item is left for the end.
      const std::int64_t per_block = params.num_kv_heads * plan.parts;
      const std::int64_t block = count / per_block - 1 - (id - base) / per_block;
      const std::int64_t within = (id - base) % per_block;
      const std::int64_t kv_head = within / plan.parts;
      const std::int64_t first_in_group = within % plan.parts * plan.heads_per_item;
      const std::int64_t head = kv_head * plan.heads_per_group + first_in_group;
      const std::int64_t heads =
          std::min(plan.heads_per_item, plan.heads_per_group - first_in_group);
      const std::int64_t row = block * plan.rows_per_item;
      const std::int64_t rows = std::min(plan.rows_per_item, span.num_rows - row);
      Item(geometry, params, span, buffers)
          .run(kv_head, head, head + heads, row, row + rows, q, q_stride, out, out_stride);
    }
  });
}

}  // namespace trine::ops
