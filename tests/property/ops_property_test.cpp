// The invariance contract of ops/ on random shapes: what a row gives depends on its operands only.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "support/attention_case.h"

namespace trine {
namespace {

using test::AttentionCase;
using test::AttentionShape;
using test::same_bits;

ThreadTeam& team_of(int num_threads) {
  static std::vector<std::unique_ptr<ThreadTeam>> teams = [] {
    std::vector<std::unique_ptr<ThreadTeam>> made;
    for (int n = 1; n <= 4; ++n) {
      made.push_back(std::move(ThreadTeam::create(n)).value());
    }
    return made;
  }();
  return *teams[static_cast<std::size_t>(num_threads - 1)];
}

int any_threads() {
  return *rc::gen::inRange(1, 5);
}

IsaLevel any_level() {
  return *rc::gen::elementOf(test::machine_levels());
}

std::uint64_t any_seed() {
  return *rc::gen::inRange<std::uint64_t>(1, 1u << 30);
}

AttentionShape any_shape() {
  AttentionShape shape;
  shape.num_kv_heads = *rc::gen::inRange(1, 4);
  shape.num_heads = shape.num_kv_heads * *rc::gen::inRange(1, 5);
  shape.head_dim_k = *rc::gen::inRange(1, 70);
  shape.head_dim_v = *rc::gen::inRange(1, 70);
  shape.window = *rc::gen::oneOf(rc::gen::just(0), rc::gen::inRange(1, 100));
  shape.softcap = *rc::gen::element(0.0f, 0.0f, 3.0f);
  shape.dtype = *rc::gen::element(DType::kF32, DType::kF16, DType::kBF16, DType::kI8);
  shape.length = *rc::gen::oneOf(rc::gen::inRange(1, 110), rc::gen::inRange(250, 600));
  return shape;
}

RC_GTEST_PROP(OpsProperty, LinearRowsAreIndependent, ()) {
  const std::int64_t n = *rc::gen::inRange(1, 200);
  const std::int64_t k = *rc::gen::inRange(1, 300);
  const std::int64_t m = *rc::gen::inRange(1, 20);
  const std::uint64_t seed = any_seed();
  const auto w = test::random_floats(seed, n * k);
  const auto x = test::random_floats(seed + 1, m * k);
  const ops::WeightView view{DType::kF32, n, k, reinterpret_cast<const std::byte*>(w.data()),
                             4 * k};
  const auto compute = [&](int num_threads, IsaLevel level, std::int64_t first,
                           std::int64_t count) {
    const test::ScopedIsaLevel scope(level);
    ops::Context ctx(team_of(num_threads));
    std::vector<float> y(static_cast<std::size_t>(count * n));
    ops::linear(ctx, view, nullptr, x.data() + first * k, k, count, y.data(), n);
    return y;
  };
  const auto whole = compute(any_threads(), any_level(), 0, m);
  const std::int64_t first = *rc::gen::inRange<std::int64_t>(0, m);
  const std::int64_t count = *rc::gen::inRange<std::int64_t>(1, m - first + 1);
  const auto part = compute(any_threads(), any_level(), first, count);
  RC_ASSERT(same_bits(
      part, std::vector<float>(whole.begin() + first * n, whole.begin() + (first + count) * n)));
}

RC_GTEST_PROP(OpsProperty, AttentionIgnoresChunksPlacementThreadsAndLevel, ()) {
  const AttentionCase c(any_shape(), any_seed());
  const auto chunks =
      *rc::gen::nonEmpty(rc::gen::container<std::vector<std::int32_t>>(rc::gen::inRange(1, 40)));
  const auto whole = c.run(team_of(1), {c.shape().length}, 0);
  const test::ScopedIsaLevel scope(any_level());
  RC_ASSERT(same_bits(c.run(team_of(any_threads()), chunks, any_seed()), whole));
}

RC_GTEST_PROP(OpsProperty, AttentionOfExtremeValuesIsTheSameEverywhere, ()) {
  AttentionCase c(any_shape(), any_seed());
  const auto rarity = *rc::gen::element(3u, 50u, 1000u);
  for (std::vector<float>* x : {&c.q, &c.k, &c.v}) {
    if (*rc::gen::arbitrary<bool>()) {
      *x = test::extreme_floats(any_seed(), std::ssize(*x), rarity);
    }
  }
  const auto whole = [&] {
    const test::ScopedIsaLevel scope(IsaLevel::kScalar);
    return c.run(team_of(1), {c.shape().length}, 0);
  }();
  const auto chunks =
      *rc::gen::nonEmpty(rc::gen::container<std::vector<std::int32_t>>(rc::gen::inRange(1, 40)));
  for (const IsaLevel level : test::machine_levels()) {
    const test::ScopedIsaLevel scope(level);
    RC_ASSERT(same_bits(c.run(team_of(any_threads()), chunks, any_seed()), whole));
  }
}

RC_GTEST_PROP(OpsProperty, TreePathsEqualChains, ()) {
  const auto num_nodes = *rc::gen::inRange(1, 24);
  std::vector<std::int32_t> parents;
  for (std::int32_t i = 0; i < num_nodes; ++i) {
    parents.push_back(*rc::gen::inRange(-1, i));
  }
  AttentionShape shape = any_shape();
  const std::int32_t prefix = shape.length - 1;
  shape.length = prefix + num_nodes;
  const AttentionCase c(shape, any_seed());
  const auto tree = run_tree(c, team_of(any_threads()), prefix, parents, any_seed());
  const std::int32_t node = *rc::gen::inRange(0, num_nodes);
  const auto chain = test::chain_of_path(c, prefix, test::tree_path(parents, node));
  const auto out = chain.run(team_of(any_threads()), {chain.shape().length}, any_seed());
  RC_ASSERT(same_bits(std::vector<float>(tree.begin() + node * c.out_width(),
                                         tree.begin() + (node + 1) * c.out_width()),
                      std::vector<float>(out.end() - c.out_width(), out.end())));
}

}  // namespace
}  // namespace trine
