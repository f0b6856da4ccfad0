#include "engine/verify_invariance.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <span>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/rng.h"
#include "platform/cpu.h"
#include "platform/thread_team.h"

namespace trine {

namespace {

// Random choices of one run; equal seeds give equal runs.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : seed_(seed) {}

  // In [0, bound), bound >= 1.
  std::int32_t below(std::int32_t bound) {
    const std::uint64_t word = philox(seed_, rolls_++, RngPurpose::kTest, 0)[0];
    return static_cast<std::int32_t>((word * static_cast<std::uint64_t>(bound)) >> 32);
  }

  bool flip() { return below(2) == 1; }

 private:
  std::uint64_t seed_;
  std::uint64_t rolls_ = 0;
};

// How the steps of one run look.
struct Permutation {
  enum class Batch : std::uint8_t { kAlone, kAll, kRandom };
  enum class Chunks : std::uint8_t { kWhole, kOne, kRandom };

  std::string name = {};
  Batch batch = Batch::kAlone;
  Chunks chunks = Chunks::kWhole;
  int num_threads = 1;
  bool shuffled_pages = false;  // and NaN in fresh pages
  bool few_rows = false;        // some spans want their last row or none
  bool forks = false;           // sequences go on in copies, beside twins that write something else
  bool rollbacks = false;       // spans end in tokens that are taken back
  IsaLevel isa = IsaLevel::kScalar;
};

struct Prompts {
  std::vector<std::vector<std::int32_t>> tokens;
  std::vector<std::int32_t> first_rows;  // per prompt, the position of the first row to compare

  void add(std::vector<std::int32_t> prompt, std::int32_t first_row) {
    tokens.push_back(std::move(prompt));
    first_rows.push_back(first_row);
  }
};

// Takes one row of logits; false ends the run.
using RowSink =
    std::function<bool(std::size_t sequence, std::int32_t position, std::span<const float>)>;

// Switches the instruction-set level for a scope.
class IsaScope {
 public:
  explicit IsaScope(IsaLevel level) : before_(isa_level()) { override_isa_level(level); }

  ~IsaScope() { override_isa_level(before_); }

  IsaScope(const IsaScope&) = delete;
  IsaScope& operator=(const IsaScope&) = delete;

 private:
  IsaLevel before_;
};

// One run of all prompts under a permutation.
class Run {
 public:
  Run(const Model& model, const Permutation& how, const Prompts& prompts, std::uint64_t seed)
      : model_(model), how_(how), prompts_(prompts), dice_(seed) {}

  Status start(DType kv_dtype, std::uint64_t seed) {
    TRINE_TRY_ASSIGN(team_, ThreadTeam::create(how_.num_threads));
    context_ = std::make_unique<ops::Context>(*team_);
    std::int64_t tokens = 0;
    for (const auto& prompt : prompts_.tokens) {
      tokens += static_cast<std::int64_t>(prompt.size()) + std::int64_t{2} * kPageTokens;
    }
    const auto pages = static_cast<std::int32_t>(4 * (tokens / kPageTokens + 1));
    TRINE_TRY_ASSIGN(pool_, PagePool::create(model_.kv_geometry(kv_dtype), pages));
    if (how_.shuffled_pages) {
      pool_->set_placement(PagePool::Placement::kShuffled, seed);
      pool_->set_poison(true);
    }
    workspace_ = model_.make_workspace();
    open_.resize(prompts_.tokens.size());
    for (std::size_t i = 0; i < prompts_.tokens.size(); ++i) {
      sequences_.emplace_back(*pool_);
    }
    return {};
  }

  Result<bool> finish(const RowSink& sink, const std::atomic<bool>* cancel) {
    while (choose()) {
      if (cancel != nullptr && cancel->load()) {
        return fail(ErrorCode::kCancelled, "interrupted");
      }
      TRINE_TRY(prepare());
      TRINE_TRY(model_.forward(*context_, spans_, *workspace_, logits_));
      if (!deliver(sink)) {
        return false;
      }
    }
    return true;
  }

 private:
  // A span of the step: tokens of a prompt, perhaps followed by some that will be taken back, or a
  // twin's.
  struct Part {
    std::size_t sequence = 0;
    std::int32_t kept = 0;  // 0: a twin, nothing of it counts
    std::vector<std::int32_t> tokens = {};
    Span::Logits logits = Span::Logits::kAll;
    std::unique_ptr<KvSequence> twin = nullptr;
  };

  std::int32_t remaining(std::size_t i) const {
    return static_cast<std::int32_t>(prompts_.tokens[i].size()) - sequences_[i].length();
  }

  std::int32_t any_token() { return dice_.below(model_.config().vocab_size); }

