#include "eval/statistics.h"

#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "eval/row_metrics.h"

namespace trine::eval {
namespace {

const nlohmann::json& golden() {
  static const nlohmann::json value = [] {
    std::ifstream file(TRINE_SOURCE_DIR "/tests/golden/eval/statistics.json");
    return nlohmann::json::parse(file);
  }();
  return value;
}

void expect_near(double got, double expected, double relative = 1e-11) {
  EXPECT_NEAR(got, expected, relative * std::abs(expected) + 1e-15);
}

TEST(Statistics, McNemarIsTheExactBinomialTest) {
  for (const auto& row : golden()["mcnemar"]) {
    expect_near(mcnemar_exact(row[0], row[1]), row[2], 1e-9);
    expect_near(mcnemar_exact(row[1], row[0]), row[2], 1e-9);
  }
}

TEST(Statistics, QuantilesAreNumPys) {
  for (const auto& part : golden()["quantiles"]) {
    const Quantiles q = quantiles(part["values"].get<std::vector<double>>());
    expect_near(q.mean, part["mean"]);
    expect_near(q.median, part["median"]);
    expect_near(q.p99, part["p99"]);
    expect_near(q.p999, part["p999"]);
    expect_near(q.max, part["max"]);
  }
}

TEST(Statistics, BootstrapDrawsWithACounter) {
  for (const auto& part : golden()["bootstrap"]) {
    const auto values = part["values"].get<std::vector<double>>();
    const Interval interval =
        bootstrap(values.size(), part["seed"], [&](std::span<const std::uint32_t> counts) {
          double sum = 0.0;
          for (std::size_t i = 0; i < values.size(); ++i) {
            sum += counts[i] * values[i];
          }
          return sum / static_cast<double>(values.size());
        });
    expect_near(interval.low, part["interval"][0]);
    expect_near(interval.high, part["interval"][1]);
  }
}

TEST(Statistics, OneBlockHasNoInterval) {
  for (const std::size_t n : {0U, 1U}) {
    const Interval interval = bootstrap(n, 1, [](std::span<const std::uint32_t> counts) {
      return 3.0 + static_cast<double>(counts.size());
    });
    EXPECT_EQ(interval.low, 3.0 + static_cast<double>(n));
    EXPECT_EQ(interval.high, interval.low);
  }
}

TEST(Statistics, SmallestDetectableDifference) {
  for (const auto& row : golden()["mdd"]) {
    expect_near(minimum_detectable_difference(row[0], row[1]), row[2], 1e-9);
  }
}

TEST(Statistics, MacroF1) {
  for (const auto& row : golden()["macro_f1"]) {
    expect_near(macro_f1(row[0].get<std::vector<std::vector<std::int64_t>>>()), row[1]);
  }
  EXPECT_EQ(macro_f1({{0, 0}, {0, 0}}), 0.0);
}

TEST(RowMetrics, AreSciPys) {
  for (const auto& row : golden()["rows"]) {
    const auto logits = row["logits"].get<std::vector<float>>();
    const auto reference = row["reference"].get<std::vector<float>>();
    const auto got = compare_row(logits, reference, row["target"]);
    ASSERT_TRUE(got.has_value());
    expect_near(got->loss, row["loss"]);
    expect_near(got->reference_loss, row["reference_loss"]);
    EXPECT_NEAR(got->kl, row["kl"].get<double>(), 1e-14 + 1e-10 * row["kl"].get<double>());
    EXPECT_EQ(got->same_top1, row["same_top1"].get<bool>());
    EXPECT_EQ(got->shared_top5, row["shared_top5"].get<std::int32_t>());
    const auto itself = compare_row(logits, logits, row["target"]);
    ASSERT_TRUE(itself.has_value());
    EXPECT_EQ(itself->kl, 0.0);
    EXPECT_EQ(itself->shared_top5, 5);
  }
}

TEST(RowMetrics, EqualLogitsGoByTheLowerId) {
  const std::vector<float> flat(7, 0.25F);
  std::vector<float> last = flat;
  last[6] = 0.5F;
  EXPECT_EQ(best_id(flat), 0);
  const auto got = compare_row(last, flat, 0);
  ASSERT_TRUE(got.has_value());
  EXPECT_FALSE(got->same_top1);
  EXPECT_EQ(got->shared_top5, 4);  // 6 0 1 2 3 beside 0 1 2 3 4
  const auto few = compare_row(std::vector<float>{1, 2}, std::vector<float>{2, 1}, 0);
  EXPECT_EQ(few->shared_top5, 2);
}

TEST(RowMetrics, RefusesWhatIsNoLaw) {
  const std::vector<float> fine(4, 1.0F);
  for (const float bad :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> row = fine;
    row[2] = bad;
    EXPECT_EQ(compare_row(row, {}, 0).error().message, "the model gave logits that are not finite");
    EXPECT_EQ(compare_row(fine, row, 0).error().message,
              "the reference gave logits that are not finite");
  }
}

}  // namespace
}  // namespace trine::eval
