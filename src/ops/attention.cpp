#include "ops/attention.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "kernels/dispatch.h"
#include "kernels/tuning.h"

namespace trine::ops {
namespace {

static_assert(kernels::kAttentionTileKeys == kPageTokens);

using kernels::AttentionTile;
using kernels::kSegmentKeys;
using kernels::kSegmentTiles;

constexpr std::int64_t kLanes = 16;
// Queries that share a tile: enough to pay for reading it, few enough for the cache.
constexpr std::int64_t kMaxQueries = 64;
// Items per thread that let fast members take over from slow ones.
constexpr std::int64_t kItemsPerThread = 3;
// Tiles of the next segment that a kernel may fetch ahead.
constexpr std::int64_t kTilesComing = kSegmentTiles;
// Most memory for the states of segments that are computed apart.
constexpr std::int64_t kMaxStateBytes = std::int64_t{64} << 20;

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

kernels::KvElement kv_element(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return kernels::KvElement::kF16;
    case DType::kBF16:
      return kernels::KvElement::kBF16;
    default:
      return kernels::KvElement::kF32;
  }
}

// Softmax state of a block of queries.
struct State {
  float* max = nullptr;
  float* sum = nullptr;
  float* acc = nullptr;  // [queries, dim_v]

  static std::int64_t floats(std::int64_t queries, std::int64_t dim_v) {
    return 2 * round_up(queries, kLanes) + queries * dim_v;
  }

  static State at(float* memory, std::int64_t queries) {
    const std::int64_t lanes = round_up(queries, kLanes);
    return {memory, memory + lanes, memory + 2 * lanes};
  }
};

// How the step is cut into independent units: (span, kv head, part of its query heads, block of
// rows). With `split` each segment of a unit's context is an item of its own, else each unit is.
struct Plan {
  std::int64_t heads_per_group = 1;  // H / G
  std::int64_t heads_per_unit = 1;
  std::int64_t parts = 1;  // of a group
  std::int64_t rows_per_unit = 1;
  bool split = false;
};

// Segments [first, end) that the rows of a span see.
struct SegmentRange {
  std::int64_t first = 0;
  std::int64_t end = 0;

  std::int64_t count() const { return end - first; }
};

SegmentRange segments_of(const AttentionParams& params, const AttentionSpan& span) {
  const std::int64_t first =
      params.window > 0 ? std::max<std::int64_t>(0, span.first_slot - params.window + 1) : 0;
  const std::int64_t last = std::int64_t{span.first_slot} + std::max(span.num_rows, 1) - 1;
  return {first / kSegmentKeys, last / kSegmentKeys + 1};
}

std::int64_t num_units(const Plan& plan, const AttentionParams& params, const AttentionSpan& span) {
  const std::int64_t blocks = (span.num_rows + plan.rows_per_unit - 1) / plan.rows_per_unit;
  return params.num_kv_heads * plan.parts * blocks;
}

std::int64_t num_items(const Plan& plan, const AttentionParams& params, const AttentionSpan& span) {
  const std::int64_t units = num_units(plan, params, span);
  return plan.split ? units * segments_of(params, span).count() : units;
}

std::int64_t total_items(const Plan& plan, const AttentionParams& params,
                         std::span<const AttentionSpan> spans) {
  std::int64_t total = 0;
  for (const AttentionSpan& span : spans) {
    total += num_items(plan, params, span);
  }
  return total;
}

Plan make_plan(const AttentionParams& params, std::span<const AttentionSpan> spans,
               std::int64_t dim_v, int num_threads) {
  Plan plan;
  plan.heads_per_group = params.num_heads / params.num_kv_heads;
  plan.heads_per_unit = std::min(plan.heads_per_group, kMaxQueries);
  plan.parts = (plan.heads_per_group + plan.heads_per_unit - 1) / plan.heads_per_unit;
  plan.rows_per_unit = std::max<std::int64_t>(1, kMaxQueries / plan.heads_per_unit);
  const std::int64_t wanted = num_threads == 1 ? 1 : kItemsPerThread * num_threads;
  const std::int64_t whole = total_items(plan, params, spans);
  if (whole == 0 || whole >= wanted) {
    return plan;
  }
  // Too few units for the team: split the context, which costs no second read of it; a context of
  // one segment is short enough to be read by several members, each for some of the heads.
  plan.split = true;
  const std::int64_t split = total_items(plan, params, spans);
  const std::int64_t queries = plan.heads_per_unit * plan.rows_per_unit;
  plan.split = split > whole && split * State::floats(queries, dim_v) * 4 <= kMaxStateBytes;
  const std::int64_t items = plan.split ? split : whole;
  if (items < wanted) {
    const std::int64_t pieces = std::min(plan.heads_per_unit, (wanted + items - 1) / items);
    plan.heads_per_unit = (plan.heads_per_unit + pieces - 1) / pieces;
    plan.parts = (plan.heads_per_group + plan.heads_per_unit - 1) / plan.heads_per_unit;
  }
  return plan;
}

// One member's scratch memory, cut into arrays.
struct Buffers {
  std::int64_t dim_k = 0;  // of a query's row, padded to lanes
  std::int64_t dim_v = 0;
  std::int64_t num_queries = 0;
  std::int64_t tree_rows = 0;  // of the longest tree span, 0 without trees
  std::int64_t key_bytes = 0;  // of a page's block
  std::int64_t value_bytes = 0;
  bool codes = false;           // the cache holds eight-bit codes
  std::int64_t head_dim_k = 0;  // without padding
  float* q = nullptr;           // [num_queries, dim_k]
  std::byte* q_rows = nullptr;  // with codes [num_queries, query_row_bytes(head_dim_k)]
  float* scores = nullptr;      // [num_queries, kSegmentKeys]
  float* total = nullptr;       // State of the queries
  float* segment = nullptr;
  std::uint32_t* visible = nullptr;  // [kSegmentTiles, num_queries]
  std::int32_t* path = nullptr;      // [tree_rows]
  std::byte* keys = nullptr;         // [kSegmentTiles] blocks of a tree's path
  std::byte* values = nullptr;