  // Fills parts_ with the next step; false when all prompts are read.
  bool choose() {
    parts_.clear();
    std::size_t num_open = 0;
    for (std::size_t i = 0; i < prompts_.tokens.size(); ++i) {
      if (remaining(i) > 0) {
        open_[num_open++] = i;
      }
    }
    if (num_open == 0) {
      return false;
    }
    std::size_t num_chosen = num_open;
    if (how_.batch == Permutation::Batch::kAlone) {
      num_chosen = 1;
    } else if (how_.batch == Permutation::Batch::kRandom) {
      for (std::size_t i = num_open - 1; i > 0; --i) {
        std::swap(open_[i],
                  open_[static_cast<std::size_t>(dice_.below(static_cast<std::int32_t>(i) + 1))]);
      }
      num_chosen = 1 + static_cast<std::size_t>(dice_.below(static_cast<std::int32_t>(num_open)));
    }
    for (std::size_t i = 0; i < num_chosen; ++i) {
      add_part(open_[i]);
    }
    return true;
  }

  void add_part(std::size_t i) {
    KvSequence& sequence = sequences_[i];
    const std::int32_t unseen = prompts_.first_rows[i] - sequence.length();  // tokens without rows
    const std::int32_t left = unseen > 0 ? unseen : remaining(i);
    if (how_.forks && sequence.length() > 0 &&
        sequence.length() + 2 <= model_.config().context_length && dice_.flip()) {
      auto twin = std::make_unique<KvSequence>(sequence.fork());
      if (dice_.flip()) {
        std::swap(sequence, *twin);
      }
      Part part{
          .sequence = i, .kept = 0, .tokens = {any_token(), any_token()}, .twin = std::move(twin)};
      parts_.push_back(std::move(part));
    }
    Part part{.sequence = i};
    switch (how_.chunks) {
      case Permutation::Chunks::kWhole:
        part.kept = left;
        break;
      case Permutation::Chunks::kOne:
        part.kept = 1;
        break;
      case Permutation::Chunks::kRandom:
        part.kept = 1 + dice_.below(std::min(left, 1 + dice_.below(40)));
        break;
    }
    const auto first = prompts_.tokens[i].begin() + sequence.length();
    part.tokens.assign(first, first + part.kept);
    if (how_.rollbacks) {
      for (std::int32_t extra = dice_.below(5);
           extra > 0 && sequence.length() + static_cast<std::int32_t>(part.tokens.size()) <
                            model_.config().context_length;
           --extra) {
        part.tokens.push_back(any_token());
      }
    }
    if (unseen > 0) {
      part.logits = Span::Logits::kNone;
    } else if (how_.few_rows) {
      constexpr std::array kKinds{Span::Logits::kNone, Span::Logits::kLast, Span::Logits::kAll};
      part.logits = kKinds[static_cast<std::size_t>(dice_.below(3))];
    }
    parts_.push_back(std::move(part));
  }

  Status prepare() {
    spans_.clear();
    for (Part& part : parts_) {
      KvSequence& sequence = part.kept == 0 ? *part.twin : sequences_[part.sequence];
      TRINE_TRY(
          sequence.reserve(sequence.length() + static_cast<std::int32_t>(part.tokens.size())));
      spans_.push_back(
          {.sequence = &sequence, .tokens = part.tokens, .parents = {}, .logits = part.logits});
    }
    return {};
  }

  bool deliver(const RowSink& sink) {
    const auto width = static_cast<std::size_t>(model_.config().vocab_size);
    std::size_t row = 0;
    for (const Part& part : parts_) {
      const auto count = static_cast<std::int32_t>(part.tokens.size());
      const std::int32_t first_wanted = part.logits == Span::Logits::kAll    ? 0
                                        : part.logits == Span::Logits::kLast ? count - 1
                                                                             : count;
      for (std::int32_t i = first_wanted; i < count; ++i, ++row) {
        TRINE_CHECK((row + 1) * width <= logits_.size());
        if (i < part.kept && !sink(part.sequence, sequences_[part.sequence].length() + i,
                                   std::span<const float>(logits_).subspan(row * width, width))) {
          return false;
        }
      }
      if (part.kept > 0) {
        KvSequence& sequence = sequences_[part.sequence];
        const std::int32_t length = sequence.length() + part.kept;
        sequence.commit(count);
        sequence.truncate(length);
      }
    }
    parts_.clear();  // twins give their pages back
    return true;
  }

