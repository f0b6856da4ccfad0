#include "apps/trine/bench_offline.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <memory>
#include <optional>

#include <sys/resource.h>

#include "apps/trine/interrupt.h"
#include "base/log.h"
#include "base/rng.h"
#include "kv/kv_cache.h"
#include "ops/ops.h"

namespace trine::app {
namespace {

using Clock = std::chrono::steady_clock;
using Kind = OfflineTest::Kind;

constexpr std::int32_t kStepTokens = 512;
constexpr std::int32_t kMaxPass = 17;
constexpr std::int32_t kMaxBatch = 32;
constexpr std::int32_t kBatchContext = 64;
constexpr std::int32_t kBatchSteps = 16;
constexpr std::int32_t kMaxTokens = std::int32_t{1} << 20;

// 1 to kMaxTokens; nullopt for anything else.
std::optional<std::int32_t> token_count(std::string_view text) {
  std::int32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > kMaxTokens) {
    return std::nullopt;
  }
  return value;
}

std::optional<OfflineTest> parse_test(std::string_view text) {
  struct Word {
    std::string_view name;
    Kind kind;
    bool series;
    std::int32_t most;
  };

  constexpr std::array<Word, 4> kWords{{{"pp", Kind::kPrefill, false, kMaxTokens},
                                        {"tg", Kind::kDecode, false, kMaxTokens},
                                        {"pass", Kind::kPasses, true, kStepTokens},
                                        {"batch", Kind::kBatches, true, kStepTokens}}};
  for (const Word& word : kWords) {
    if (!text.starts_with(word.name)) {
      continue;
    }
    OfflineTest test{.kind = word.kind};
    const std::string_view rest = text.substr(word.name.size());
    if (rest.empty() && word.series) {
      return test;
    }
    const std::size_t at = word.series ? rest.size() : std::min(rest.find('@'), rest.size());
    const auto count = token_count(rest.substr(0, at));
    if (!count.has_value() || *count > word.most) {
      return std::nullopt;
    }
    test.count = *count;
    if (at < rest.size()) {
      const auto depth = token_count(rest.substr(at + 1));
      if (!depth.has_value()) {
        return std::nullopt;
      }
      test.depth = *depth;
    }
    return test;
  }
  return std::nullopt;
}

// What the test needs of one sequence, and of all of them.
struct Need {
  std::int32_t sequence;
  std::int64_t pages;
};

Need need_of(const OfflineTest& test) {
  const auto pages = [](std::int64_t tokens) { return tokens / kPageTokens + 1; };
  switch (test.kind) {
    case Kind::kPrefill:
    case Kind::kDecode:
      return {test.depth + test.count, pages(test.depth + test.count)};
    case Kind::kPasses:  // a series leaves out on its own what does not fit
      return {1 + std::max(test.count, 1), pages(1 + (test.count > 0 ? test.count : kMaxPass))};
    case Kind::kBatches:
      return {kBatchContext + kBatchSteps,
              (test.count > 0 ? test.count : kMaxBatch) * pages(kBatchContext + kBatchSteps)};
  }
  return {};
}

// One model with what a step needs. Tokens are random: speed does not depend on them.
class Bench {
 public:
  static Result<std::unique_ptr<Bench>> create(const Model& model, ThreadTeam& team,
                                               const OfflineBenchOptions& options) {
    auto out = std::unique_ptr<Bench>(new Bench(model, team, options));
    std::int64_t pages = 1;
    for (const OfflineTest& test : options.tests) {
      if (const Need need = need_of(test); out->fits(need.sequence)) {
        pages = std::max(pages, need.pages);
      }
    }
    TRINE_TRY_ASSIGN(out->pool_, PagePool::create(model.kv_geometry(options.kv_dtype),
                                                  static_cast<std::int32_t>(pages)));
    return out;
  }

  // A pass over one token.
  Result<double> first_token() {
    KvSequence sequence(*pool_);
    return step(sequence, 1, Span::Logits::kLast);
  }

  Result<std::vector<OfflineRow>> run() {
    TRINE_TRY(first_token());  // warms up
    for (const OfflineTest& test : options_.tests) {
      if (fits(need_of(test).sequence)) {
        TRINE_TRY(run(test));
      }
    }
    return std::move(rows_);
  }