  // Bytes needed; with `base` also places the arrays.
  std::size_t place(std::byte* base) {
    std::size_t used = 0;
    const auto take = [&](std::int64_t bytes) {
      std::byte* at = base == nullptr ? nullptr : base + used;
      used += static_cast<std::size_t>(round_up(bytes, 64));
      return at;
    };
    q = reinterpret_cast<float*>(take(num_queries * dim_k * 4));
    q_rows = take(codes ? num_queries * kernels::query_row_bytes(head_dim_k) : 0);
    scores = reinterpret_cast<float*>(take(num_queries * kSegmentKeys * 4));
    total = reinterpret_cast<float*>(take(State::floats(num_queries, dim_v) * 4));
    segment = reinterpret_cast<float*>(take(State::floats(num_queries, dim_v) * 4));
    visible = reinterpret_cast<std::uint32_t*>(take(kSegmentTiles * num_queries * 4));
    path = reinterpret_cast<std::int32_t*>(take(tree_rows * 4));
    const std::int64_t tree_tiles = tree_rows > 0 ? kSegmentTiles : 0;
    keys = take(tree_tiles * key_bytes);
    values = take(tree_tiles * value_bytes);
    return used;
  }
};

// A unit's computation by one member.
class Unit {
 public:
  Unit(const KvGeometry& geometry, const AttentionParams& params, const AttentionSpan& span,
       Buffers& buffers)
      : geometry_(geometry), params_(params), span_(span), buffers_(buffers) {}

  // Rows [row_begin, row_end) of the span, query heads [head_begin, head_end) of kv head `kv_head`.
  void select(std::int64_t kv_head, std::int64_t head_begin, std::int64_t head_end,
              std::int64_t row_begin, std::int64_t row_end) {
    key_offset_ = geometry_.key_offset(params_.layer, static_cast<std::int32_t>(kv_head));
    value_offset_ = geometry_.value_offset(params_.layer, static_cast<std::int32_t>(kv_head));
    head_begin_ = head_begin;
    num_heads_ = head_end - head_begin;
    row_begin_ = row_begin;
    row_end_ = row_end;
  }

  std::int64_t num_queries() const { return (row_end_ - row_begin_) * num_heads_; }