  const Model& model_;
  const Permutation& how_;
  const Prompts& prompts_;
  Dice dice_;
  std::unique_ptr<ThreadTeam> team_;
  std::unique_ptr<ops::Context> context_;
  std::unique_ptr<PagePool> pool_;
  std::unique_ptr<Model::Workspace> workspace_;
  std::vector<KvSequence> sequences_;
  std::vector<std::size_t> open_;  // prompts with tokens left, in front
  std::vector<Part> parts_;
  std::vector<Span> spans_;
  std::vector<float> logits_;
};

std::vector<Permutation> single_permutations(int max_threads) {
  using Batch = Permutation::Batch;
  using Chunks = Permutation::Chunks;
  const IsaLevel isa = isa_level();
  std::vector<Permutation> out = {
      {.name = "batch of all", .batch = Batch::kAll},
      {.name = "one token at a time", .chunks = Chunks::kOne},
      {.name = "random chunks", .chunks = Chunks::kRandom},
      {.name = "batch, one token at a time", .batch = Batch::kAll, .chunks = Chunks::kOne},
      {.name = "random batches and chunks", .batch = Batch::kRandom, .chunks = Chunks::kRandom},
      {.name = "shuffled pages with NaN", .shuffled_pages = true},
      {.name = "some rows only", .batch = Batch::kAll, .chunks = Chunks::kRandom, .few_rows = true},
      {.name = "shared prefixes", .batch = Batch::kAll, .chunks = Chunks::kRandom, .forks = true},
      {.name = "rolled back tokens", .chunks = Chunks::kRandom, .rollbacks = true},
  };
  for (Permutation& permutation : out) {
    permutation.isa = isa;
  }
  const auto add_team = [&](int threads) {
    out.push_back({.name = fmt::format("{} threads", threads), .num_threads = threads, .isa = isa});
  };
  for (int threads = 2; threads < max_threads; threads = threads < 4 ? threads + 1 : threads * 2) {
    add_team(threads);
  }
  if (max_threads > 1) {
    add_team(max_threads);
  }
  for (const IsaLevel level : kAllIsaLevels) {
    if (level != isa && missing_feature(level, cpu_features()).empty()) {
      out.push_back(
          {.name = fmt::format("instruction set {}", isa_level_name(level)), .isa = level});
    }
  }
  return out;
}

Permutation mixed_permutation(Dice& dice, int index, int max_threads) {
  std::vector<IsaLevel> levels;
  for (const IsaLevel level : kAllIsaLevels) {
    if (missing_feature(level, cpu_features()).empty()) {
      levels.push_back(level);
    }
  }
  Permutation out{
      .batch = dice.below(4) == 0 ? Permutation::Batch::kAll : Permutation::Batch::kRandom,
      .chunks = dice.below(4) == 0 ? Permutation::Chunks::kWhole : Permutation::Chunks::kRandom,
      .num_threads = 1 + dice.below(max_threads),
      .shuffled_pages = dice.flip(),
      .few_rows = dice.flip(),
      .forks = dice.flip(),
      .rollbacks = dice.flip(),
      .isa =
          levels[static_cast<std::size_t>(dice.below(static_cast<std::int32_t>(levels.size())))]};
  out.name =
      fmt::format("mixture {} ({}{}{}{}{}{} threads, {})", index,
                  out.chunks == Permutation::Chunks::kRandom ? "random chunks, " : "",
                  out.shuffled_pages ? "shuffled pages, " : "", out.few_rows ? "some rows, " : "",
                  out.forks ? "shared prefixes, " : "", out.rollbacks ? "rollbacks, " : "",
                  out.num_threads, isa_level_name(out.isa));
  return out;
}

constexpr std::int32_t kLongestWindow = 1024;
constexpr std::int32_t kTokensPastWindow = 3 * kPageTokens + 1;

// 0: no layer has a window.
std::int32_t smallest_window(const ModelConfig& config) {
  std::int32_t out = 0;
  for (const LayerConfig& layer : config.layers) {
    if (layer.window > 0 && (out == 0 || layer.window < out)) {
      out = layer.window;
    }
  }
  return out;
}

Prompts make_prompts(const ModelConfig& config, const InvarianceOptions& options) {
  Dice dice(options.seed ^ 0x70726f6d707473u);
  const auto made = [&](std::int32_t length) {
    std::vector<std::int32_t> prompt(
        static_cast<std::size_t>(std::min(length, config.context_length)));
    for (std::int32_t& token : prompt) {
      token = dice.below(config.vocab_size);
    }
    return prompt;
  };
  Prompts out;
  for (const auto& prompt : options.prompts) {
    out.add(prompt, 0);
  }
  if (options.prompts.empty()) {
    for (const std::int32_t length : {33, 1, 47, 17, 64}) {
      out.add(made(length), 0);
    }
  }
  const std::int32_t window = smallest_window(config);
  if ((options.prompts.empty() || options.adds_window_prompt) && window > 0 &&
      window <= kLongestWindow && window + kTokensPastWindow <= config.context_length) {
    out.add(made(window + kTokensPastWindow), window - 1);
  }
  return out;
}

std::optional<InvarianceDifference> compare(std::span<const float> expected,
                                            std::span<const float> got) {
  if (std::memcmp(expected.data(), got.data(), expected.size_bytes()) == 0) {
    return std::nullopt;
  }
  InvarianceDifference out;
  for (std::size_t i = expected.size(); i-- > 0;) {
    if (std::bit_cast<std::uint32_t>(expected[i]) != std::bit_cast<std::uint32_t>(got[i])) {
      ++out.num_different;
      out.token = static_cast<std::int32_t>(i);
      out.expected = expected[i];
      out.got = got[i];
    }
  }
  return out;
}

Status check_prompts(const Prompts& prompts, const ModelConfig& config) {
  for (std::size_t i = 0; i < prompts.tokens.size(); ++i) {
    const std::size_t length = prompts.tokens[i].size();
    if (length == 0 || length > static_cast<std::size_t>(config.context_length)) {
      return fail(ErrorCode::kInvalidArgument,
                  "prompt {} has {} tokens, must be in [1, {}] (the context)", i, length,
                  config.context_length);
    }
  }
  return {};
}

// Runs all prompts under `how`; false when the sink ended it.
Result<bool> run_all(const Model& model, const Permutation& how, const Prompts& prompts,
                     const InvarianceOptions& options, std::uint64_t seed, const RowSink& sink) {
  const IsaScope scope(how.isa);
  Run run(model, how, prompts, seed);
  if (Status status = run.start(options.kv_dtype, seed); !status.has_value()) {
    return tl::unexpected(std::move(status).error().with_context(how.name));
  }
  Result<bool> done = run.finish(sink, options.cancel);
  if (!done.has_value()) {
    return tl::unexpected(std::move(done).error().with_context(how.name));
  }
  return done;
}

}  // namespace