 private:
  Bench(const Model& model, ThreadTeam& team, const OfflineBenchOptions& options)
      : model_(&model), ops_(team), workspace_(model.make_workspace()), options_(options) {
    tokens_.resize(kStepTokens);
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      tokens_[i] = static_cast<std::int32_t>(philox(1, i, RngPurpose::kTest, 0)[0] %
                                             static_cast<std::uint32_t>(model.config().vocab_size));
    }
  }

  bool fits(std::int64_t tokens) const { return tokens <= model_->config().context_length; }

  Status run(const OfflineTest& test) {
    switch (test.kind) {
      case Kind::kPrefill:
        return prefill(test.count, test.depth);
      case Kind::kDecode:
        return decode(test.count, test.depth);
      case Kind::kPasses:
        return test.count > 0 ? passes(test.count, test.count) : passes(1, kMaxPass);
      case Kind::kBatches:
        if (test.count > 0) {
          return batch(test.count);
        }
        for (std::int32_t count = 1; count <= kMaxBatch; count *= 2) {
          TRINE_TRY(batch(count));
        }
    }
    return {};
  }

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

  void add_row(std::string_view word, const OfflineTest& test, std::vector<double> rates) {
    std::string name = fmt::format("{}{}", word, test.count);
    if (test.depth > 0) {
      name += fmt::format("@{}", test.depth);
    }
    rows_.push_back({std::move(name), "tokens/s", std::move(rates), 0});
  }

  Status prefill(std::int32_t count, std::int32_t depth) {
    KvSequence sequence(*pool_);
    TRINE_TRY(fill(sequence, depth));
    std::vector<double> rates;
    for (int r = -1; r < options_.repeats; ++r) {  // the first one warms up
      TRINE_TRY_ASSIGN(const double seconds, fill(sequence, count));
      sequence.truncate(depth);
      if (r >= 0) {
        rates.push_back(count / seconds);
      }
    }
    add_row("pp", {Kind::kPrefill, count, depth}, std::move(rates));
    return {};
  }

  Status decode(std::int32_t count, std::int32_t depth) {
    KvSequence sequence(*pool_);
    TRINE_TRY(fill(sequence, depth));
    TRINE_TRY(step(sequence, 1, Span::Logits::kLast));  // warms up
    sequence.truncate(depth);
    std::vector<double> rates;
    for (int r = 0; r < options_.repeats; ++r) {
      double seconds = 0;
      for (std::int32_t i = 0; i < count; ++i) {
        TRINE_TRY_ASSIGN(const double one, step(sequence, 1, Span::Logits::kLast));
        seconds += one;
      }
      rates.push_back(count / seconds);
      sequence.truncate(depth);
    }
    add_row("tg", {Kind::kDecode, count, depth}, std::move(rates));
    return {};
  }

  Status passes(std::int32_t first, std::int32_t last) {
    std::vector<std::vector<double>> milliseconds(static_cast<std::size_t>(last) + 1);
    KvSequence sequence(*pool_);
    TRINE_TRY(fill(sequence, 1));
    const auto time_one = [&](std::int32_t m) -> Status {
      TRINE_TRY_ASSIGN(const double seconds, step(sequence, m, Span::Logits::kAll));
      milliseconds[static_cast<std::size_t>(m)].push_back(1e3 * seconds);
      sequence.truncate(1);
      return {};
    };
    // Row counts in turn, so that each meets the same moods of the machine; one row beside a
    // single count too, for v.
    for (int r = 0; r < 4 * options_.repeats; ++r) {
      if (first > 1) {
        TRINE_TRY(time_one(1));
      }
      for (std::int32_t m = first; m <= last && fits(m + 1); ++m) {
        TRINE_TRY(time_one(m));
      }
    }
    const double one_row = median(milliseconds[1]);
    for (std::int32_t m = first; m <= last; ++m) {
      std::vector<double>& times = milliseconds[static_cast<std::size_t>(m)];
      if (!times.empty()) {
        const double relative = median(times) / one_row;
        rows_.push_back({fmt::format("pass {}", m), "ms", std::move(times), relative});
      }
    }
    return {};
  }