  void load_queries(const float* q, std::int64_t q_stride) {
    float* to = buffers_.q;
    for (std::int64_t row = row_begin_; row < row_end_; ++row) {
      for (std::int64_t h = 0; h < num_heads_; ++h) {
        const float* from =
            q + (span_.first_row + row) * q_stride + (head_begin_ + h) * params_.head_dim_k;
        std::copy_n(from, params_.head_dim_k, to);
        to += buffers_.dim_k;
      }
    }
    if (buffers_.codes) {
      kernels::attention_i8_table().quantize_queries(
          buffers_.q, buffers_.dim_k, num_queries(), params_.head_dim_k,
          reinterpret_cast<unsigned char*>(buffers_.q_rows));
    }
  }

  // The state of the unit's queries after segment `segment` alone.
  void run_segment(std::int64_t segment, const State& state) {
    const bool shared = span_.parents == nullptr || segment < span_.first_slot / kSegmentKeys;
    if (shared) {
      run_rows(segment, row_begin_, row_end_, state);
      return;
    }
    // From here each row of a tree sees its own path: its keys stand at the positions that they
    // would have in a chain, so a path's results are those of plain decoding, bit for bit.
    for (std::int64_t row = row_begin_; row < row_end_; ++row) {
      follow_path(static_cast<std::int32_t>(row));
      run_rows(segment, row, row + 1, state);
    }
  }

  void merge(const State& total, const State& next) const {
    const auto& table = kernels::attention_table();
    for (std::int64_t i = 0; i < num_queries(); ++i) {
      table.merge(total.max + i, total.sum + i, total.acc + i * buffers_.dim_v, next.max[i],
                  next.sum[i], next.acc + i * buffers_.dim_v, buffers_.dim_v);
    }
  }

  void finish(const State& total, float* out, std::int64_t out_stride) const {
    for (std::int64_t i = 0; i < num_queries(); ++i) {
      const std::int64_t row = span_.first_row + row_begin_ + i / num_heads_;
      const std::int64_t head = head_begin_ + i % num_heads_;
      kernels::attention_table().finish(total.acc + i * buffers_.dim_v, total.sum[i],
                                        params_.head_dim_v,
                                        out + row * out_stride + head * params_.head_dim_v);
    }
  }

 private:
  // The first position that a row at `position` sees.
  std::int64_t first_visible(std::int64_t position) const {
    return params_.window > 0 ? std::max<std::int64_t>(0, position - params_.window + 1) : 0;
  }

  std::int64_t position_of(std::int64_t row) const {
    return span_.first_slot +
           (span_.parents == nullptr ? row : depth(static_cast<std::int32_t>(row)));
  }

  std::int64_t depth(std::int32_t row) const {
    std::int64_t count = 0;
    for (std::int32_t node = span_.parents[row]; node >= 0; node = span_.parents[node]) {
      ++count;
    }
    return count;
  }