Result<InvarianceReport> verify_invariance(const Model& model, const InvarianceOptions& options) {
  TRINE_TRY(select_isa_level());
  const ModelConfig& config = model.config();
  const Prompts prompts = make_prompts(config, options);
  TRINE_TRY(check_prompts(prompts, config));
  const auto width = static_cast<std::size_t>(config.vocab_size);
  std::vector<std::vector<float>> reference(prompts.tokens.size());
  const Permutation alone{.name = "reference", .isa = isa_level()};
  TRINE_TRY(run_all(model, alone, prompts, options, options.seed,
                    [&](std::size_t sequence, std::int32_t, std::span<const float> row) {
                      reference[sequence].insert(reference[sequence].end(), row.begin(), row.end());
                      return true;
                    }));

  const int max_threads = options.max_threads > 0
                              ? options.max_threads
                              : std::max(2, static_cast<int>(std::thread::hardware_concurrency()));
  std::vector<Permutation> permutations = single_permutations(max_threads);
  Dice dice(options.seed);
  for (int i = 0; i < options.num_mixed; ++i) {
    permutations.push_back(mixed_permutation(dice, i + 1, max_threads));
  }

  InvarianceReport report;
  report.seed = options.seed;
  for (std::size_t p = 0; p < permutations.size(); ++p) {
    const Permutation& how = permutations[p];
    const RowSink sink = [&](std::size_t sequence, std::int32_t position,
                             std::span<const float> row) {
      const auto row_idx = static_cast<std::size_t>(position - prompts.first_rows[sequence]);
      const auto expected =
          std::span<const float>(reference[sequence]).subspan(row_idx * width, width);
      ++report.num_rows;
      report.num_values += static_cast<std::int64_t>(width);
      report.difference = compare(expected, row);
      if (report.difference) {
        report.difference->permutation = how.name;
        report.difference->sequence = static_cast<std::int32_t>(sequence);
        report.difference->position = position;
      }
      return !report.difference.has_value();
    };
    TRINE_TRY_ASSIGN(const bool equal,
                     run_all(model, how, prompts, options, options.seed + p, sink));
    report.permutations.push_back(how.name);
    if (options.progress) {
      options.progress(how.name, equal);
    }
    if (!equal) {
      break;
    }
  }
  return report;
}

std::string describe(const InvarianceDifference& difference) {
  return fmt::format(
      "{}: prompt {}, position {}: logit of token {} is {:.9g} ({:a}), expected {:.9g} ({:a}); {} "
      "values of the row differ",
      difference.permutation, difference.sequence, difference.position, difference.token,
      difference.got, difference.got, difference.expected, difference.expected,
      difference.num_different);
}

}  // namespace trine
