#include "apps/trine/bench_attention.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <memory>
#include <span>

#include "apps/trine/bench_limits.h"
#include "apps/trine/interrupt.h"
#include "apps/trine/statistics.h"
#include "kv/kv_cache.h"
#include "ops/attention.h"

namespace trine::app {
namespace {

constexpr std::int32_t kMaxHeads = 256;
constexpr std::int32_t kMaxHeadDim = 512;
constexpr std::int64_t kMaxLayers = 128;

// Keys and values of one type, and one sequence that fills them.
struct Cache {
  KvGeometry geometry;
  std::unique_ptr<PagePool> pool;
  std::unique_ptr<KvSequence> sequence;
};

Result<Cache> make_cache(const AttentionShape& shape, DType kv_dtype, std::int64_t tokens,
                         std::int64_t bytes) {
  Cache out;
  out.geometry = {.num_layers = 1,
                  .num_kv_heads = shape.num_kv_heads,
                  .head_dim_k = shape.head_dim,
                  .head_dim_v = shape.head_dim,
                  .dtype = kv_dtype};
  const std::int64_t layer_bytes =
      std::max<std::int64_t>(out.geometry.bytes_per_token() * tokens, 1);
  out.geometry.num_layers =
      static_cast<std::int32_t>(std::clamp<std::int64_t>(bytes / layer_bytes, 1, kMaxLayers));
  TRINE_TRY_ASSIGN(out.pool,
                   PagePool::create(out.geometry, static_cast<std::int32_t>(
                                                      (tokens + kPageTokens - 1) / kPageTokens)));
  out.sequence = std::make_unique<KvSequence>(*out.pool);
  TRINE_TRY(out.sequence->reserve(static_cast<std::int32_t>(tokens)));
  for (std::byte* page : out.sequence->page_data()) {
    std::memset(page, 0x11, static_cast<std::size_t>(out.geometry.page_bytes()));
  }
  return out;
}

// One pass over every layer of a cache, in seconds.
class Pass {
 public:
  Pass(ThreadTeam& team, const AttentionShape& shape, std::int64_t rows, std::int64_t depth)
      : ctx_(team), shape_(shape), rows_(rows), depth_(depth) {
    const std::size_t count = static_cast<std::size_t>(rows) *
                              static_cast<std::size_t>(shape.num_heads) *
                              static_cast<std::size_t>(shape.head_dim);
    q_.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      q_[i] = 0.01F * static_cast<float>(i % 97 + 1);
    }
    out_.resize(count);
  }

  double seconds(const Cache& cache) {
    ops::AttentionSpan span;
    span.pages = cache.sequence->page_data();
    span.first_slot = static_cast<std::int32_t>(depth_);
    span.num_rows = static_cast<std::int32_t>(rows_);
    ops::AttentionParams params;
    params.num_heads = shape_.num_heads;
    params.num_kv_heads = shape_.num_kv_heads;
    params.head_dim_k = shape_.head_dim;
    params.head_dim_v = shape_.head_dim;
    params.scale = 1.0F / std::sqrt(static_cast<float>(shape_.head_dim));
    const std::int64_t stride = std::int64_t{shape_.num_heads} * shape_.head_dim;
    const Stopwatch watch;
    for (params.layer = 0; params.layer < cache.geometry.num_layers; ++params.layer) {
      ops::attention(ctx_, cache.geometry, params, std::span<const ops::AttentionSpan>(&span, 1),
                     q_.data(), stride, out_.data(), stride);
    }
    return watch.seconds();
  }

 private:
  ops::Context ctx_;
  AttentionShape shape_;
  std::int64_t rows_;
  std::int64_t depth_;
  std::vector<float> q_;
  std::vector<float> out_;
};

struct Samples {
  std::vector<double> seconds;
  std::vector<double> shares;
};

}  // namespace

std::string AttentionShape::text() const {
  return fmt::format("{}/{}x{}", num_heads, num_kv_heads, head_dim);
}

Result<AttentionShape> parse_attention_shape(const std::string& text) {
  AttentionShape out;
  const char* at = text.data();
  const char* const end = text.data() + text.size();
  const auto number = [&](char before, std::int32_t& value) {
    if (before != '\0' && (at == end || *at++ != before)) {
      return false;
    }
    const auto [next, error] = std::from_chars(at, end, value);
    at = next;
    return error == std::errc();
  };
  const bool read = number('\0', out.num_heads) && number('/', out.num_kv_heads) &&
                    number('x', out.head_dim) && at == end;
  if (!read || out.num_kv_heads < 1 || out.num_heads < out.num_kv_heads ||
      out.num_heads > kMaxHeads || out.num_heads % out.num_kv_heads != 0 || out.head_dim < 1 ||
      out.head_dim > kMaxHeadDim) {
    return fail(ErrorCode::kInvalidArgument,
                "--heads {}: give H/GxD, as in 32/8x128: H query heads (up to {}) in G groups that "
                "divide them, D dimensions (up to {})",
                text, kMaxHeads, kMaxHeadDim);
  }
  return out;
}

Result<AttentionReport> bench_attention(ThreadTeam& team, const AttentionBenchOptions& options) {
  AttentionReport report;
  Limits limits(team);
  TRINE_TRY_ASSIGN(HugeBuffer plain, HugeBuffer::allocate(static_cast<std::size_t>(options.bytes)));
  std::memset(plain.data(), 1, plain.size());
  warn_if_cached(options.bytes);
  limits.choose_setting(plain);
  std::vector<double> all_reads;
  const std::int64_t max_rows = *std::max_element(options.rows.begin(), options.rows.end());
  for (const AttentionShape& shape : options.shapes) {
    std::vector<Cache> caches;
    for (const DType dtype : options.kv_dtypes) {
      TRINE_TRY_ASSIGN(Cache cache,
                       make_cache(shape, dtype, options.depth + max_rows, options.bytes));
      caches.push_back(std::move(cache));
    }
    for (const std::int64_t rows : options.rows) {
      Pass pass(team, shape, rows, options.depth);
      std::vector<Samples> samples(caches.size());
      const auto bytes = [&](const Cache& cache) {
        return static_cast<double>(cache.geometry.bytes_per_token()) *
               static_cast<double>(options.depth + rows);
      };
      for (const Cache& cache : caches) {
        pass.seconds(cache);  // grows the buffers
      }
      for (int r = 0; r < options.repeats; ++r) {
        for (std::size_t i = 0; i < caches.size(); ++i) {
          if (interrupted()) {
            return fail(ErrorCode::kCancelled, "interrupted");
          }
          all_reads.push_back(limits.read(plain));
          const double seconds = pass.seconds(caches[i]);
          samples[i].seconds.push_back(seconds);
          samples[i].shares.push_back(bytes(caches[i]) / seconds / 1e9 / all_reads.back());
        }
      }
      // A row sees the tokens before the span and those of the span up to itself.
      const double seen = static_cast<double>(rows) * (static_cast<double>(options.depth) +
                                                       0.5 * static_cast<double>(rows + 1));
      const double flops = seen * shape.num_heads * shape.head_dim * 4;
      for (std::size_t i = 0; i < caches.size(); ++i) {
        const double layers = caches[i].geometry.num_layers;
        const double seconds = median(samples[i].seconds);
        report.rows.push_back({shape, options.kv_dtypes[i], rows, seconds / layers * 1e6,
                               bytes(caches[i]) / seconds / 1e9, 100 * median(samples[i].shares),
                               flops * layers / seconds / 1e9});
      }
    }
  }
  report.read_gbps = median(all_reads);
  return report;
}

}  // namespace trine::app