  void follow_path(std::int32_t row) {
    auto node = row;
    for (std::int64_t d = depth(row); d >= 0; --d) {
      buffers_.path[d] = node;
      node = span_.parents[node];
    }
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

  AttentionTile page_tile(std::int64_t tile) const {
    const std::byte* page = span_.pages[static_cast<std::size_t>(tile)];
    return {page + key_offset_, page + value_offset_};
  }

  // The tile of positions from 32 * tile of the followed path, whose last position is `last`: built
  // in scratch block `idx` where nodes of the tree are in it.
  AttentionTile path_tile(std::int64_t tile, std::int64_t last, std::int64_t idx) {
    if ((tile + 1) * kPageTokens <= span_.first_slot) {
      return page_tile(tile);
    }
    std::byte* keys = buffers_.keys + idx * buffers_.key_bytes;
    std::byte* values = buffers_.values + idx * buffers_.value_bytes;
    const std::int64_t end = std::min(last + 1, (tile + 1) * kPageTokens);
    for (std::int64_t at = tile * kPageTokens; at < end; ++at) {
      const std::int64_t slot =
          at < span_.first_slot ? at : span_.first_slot + buffers_.path[at - span_.first_slot];
      const std::byte* page = span_.pages[static_cast<std::size_t>(slot / kPageTokens)];
      copy_token(page, slot % kPageTokens, keys, values, at % kPageTokens);
    }
    return {keys, values};
  }

  void copy_token(const std::byte* page, std::int64_t from, std::byte* keys, std::byte* values,
                  std::int64_t to) const {
    const KvGeometry& g = geometry_;
    const auto element = static_cast<std::size_t>(g.element_bytes());
    const auto scale = static_cast<std::size_t>(g.scale_bytes());
    const std::byte* k = page + key_offset_;
    const std::byte* v = page + value_offset_;
    for (std::int64_t d = 0; d < g.padded_dim_k(); ++d) {
      std::memcpy(keys + g.key_element(to, d), k + g.key_element(from, d), element);
    }
    std::memcpy(keys + g.key_scale(to), k + g.key_scale(from), scale);
    for (std::int64_t d = 0; d < g.padded_dim_v(); ++d) {
      std::memcpy(values + g.value_element(to, d), v + g.value_element(from, d), element);
    }
    std::memcpy(values + g.value_scale(to), v + g.value_scale(from), scale);
  }

  // Segment `segment` against rows [row_begin, row_end) of the unit; several rows of a tree only
  // where all of them see the same tokens of a tile.
  void run_rows(std::int64_t segment, std::int64_t row_begin, std::int64_t row_end,
                const State& state) {
    const std::int64_t query = (row_begin - row_begin_) * num_heads_;
    const std::int64_t count = (row_end - row_begin) * num_heads_;
    std::int64_t first = std::numeric_limits<std::int64_t>::max();
    std::int64_t last = 0;
    for (std::int64_t row = row_begin; row < row_end; ++row) {
      const std::int64_t position = position_of(row);
      first = std::min(first, first_visible(position));
      last = std::max(last, position);
    }
    const std::int64_t begin = std::max(segment * kSegmentTiles, first / kPageTokens);
    const std::int64_t end = std::min((segment + 1) * kSegmentTiles, last / kPageTokens + 1);
    if (begin >= end) {
      std::fill_n(state.sum + query, count, 0.0f);  // merge() reads nothing else
      return;
    }
    const bool path = span_.parents != nullptr && row_end - row_begin == 1;
    std::array<AttentionTile, kSegmentTiles + kTilesComing> tiles;
    std::int64_t known = 0;
    for (std::int64_t tile = begin; tile < end; ++tile, ++known) {
      tiles[static_cast<std::size_t>(known)] =
          path ? path_tile(tile, last, tile - begin) : page_tile(tile);
    }
    const std::int64_t in_segment = known;
    const std::int64_t coming =
        span_.parents == nullptr ? std::min(last / kPageTokens + 1, end + kTilesComing) : end;
    for (std::int64_t tile = end; tile < coming; ++tile, ++known) {
      tiles[static_cast<std::size_t>(known)] = page_tile(tile);
    }
    for (std::int64_t tile = begin; tile < end; ++tile) {
      std::uint32_t* visible = buffers_.visible + (tile - begin) * count;
      for (std::int64_t row = row_begin; row < row_end; ++row) {
        const std::int64_t position = position_of(row);
        std::fill_n(visible + (row - row_begin) * num_heads_, num_heads_,
                    visible_bits(tile, first_visible(position), position));
      }
    }
    kernels::AttentionSegmentArgs args{};
    args.q = buffers_.q + query * buffers_.dim_k;
    args.q_stride = buffers_.dim_k;
    if (buffers_.codes) {
      args.q_rows = reinterpret_cast<const unsigned char*>(buffers_.q_rows) +
                    query * kernels::query_row_bytes(params_.head_dim_k);
    }
    args.num_queries = count;
    args.tiles = tiles.data();
    args.num_tiles = static_cast<int>(in_segment);
    args.tiles_coming = static_cast<int>(known - in_segment);
    args.dim_k = params_.head_dim_k;
    args.dim_v = buffers_.dim_v;
    args.scale = params_.scale;
    args.softcap = params_.logit_softcap;
    args.prefetch_bytes = kernels::tuning(isa_level()).kv_prefetch_bytes;
    args.visible = buffers_.visible;
    args.scores = buffers_.scores;
    args.max = state.max + query;
    args.sum = state.sum + query;
    args.acc = state.acc + query * buffers_.dim_v;
    args.acc_stride = buffers_.dim_v;
    if (buffers_.codes) {
      kernels::attention_i8_table().segment(&args);
    } else {
      kernels::attention_table().segment[static_cast<std::size_t>(kv_element(geometry_.dtype))](
          &args);
    }
  }

  const KvGeometry& geometry_;
  const AttentionParams& params_;
  const AttentionSpan& span_;
  Buffers& buffers_;
  std::int64_t key_offset_ = 0;
  std::int64_t value_offset_ = 0;
  std::int64_t head_begin_ = 0;
  std::int64_t num_heads_ = 0;
  std::int64_t row_begin_ = 0;
  std::int64_t row_end_ = 0;
};

// One call of attention(): its plan and what the members share.
class Step {
 public:
  Step(Context& ctx, const KvGeometry& geometry, const AttentionParams& params,
       std::span<const AttentionSpan> spans)
      : geometry_(geometry), params_(params), spans_(spans) {
    shape_.dim_k = round_up(params.head_dim_k, kLanes);
    shape_.dim_v = geometry.padded_dim_v();
    shape_.codes = geometry.dtype == DType::kI8;
    shape_.head_dim_k = params.head_dim_k;
    shape_.key_bytes = geometry.key_block_bytes();
    shape_.value_bytes = geometry.value_block_bytes();
    for (const AttentionSpan& span : spans) {
      check_span(span);
      if (span.parents != nullptr) {
        shape_.tree_rows = std::max<std::int64_t>(shape_.tree_rows, span.num_rows);
      }
    }
    plan_ = make_plan(params, spans, shape_.dim_v, ctx.team().num_threads());
    total_ = total_items(plan_, params, spans);
    shape_.num_queries = plan_.heads_per_unit * plan_.rows_per_unit;
    ctx.reserve_scratch(shape_.place(nullptr));
    if (plan_.split) {
      state_floats_ = round_up(State::floats(shape_.num_queries, shape_.dim_v), kLanes);
      const std::int64_t counters = round_up(total_ * 4, 64);
      std::byte* memory =
          ctx.shared_scratch(static_cast<std::size_t>(counters + total_ * state_floats_ * 4));
      segments_done_ = reinterpret_cast<std::int32_t*>(memory);
      std::fill_n(segments_done_, total_, 0);
      states_ = reinterpret_cast<float*>(memory + counters);
    }
  }

