// linear() and attention() on shapes of real models, as GFLOPS and GB/s next to the machine's FMA
// rate in the same run. TRINE_ISA chooses the instruction-set level, --benchmark_filter the case;
// the thread count is an argument.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "kv/kv_cache.h"
#include "ops/attention.h"
#include "ops/ops.h"
#include "platform/cpu.h"
#include "platform/thread_team.h"

namespace trine {
namespace {

ThreadTeam& team_of(int num_threads) {
  static std::vector<std::unique_ptr<ThreadTeam>> teams(65);
  auto& team = teams[static_cast<std::size_t>(num_threads)];
  if (team == nullptr) {
    auto made = ThreadTeam::create(num_threads);
    if (!made.has_value()) {
      std::fprintf(stderr, "bench_ops: %s\n", made.error().message.c_str());
      std::exit(exit_status(made.error().code));
    }
    team = std::move(made).value();
  }
  return *team;
}

// Small values without zeros or subnormals; the speed does not depend on them.
std::vector<float> values(std::int64_t count) {
  std::vector<float> out(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = 0.01f * static_cast<float>(i % 97 + 1);
  }
  return out;
}

// A dot product of rows that fit the first-level cache: what the linear kernel reaches when nothing
// is in its way.
void BM_CacheResidentLinear(benchmark::State& state) {
  ops::Context ctx(team_of(static_cast<int>(state.range(0))));
  const std::int64_t n = 16 * state.range(0);
  const std::int64_t k = 256;
  const std::int64_t m = 96;
  const auto w = values(n * k);
  const auto x = values(m * k);
  std::vector<float> y(static_cast<std::size_t>(m * n));
  const ops::WeightView view{DType::kF32, n, k, reinterpret_cast<const std::byte*>(w.data()),
                             4 * k};
  for (auto _ : state) {
    ops::linear(ctx, view, nullptr, x.data(), k, m, y.data(), n);
    benchmark::ClobberMemory();
  }
  state.counters["GFLOPS"] = benchmark::Counter(static_cast<double>(2 * m * n * k),
                                                benchmark::Counter::kIsIterationInvariantRate,
                                                benchmark::Counter::kIs1000);
}

// Arguments: threads, dtype (DType), N, K, rows.
void BM_Linear(benchmark::State& state) {
  ops::Context ctx(team_of(static_cast<int>(state.range(0))));
  const auto dtype = static_cast<DType>(state.range(1));
  const std::int64_t n = state.range(2);
  const std::int64_t k = state.range(3);
  const std::int64_t m = state.range(4);
  const std::int64_t row_bytes = dtype_row_bytes(dtype, k).value();
  // Zero blocks decode to zero for every type; only the float types get values.
  std::vector<std::byte> bytes(static_cast<std::size_t>(n * row_bytes), std::byte{0});
  const auto x = values(m * k);
  std::vector<float> y(static_cast<std::size_t>(m * n));
  const ops::WeightView view{dtype, n, k, bytes.data(), row_bytes};
  for (auto _ : state) {
    ops::linear(ctx, view, nullptr, x.data(), k, m, y.data(), n);
    benchmark::ClobberMemory();
  }
  state.SetLabel(std::string(dtype_info(dtype).name));
  state.counters["GFLOPS"] = benchmark::Counter(static_cast<double>(2 * m * n * k),
                                                benchmark::Counter::kIsIterationInvariantRate,
                                                benchmark::Counter::kIs1000);
  state.counters["weights/s"] = benchmark::Counter(static_cast<double>(n * row_bytes),
                                                   benchmark::Counter::kIsIterationInvariantRate,
                                                   benchmark::Counter::kIs1000);
}

// Arguments: threads, dtype of the pages, context, new rows. The heads of a 1.1B model: 32 query, 4
// kv, 64 wide, 22 layers computed in turn, so that a long context comes from memory.
void BM_Attention(benchmark::State& state) {
  ops::Context ctx(team_of(static_cast<int>(state.range(0))));
  const KvGeometry geometry{.num_layers = 22,
                            .num_kv_heads = 4,
                            .head_dim_k = 64,
                            .head_dim_v = 64,
                            .dtype = static_cast<DType>(state.range(1))};
  const auto context = static_cast<std::int32_t>(state.range(2));
  const auto rows = static_cast<std::int32_t>(state.range(3));
  const auto pool = std::move(PagePool::create(geometry, (context + rows + 31) / 32)).value();
  KvSequence sequence(*pool);
  if (!sequence.reserve(context + rows).has_value()) {
    state.SkipWithError("no memory for the pages");
    return;
  }
  for (std::byte* page : sequence.page_data()) {
    std::memset(page, 0x11, static_cast<std::size_t>(geometry.page_bytes()));
  }
  ops::AttentionSpan span;
  span.pages = sequence.page_data();
  span.first_slot = context;
  span.num_rows = rows;
  ops::AttentionParams params;
  params.num_heads = 32;
  params.num_kv_heads = 4;
  params.head_dim_k = 64;
  params.head_dim_v = 64;
  params.scale = 0.125f;
  const auto q = values(std::int64_t{rows} * 32 * 64);
  std::vector<float> out(q.size());
  for (auto _ : state) {
    ops::attention(ctx, geometry, params, std::span<const ops::AttentionSpan>(&span, 1), q.data(),
                   32 * 64, out.data(), 32 * 64);
    params.layer = (params.layer + 1) % geometry.num_layers;
    benchmark::ClobberMemory();
  }
  const double seen = static_cast<double>(rows) * (static_cast<double>(context) + 0.5 * (rows + 1));
  state.SetLabel(std::string(dtype_info(geometry.dtype).name));
  state.counters["GFLOPS"] =
      benchmark::Counter(seen * 32 * 64 * 4, benchmark::Counter::kIsIterationInvariantRate,
                         benchmark::Counter::kIs1000);
  state.counters["kv/s"] = benchmark::Counter(
      static_cast<double>(geometry.bytes_per_token()) / geometry.num_layers * (context + rows),
      benchmark::Counter::kIsIterationInvariantRate, benchmark::Counter::kIs1000);
}

void linear_arguments(benchmark::internal::Benchmark* bench) {
  for (const std::int64_t threads : {1, 2}) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kQ4_1, DType::kQ8_0, DType::kQ4K}) {
      for (const std::int64_t m : {1, 4, 64, 512}) {
        const std::int64_t k = dtype == DType::kQ4K ? 768 : 576;
        bench->Args({threads, static_cast<std::int64_t>(dtype), 1536, k, m});
      }
    }
  }
  bench->Args({2, static_cast<std::int64_t>(DType::kF32), 4096, 4096, 64});
}

void attention_arguments(benchmark::internal::Benchmark* bench) {
  for (const std::int64_t threads : {1, 2}) {
    for (const DType dtype : {DType::kF16, DType::kI8}) {
      bench->Args({threads, static_cast<std::int64_t>(dtype), 255, 1});
      bench->Args({threads, static_cast<std::int64_t>(dtype), 8191, 1});
      bench->Args({threads, static_cast<std::int64_t>(dtype), 0, 512});
      bench->Args({threads, static_cast<std::int64_t>(dtype), 2048, 16});
    }
  }
}

BENCHMARK(BM_CacheResidentLinear)->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK(BM_Linear)->Apply(linear_arguments)->UseRealTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_Attention)->Apply(attention_arguments)->UseRealTime()->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace trine

BENCHMARK_MAIN();