  Status batch(std::int32_t count) {
    std::vector<KvSequence> sequences;
    for (std::int32_t b = 0; b < count; ++b) {
      sequences.emplace_back(*pool_);
      TRINE_TRY(fill(sequences.back(), kBatchContext));
    }
    std::vector<double> rates;
    for (int r = -1; r < options_.repeats; ++r) {  // the first one warms up
      double seconds = 0;
      for (std::int32_t i = 0; i < kBatchSteps; ++i) {
        TRINE_TRY_ASSIGN(const double one, step_together(sequences));
        seconds += one;
      }
      for (KvSequence& sequence : sequences) {
        sequence.truncate(kBatchContext);
      }
      if (r >= 0) {
        rates.push_back(count * kBatchSteps / seconds);
      }
    }
    rows_.push_back({fmt::format("batch {}", count), "tokens/s", std::move(rates), 0});
    return {};
  }

  // One token more in each; returns seconds.
  Result<double> step_together(std::vector<KvSequence>& sequences) {
    if (interrupted()) {
      return fail(ErrorCode::kCancelled, "interrupted");
    }
    std::vector<Span> spans;
    for (KvSequence& sequence : sequences) {
      TRINE_TRY(sequence.reserve(sequence.length() + 1));
      spans.push_back({&sequence, some_tokens(1), {}, Span::Logits::kLast});
    }
    const auto start = Clock::now();
    TRINE_TRY(model_->forward(ops_, spans, *workspace_, logits_));
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    for (KvSequence& sequence : sequences) {
      sequence.commit(1);
    }
    return seconds;
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

Result<std::vector<OfflineTest>> parse_offline_tests(const std::vector<std::string>& entries) {
  std::vector<OfflineTest> out;
  for (const std::string& entry : entries) {
    if (entry == "load") {
      continue;
    }
    const auto test = parse_test(entry);
    if (!test.has_value()) {
      return fail(ErrorCode::kInvalidArgument,
                  "--tests {}: there are ppN, tgN, ppN@DEPTH, tgN@DEPTH (1 to {}), pass, passN, "
                  "batch, batchN (1 to {}) and load",
                  entry, kMaxTokens, kStepTokens);
    }
    out.push_back(*test);
    out.back().name = entry;
  }
  return out;
}

Result<TimedLoad> timed_load(const std::string& path, const Model::LoadOptions& load,
                             ThreadTeam& team, const OfflineBenchOptions& options) {
  TimedLoad out;
  OfflineBenchOptions no_tests = options;
  no_tests.tests.clear();
  for (int r = 0; r < options.repeats; ++r) {
    if (interrupted()) {
      return fail(ErrorCode::kCancelled, "interrupted");
    }
    out.model.reset();  // two at once would pass for the memory of one
    const auto start = Clock::now();
    TRINE_TRY_ASSIGN(out.model, Model::load(path, load));
    out.load_seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    TRINE_TRY_ASSIGN(const auto bench, Bench::create(*out.model, team, no_tests));
    TRINE_TRY_ASSIGN(const double token_seconds, bench->first_token());
    out.first_token_seconds.push_back(out.load_seconds.back() + token_seconds);
  }
  return out;
}

Result<std::vector<OfflineRow>> bench_offline(const Model& model, ThreadTeam& team,
                                              const OfflineBenchOptions& options) {
  const std::int64_t context = model.config().context_length;
  std::size_t left_out = 0;
  for (const OfflineTest& test : options.tests) {
    if (const std::int64_t needs = need_of(test).sequence; needs > context) {
      log::warn("--tests {}: needs {} tokens, the context is {}; left out", test.name, needs,
                context);
      ++left_out;
    }
  }
  if (left_out > 0 && left_out == options.tests.size()) {
    return fail(ErrorCode::kExhausted, "--tests: none fits the context of {} tokens", context);
  }
  TRINE_TRY_ASSIGN(const auto bench, Bench::create(model, team, options));
  return bench->run();
}

std::int64_t peak_resident_bytes() {
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  return std::int64_t{usage.ru_maxrss} * 1024;
}

}  // namespace trine::app