  void run(Context& ctx, const float* q, std::int64_t q_stride, float* out,
           std::int64_t out_stride) {
    // Which member computes an item does not change its result. Whole units are taken in order, the
    // longest first; segments in one stream for each member, so that what a kernel fetches ahead is
    // what the same member computes next.
    std::atomic<std::int64_t> next_unit{0};
    TurnQueue& segments_queue = ctx.turns();
    if (plan_.split) {
      segments_queue.start(total_);
    }
    ctx.team().run([&](int thread_idx) {
      Buffers buffers = shape_;
      buffers.place(ctx.scratch(thread_idx));
      Place place;
      if (!plan_.split) {
        for (std::int64_t id = next_unit.fetch_add(1, std::memory_order_relaxed); id < total_;
             id = next_unit.fetch_add(1, std::memory_order_relaxed)) {
          const Item item = item_of(id, place);
          Unit unit = unit_of(item, buffers);
          unit.load_queries(q, q_stride);
          run_whole(unit, segments_of(params_, *item.span), buffers, out, out_stride);
        }
        return;
      }
      std::int64_t loaded = -1;  // first item of the unit whose queries are in the buffers
      for (std::int64_t id = segments_queue.next(thread_idx); id >= 0;
           id = segments_queue.next(thread_idx)) {
        const Item item = item_of(id, place);
        Unit unit = unit_of(item, buffers);
        if (const std::int64_t first = id - item.segment; first != loaded) {
          unit.load_queries(q, q_stride);
          loaded = first;
        }
        run_item(unit, segments_of(params_, *item.span), id - item.segment, item.segment, out,
                 out_stride);
      }
    });
  }

 private:
  struct Item {
    const AttentionSpan* span = nullptr;
    std::int64_t unit = 0;     // of the span
    std::int64_t segment = 0;  // of the unit's range; 0 when it is not split
  };

  // Where a member is in the list of spans: its next item is rarely in another one.
  struct Place {
    std::size_t span = 0;
    std::int64_t first_item = 0;  // of the span
  };

  Item item_of(std::int64_t id, Place& place) const {
    if (id < place.first_item) {
      place = {};
    }
    std::int64_t count = num_items(plan_, params_, spans_[place.span]);
    while (id - place.first_item >= count) {
      place.first_item += count;
      count = num_items(plan_, params_, spans_[++place.span]);
    }
    const AttentionSpan& span = spans_[place.span];
    const std::int64_t per_unit = plan_.split ? segments_of(params_, span).count() : 1;
    return {&span, (id - place.first_item) / per_unit, (id - place.first_item) % per_unit};
  }

