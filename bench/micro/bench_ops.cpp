// linear() and attention() on shapes of real models, as GFLOPS and GB/s next to the machine's FMA
// rate in the same run. TRINE_ISA chooses the instruction-set level, --benchmark_filter the case;
// the thread count is an argument.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

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

// Arguments: threads, dtype of the pages, context, new rows. SmolLM2-135M's heads: 9 query, 3 kv,
// 64 wide.
void BM_Attention(benchmark::State& state) {
  ops::Context ctx(team_of(static_cast<int>(state.range(0))));
  KvGeometry geometry;
  geometry.num_layers = 1;
  geometry.num_kv_heads = 3;
  geometry.head_dim_k = 64;
  geometry.head_dim_v = 64;
  geometry.dtype = static_cast<DType>(state.range(1));
  const auto context = static_cast<std::int32_t>(state.range(2));
  const auto rows = static_cast<std::int32_t>(state.range(3));
  const std::int32_t tokens = context + rows;
  const auto num_pages = static_cast<std::size_t>((tokens + kPageTokens - 1) / kPageTokens);
  const auto page_bytes = static_cast<std::size_t>(geometry.page_bytes());
  std::vector<std::byte> memory(num_pages * page_bytes, std::byte{0x11});
  std::vector<std::byte*> pages;
  for (std::size_t i = 0; i < num_pages; ++i) {
    pages.push_back(memory.data() + i * page_bytes);
  }
  ops::AttentionSpan span;
  span.pages = pages;
  span.first_slot = context;
  span.num_rows = rows;
  ops::AttentionParams params;
  params.num_heads = 9;
  params.num_kv_heads = 3;
  params.head_dim_k = 64;
  params.head_dim_v = 64;
  params.scale = 0.125f;
  const auto q = values(std::int64_t{rows} * 9 * 64);
  std::vector<float> out(q.size());
  for (auto _ : state) {
    ops::attention(ctx, geometry, params, std::span<const ops::AttentionSpan>(&span, 1), q.data(),
                   9 * 64, out.data(), 9 * 64);
    benchmark::ClobberMemory();
  }
  const double seen = static_cast<double>(rows) * (static_cast<double>(context) + 0.5 * (rows + 1));
  state.SetLabel(std::string(dtype_info(geometry.dtype).name));
  state.counters["GFLOPS"] =
      benchmark::Counter(seen * 9 * 64 * 4, benchmark::Counter::kIsIterationInvariantRate,
                         benchmark::Counter::kIs1000);
  state.counters["kv/s"] = benchmark::Counter(
      static_cast<double>(geometry.bytes_per_token()) * tokens,
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
