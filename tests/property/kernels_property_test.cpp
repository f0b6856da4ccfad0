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
                        ScaleKind::kSuperI8, ScaleKind::kSuperU8Min);
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

}  // namespace
}  // namespace trine
