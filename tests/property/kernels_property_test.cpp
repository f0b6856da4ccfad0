// The packed kernels on random schemes and shapes: odd sizes, short last groups, one row.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "support/packed_check.h"

namespace trine {
namespace {

using kernels::CodeKind;
using kernels::PackedScheme;
using kernels::ScaleKind;

PackedScheme any_scheme() {
  PackedScheme scheme;
  scheme.codes = *rc::gen::element(CodeKind::kU2, CodeKind::kU3, CodeKind::kU4, CodeKind::kU5,
                                   CodeKind::kU6, CodeKind::kU8, CodeKind::kIq4Nl, CodeKind::kE2M1);
  scheme.scales =
      *rc::gen::element(ScaleKind::kF16, ScaleKind::kF32, ScaleKind::kF16Min, ScaleKind::kF16Zero,
                        ScaleKind::kF32Zero, ScaleKind::kSuperI8, ScaleKind::kSuperU8Min);
  scheme.group = kernels::packed_is_super(scheme) ? *rc::gen::element(16, 32)
                                                  : *rc::gen::element(32, 64, 128, 256, 0);
  return scheme;
}

RC_GTEST_PROP(KernelsProperty, EveryLevelFollowsTheChainForAnyShape, ()) {
  const PackedScheme scheme = any_scheme();
  test::PackedShape shape{};
  shape.rows = *rc::gen::oneOf(rc::gen::just(1), rc::gen::inRange(1, 100));
  shape.cols =
      kernels::packed_is_super(scheme) ? 256 * *rc::gen::inRange(1, 4) : *rc::gen::inRange(1, 600);
  const std::int64_t num_rows = *rc::gen::inRange(1, 24);
  RC_ASSERT(test::scheme_fault(scheme, shape, *rc::gen::inRange<std::uint64_t>(1, 1u << 30),
                               {num_rows}) == "");
}

RC_GTEST_PROP(KernelsProperty, ExtremeActivationsGiveTheSameBitsOnEveryLevel, ()) {
  const PackedScheme scheme = any_scheme();
  const std::int64_t n = *rc::gen::inRange(1, 70);
  const std::int64_t k =
      kernels::packed_is_super(scheme) ? 256 * *rc::gen::inRange(1, 3) : *rc::gen::inRange(1, 400);
  const std::int64_t m = *rc::gen::inRange(1, 14);
  const auto seed = *rc::gen::inRange<std::uint64_t>(1, 1u << 30);
  const auto bytes = test::PackedTwin(scheme, n, k).random(seed);
  test::Aligned packed(bytes.size());
  std::memcpy(packed.data, bytes.data(), bytes.size());
  const kernels::PackedMatrix w{scheme, n, k, packed.data};
  const auto x = test::extreme_floats(seed + 1, m * k, *rc::gen::element(3u, 50u, 1000u));
  const auto compute = [&](IsaLevel level, std::int64_t direct_rows) {
    const kernels::PackedTable& table = kernels::packed_table(level);
    const test::Rows rows = test::quantize(table, scheme, x, m, k);
    return test::multiply(table, w, rows.view, nullptr, direct_rows);
  };
  const auto expected = compute(IsaLevel::kScalar, 0);
  for (const IsaLevel level : test::machine_levels()) {
    for (const std::int64_t direct_rows : {0, 1000}) {
      RC_ASSERT(test::same_bits(compute(level, direct_rows), expected));
    }
  }
}

}  // namespace
}  // namespace trine