  Unit unit_of(const Item& item, Buffers& buffers) const {
    Unit unit(geometry_, params_, *item.span, buffers);
    select(unit, *item.span, item.unit);
    return unit;
  }

  void select(Unit& unit, const AttentionSpan& span, std::int64_t unit_idx) const {
    // Late rows see most keys: they come first, so that no long item is left for the end.
    const std::int64_t per_block = params_.num_kv_heads * plan_.parts;
    const std::int64_t blocks = num_units(plan_, params_, span) / per_block;
    const std::int64_t block = blocks - 1 - unit_idx / per_block;
    const std::int64_t within = unit_idx % per_block;
    const std::int64_t kv_head = within / plan_.parts;
    const std::int64_t first_in_group = within % plan_.parts * plan_.heads_per_unit;
    const std::int64_t head = kv_head * plan_.heads_per_group + first_in_group;
    const std::int64_t heads =
        std::min(plan_.heads_per_unit, plan_.heads_per_group - first_in_group);
    const std::int64_t row = block * plan_.rows_per_unit;
    const std::int64_t rows = std::min(plan_.rows_per_unit, span.num_rows - row);
    unit.select(kv_head, head, head + heads, row, row + rows);
  }

  void run_whole(Unit& unit, const SegmentRange& segments, Buffers& buffers, float* out,
                 std::int64_t out_stride) const {
    const State total = State::at(buffers.total, buffers.num_queries);
    const State segment = State::at(buffers.segment, buffers.num_queries);
    std::fill_n(total.sum, unit.num_queries(), 0.0f);
    for (std::int64_t s = segments.first; s < segments.end; ++s) {
      unit.run_segment(s, segment);
      unit.merge(total, segment);
    }
    unit.finish(total, out, out_stride);
  }

  // Segment `idx` of the unit whose items begin at `first_item`. Whoever completes the unit merges
  // its segments, in their order.
  void run_item(Unit& unit, const SegmentRange& segments, std::int64_t first_item, std::int64_t idx,
                float* out, std::int64_t out_stride) const {
    const auto state_of = [&](std::int64_t i) {
      return State::at(states_ + (first_item + i) * state_floats_, shape_.num_queries);
    };
    unit.run_segment(segments.first + idx, state_of(idx));
    std::atomic_ref<std::int32_t> done(segments_done_[first_item]);
    if (done.fetch_add(1, std::memory_order_acq_rel) + 1 < segments.count()) {
      return;
    }
    const State total = state_of(0);
    for (std::int64_t i = 1; i < segments.count(); ++i) {
      unit.merge(total, state_of(i));
    }
    unit.finish(total, out, out_stride);
  }

  const KvGeometry& geometry_;
  const AttentionParams& params_;
  std::span<const AttentionSpan> spans_;
  Plan plan_;
  Buffers shape_;
  std::int64_t total_ = 0;
  std::int64_t state_floats_ = 0;
  std::int32_t* segments_done_ = nullptr;
  float* states_ = nullptr;
};

}  // namespace

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

void attention(Context& ctx, const KvGeometry& geometry, const AttentionParams& params,
               std::span<const AttentionSpan> spans, const float* q, std::int64_t q_stride,
               float* out, std::int64_t out_stride) {
  TRINE_CHECK(geometry.element_bytes() > 0);
  TRINE_CHECK(params.layer >= 0 && params.layer < geometry.num_layers);
  TRINE_CHECK(params.num_kv_heads == geometry.num_kv_heads && params.num_heads > 0);
  TRINE_CHECK(params.num_heads % params.num_kv_heads == 0 && params.window >= 0);
  TRINE_CHECK(params.head_dim_k == geometry.head_dim_k && params.head_dim_v == geometry.head_dim_v);
  TRINE_CHECK(q_stride >= std::int64_t{params.num_heads} * params.head_dim_k);
  TRINE_CHECK(out_stride >= std::int64_t{params.num_heads} * params.head_dim_v);
  Step(ctx, geometry, params, spans).run(ctx, q, q_stride, out, out_stride);
}

}  // namespace trine::ops
