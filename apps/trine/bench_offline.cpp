#include "apps/trine/bench_offline.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>

#include <sys/resource.h>

#include "apps/trine/interrupt.h"
#include "base/rng.h"
#include "kv/kv_cache.h"
#include "ops/ops.h"

namespace trine::app {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int32_t kPrefill = 512;
constexpr std::int32_t kDecode = 128;
constexpr std::int32_t kStepTokens = 512;
constexpr std::int32_t kMaxPass = 17;
constexpr std::int32_t kMaxBatch = 32;
constexpr std::int32_t kBatchContext = 64;
constexpr std::int32_t kBatchSteps = 8;

Measured measured(const std::vector<double>& values) {
  Measured out;
  const auto count = static_cast<double>(values.size());
  for (const double value : values) {
    out.mean += value / count;
  }
  for (const double value : values) {
    out.deviation += (value - out.mean) * (value - out.mean);
  }
  out.deviation = values.size() > 1 ? std::sqrt(out.deviation / (count - 1)) : 0.0;
  return out;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// One model with what a step needs. Tokens are random: speed does not depend on them.
class Bench {
 public:
  static Result<std::unique_ptr<Bench>> create(const Model& model, ThreadTeam& team,
                                               const OfflineBenchOptions& options) {
    auto out = std::unique_ptr<Bench>(new Bench(model, team, options));
    const std::int64_t longest = std::max<std::int64_t>(
        std::min(model.config().context_length, kDeepest + kDecode), kMaxBatch * 3 * kPageTokens);
    TRINE_TRY_ASSIGN(out->pool_,
                     PagePool::create(model.kv_geometry(options.kv_dtype),
                                      static_cast<std::int32_t>(longest / kPageTokens + 2)));
    return out;
  }

  Result<std::vector<OfflineRow>> run() {
    TRINE_TRY(prefill());
    for (const std::int32_t depth : {0, 2048, kDeepest}) {
      TRINE_TRY(decode(depth));
    }
    TRINE_TRY(passes());
    for (std::int32_t batch = 1; batch <= kMaxBatch; batch *= 2) {
      TRINE_TRY(batches(batch));
    }
    return std::move(rows_);
  }

 private:
  static constexpr std::int32_t kDeepest = 8192;

  Bench(const Model& model, ThreadTeam& team, const OfflineBenchOptions& options)
      : model_(&model), ops_(team), workspace_(model.make_workspace()), options_(options) {
    tokens_.resize(static_cast<std::size_t>(kDeepest + kDecode));
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      tokens_[i] = static_cast<std::int32_t>(philox(1, i, RngPurpose::kTest, 0)[0] %
                                             static_cast<std::uint32_t>(model.config().vocab_size));
    }
  }

  bool fits(std::int32_t tokens) const { return tokens <= model_->config().context_length; }

  std::span<const std::int32_t> some_tokens(std::int32_t count) const {
    return std::span(tokens_).first(static_cast<std::size_t>(count));
  }

  // `count` tokens more in a sequence; returns seconds.
  Result<double> step(KvSequence& sequence, std::int32_t count, Span::Logits logits) {
    if (interrupted()) {
      return fail(ErrorCode::kCancelled, "interrupted");
    }
    TRINE_TRY(sequence.reserve(sequence.length() + count));
    const Span span{&sequence, some_tokens(count), {}, logits};
    const auto start = Clock::now();
    TRINE_TRY(model_->forward(ops_, {&span, 1}, *workspace_, logits_));
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    sequence.commit(count);
    return seconds;
  }

  Result<double> fill(KvSequence& sequence, std::int32_t count) {
    double seconds = 0;
    while (count > 0) {
      const std::int32_t chunk = std::min(count, kStepTokens);
      TRINE_TRY_ASSIGN(
          const double part,
          step(sequence, chunk, chunk == count ? Span::Logits::kLast : Span::Logits::kNone));
      seconds += part;
      count -= chunk;
    }
    return seconds;
  }

  Status prefill() {
    if (!fits(kPrefill)) {
      return {};
    }
    std::vector<double> rates;
    for (int r = -1; r < options_.repeats; ++r) {  // the first one warms up
      KvSequence sequence(*pool_);
      TRINE_TRY_ASSIGN(const double seconds, fill(sequence, kPrefill));
      if (r >= 0) {
        rates.push_back(kPrefill / seconds);
      }
    }
    rows_.push_back({fmt::format("pp{}", kPrefill), "tokens/s", measured(rates), 0});
    return {};
  }

  Status decode(std::int32_t depth) {
    if (!fits(depth + kDecode)) {
      return {};
    }
    KvSequence sequence(*pool_);
    TRINE_TRY(fill(sequence, std::max(depth, 1)));
    const std::int32_t start = sequence.length();
    std::vector<double> rates;
    for (int r = 0; r < options_.repeats; ++r) {
      double seconds = 0;
      for (std::int32_t i = 0; i + 1 < kDecode; ++i) {
        TRINE_TRY_ASSIGN(const double one, step(sequence, 1, Span::Logits::kLast));
        seconds += one;
      }
      rates.push_back((kDecode - 1) / seconds);
      sequence.truncate(start);
    }
    rows_.push_back(
        {depth == 0 ? fmt::format("tg{}", kDecode) : fmt::format("tg{}@{}", kDecode, depth),
         "tokens/s", measured(rates), 0});
    return {};
  }

  Status passes() {
    std::vector<std::vector<double>> seconds(static_cast<std::size_t>(kMaxPass) + 1);
    KvSequence sequence(*pool_);
    TRINE_TRY(fill(sequence, 1));
    // Row counts in turn, so that each meets the same moods of the machine.
    for (int r = 0; r < 4 * options_.repeats; ++r) {
      for (std::int32_t m = 1; m <= kMaxPass && fits(m + 1); ++m) {
        TRINE_TRY_ASSIGN(const double one, step(sequence, m, Span::Logits::kAll));
        seconds[static_cast<std::size_t>(m)].push_back(one);
        sequence.truncate(1);
      }
    }
    for (std::int32_t m = 1; m <= kMaxPass; ++m) {
      std::vector<double>& times = seconds[static_cast<std::size_t>(m)];
      if (times.empty()) {
        continue;
      }
      const double relative = median(times) / median(seconds[1]);
      for (double& time : times) {
        time *= 1e3;
      }
      rows_.push_back({fmt::format("pass {}", m), "ms", measured(times), relative});
    }
    return {};
  }

  Status batches(std::int32_t batch) {
    if (!fits(kBatchContext + kBatchSteps)) {
      return {};
    }
    std::vector<KvSequence> sequences;
    for (std::int32_t b = 0; b < batch; ++b) {
      sequences.emplace_back(*pool_);
      TRINE_TRY(fill(sequences.back(), kBatchContext));
    }
    std::vector<double> rates;
    for (int r = -1; r < options_.repeats; ++r) {
      double seconds = 0;
      for (std::int32_t i = 0; i < kBatchSteps; ++i) {
        std::vector<Span> spans;
        for (KvSequence& sequence : sequences) {
          TRINE_TRY(sequence.reserve(sequence.length() + 1));
          spans.push_back({&sequence, some_tokens(1), {}, Span::Logits::kLast});
        }
        const auto start = Clock::now();
        TRINE_TRY(model_->forward(ops_, spans, *workspace_, logits_));
        seconds += std::chrono::duration<double>(Clock::now() - start).count();
        for (KvSequence& sequence : sequences) {
          sequence.commit(1);
        }
      }
      for (KvSequence& sequence : sequences) {
        sequence.truncate(kBatchContext);
      }
      if (r >= 0) {
        rates.push_back(batch * kBatchSteps / seconds);
      }
    }
    rows_.push_back({fmt::format("batch {}", batch), "tokens/s", measured(rates), 0});
    return {};
  }

  const Model* model_;
  ops::Context ops_;
  std::unique_ptr<Model::Workspace> workspace_;
  std::unique_ptr<PagePool> pool_;
  std::vector<std::int32_t> tokens_;
  std::vector<float> logits_;
  OfflineBenchOptions options_;
  std::vector<OfflineRow> rows_;
};

}  // namespace

Result<std::vector<OfflineRow>> bench_offline(const Model& model, ThreadTeam& team,
                                              const OfflineBenchOptions& options) {
  TRINE_TRY_ASSIGN(const auto bench, Bench::create(model, team, options));
  return bench->run();
}

std::int64_t peak_resident_bytes() {
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  return std::int64_t{usage.ru_maxrss} * 1024;
}

}  // namespace trine::app
