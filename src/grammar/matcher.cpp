#include "grammar/matcher.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "grammar/limits.h"

namespace trine::grammar {
namespace {

constexpr std::uint32_t kUnknown = 0xffffffffu;
constexpr std::uint32_t kNone = 0xfffffffeu;
// Sets that one walk may make, and that are kept from walk to walk: a row of transitions is 1 KiB.
constexpr std::size_t kMaxSets = 16384;

struct FingerprintHash {
  std::size_t operator()(const Fingerprint& f) const { return static_cast<std::size_t>(f[0]); }
};

}  // namespace

// A walk of the vocabulary steps through sets that repeat; each is made once and then is a row of a
// table, as a deterministic automaton built on demand.
class CompiledGrammar::Masks {
 public:
  Masks(std::shared_ptr<const Automaton> automaton, const TokenTrie& trie)
      : trie_(trie), stepper_(std::move(automaton)), path_(trie.max_depth() + 1) {}

  Status get(const Stepper& from, std::span<const Config> set, std::span<std::uint64_t> out) {
    const Fingerprint key = from.fingerprint(set);
    const std::lock_guard lock(mutex_);
    auto found = masks_.find(key);
    if (found == masks_.end()) {
      std::vector<std::uint64_t> mask(trie_.mask_words(), 0);
      TRINE_TRY(compute(from, set, mask));
      const std::size_t bytes = mask.size() * sizeof(std::uint64_t) + 64;
      if ((masks_.size() + 1) * bytes > kMaskCacheBytes) {
        masks_.clear();
      }
      found = masks_.emplace(key, std::move(mask)).first;
    }
    std::copy(found->second.begin(), found->second.end(), out.begin());
    return {};
  }

 private:
  struct Set {
    std::uint32_t first = 0, count = 0;
  };

  void reset() {
    stepper_.clear();
    configs_.clear();
    sets_.clear();
    rows_.clear();
    ids_.clear();
  }

  Status compute(const Stepper& from, std::span<const Config> set,
                 std::vector<std::uint64_t>& mask) {
    if (sets_.size() > kMaxSets / 2 || stepper_.num_cells() > kMaxStackNodes / 2) {
      reset();
    }
    scratch_.clear();
    TRINE_TRY(stepper_.import(from, set, scratch_));
    const std::uint64_t limit = stepper_.work() + kMaxMaskWork;
    const std::size_t most_sets = sets_.size() + kMaxSets;
    path_[0] = intern();
    const auto nodes = trie_.nodes();
    for (std::uint32_t i = 0; i < nodes.size();) {
      const TokenTrie::Node& node = nodes[i];
      const std::uint32_t at = path_[node.depth];
      std::uint32_t to = rows_[std::size_t{at} * 256 + node.byte];
      if (to == kUnknown) {
        if (stepper_.work() > limit || sets_.size() > most_sets) {
          return fail(ErrorCode::kExhausted,
                      "grammar mask: more than {} closure operations or {} sets", kMaxMaskWork,
                      kMaxSets);
        }
        TRINE_TRY_ASSIGN(to, step(at, node.byte));
      }
      if (to == kNone) {
        i = node.end;
        continue;
      }
      for (std::uint32_t k = 0; k < node.num_tokens; ++k) {
        const auto id = static_cast<std::size_t>(trie_.token_ids()[node.first_token + k]);
        mask[id / 64] |= std::uint64_t{1} << (id % 64);
      }
      path_[node.depth + 1] = to;
      ++i;
    }
    if (accepts(set)) {
      for (const std::int32_t id : trie_.stop_ids()) {
        if (id >= 0 && id < trie_.vocab_size()) {
          mask[static_cast<std::size_t>(id) / 64] |= std::uint64_t{1} << (id % 64);
        }
      }
    }
    return {};
  }

  Result<std::uint32_t> step(std::uint32_t at, std::uint8_t byte) {
    scratch_.clear();
    const Set set = sets_[at];
    TRINE_TRY(stepper_.step(std::span(configs_).subspan(set.first, set.count), byte, scratch_));
    const std::uint32_t to = scratch_.empty() ? kNone : intern();
    rows_[std::size_t{at} * 256 + byte] = to;
    return to;
  }

  // The number of the set in scratch_.
  std::uint32_t intern() {
    const auto [it, added] =
        ids_.emplace(stepper_.fingerprint(scratch_), static_cast<std::uint32_t>(sets_.size()));
    if (added) {
      sets_.push_back({static_cast<std::uint32_t>(configs_.size()),
                       static_cast<std::uint32_t>(scratch_.size())});
      configs_.insert(configs_.end(), scratch_.begin(), scratch_.end());
      rows_.resize(rows_.size() + 256, kUnknown);
    }
    return it->second;
  }

  const TokenTrie& trie_;
  std::mutex mutex_;
  std::unordered_map<Fingerprint, std::vector<std::uint64_t>, FingerprintHash> masks_;
  Stepper stepper_;
  std::vector<Config> configs_, scratch_;
  std::vector<Set> sets_;
  std::vector<std::uint32_t> rows_;  // 256 per set
  std::unordered_map<Fingerprint, std::uint32_t, FingerprintHash> ids_;
  std::vector<std::uint32_t> path_;  // set after each byte of the walk
};

CompiledGrammar::CompiledGrammar(std::shared_ptr<const Automaton> automaton,
                                 std::shared_ptr<const TokenTrie> vocabulary)
    : automaton_(std::move(automaton)),
      vocabulary_(std::move(vocabulary)),
      masks_(std::make_unique<Masks>(automaton_, *vocabulary_)) {}

CompiledGrammar::~CompiledGrammar() = default;

std::shared_ptr<const CompiledGrammar> CompiledGrammar::create(
    std::shared_ptr<const Automaton> automaton, std::shared_ptr<const TokenTrie> vocabulary) {
  return std::shared_ptr<const CompiledGrammar>(
      new CompiledGrammar(std::move(automaton), std::move(vocabulary)));
}

Matcher::Matcher(std::shared_ptr<const CompiledGrammar> grammar)
    : grammar_(std::move(grammar)), stepper_(grammar_->automaton()) {
  offsets_.reserve(2 * kMaxRollback + 2);
  configs_.reserve(4 * offsets_.capacity());  // most sets are small: steps then allocate nothing
}

Result<Matcher> Matcher::create(std::shared_ptr<const CompiledGrammar> grammar) {
  Matcher made(std::move(grammar));
  TRINE_TRY(made.stepper_.start(made.from_));
  made.push_set(made.from_);
  return made;
}

// Twice what rollback can ask for is kept, so that dropping the old half is rare.
void Matcher::push_set(std::span<const Config> set) {
  if (offsets_.size() > 2 * kMaxRollback) {
    const std::uint32_t gone = offsets_[kMaxRollback];
    configs_.erase(configs_.begin(), configs_.begin() + gone);
    offsets_.erase(offsets_.begin(), offsets_.begin() + kMaxRollback);
    for (std::uint32_t& offset : offsets_) {
      offset -= gone;
    }
  }
  offsets_.push_back(static_cast<std::uint32_t>(configs_.size()));
  configs_.insert(configs_.end(), set.begin(), set.end());
}

Result<std::size_t> Matcher::run(std::string_view bytes) {
  from_.assign(current().begin(), current().end());
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    to_.clear();
    TRINE_TRY(stepper_.step(from_, static_cast<std::uint8_t>(bytes[i]), to_));
    if (to_.empty()) {
      return i;
    }
    from_.swap(to_);
  }
  return bytes.size();
}

Status Matcher::accept(std::int32_t token) {
  if (grammar_->vocabulary().is_stop(token)) {
    if (!is_accepting()) {
      return fail(ErrorCode::kInvalidArgument, "grammar: stop token {} before the text is complete",
                  token);
    }
    push_set({});
    return {};
  }
  const std::string_view bytes = grammar_->vocabulary().bytes(token);
  if (bytes.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "grammar: token {} is a control token or outside the vocabulary", token);
  }
  TRINE_TRY_ASSIGN(const std::size_t fits, run(bytes));
  if (fits < bytes.size()) {
    return fail(ErrorCode::kInvalidArgument, "grammar: token {} is not allowed here (its byte {})",
                token, fits);
  }
  push_set(from_);
  return {};
}

Status Matcher::accept_bytes(std::string_view bytes) {
  TRINE_TRY_ASSIGN(const std::size_t fits, run(bytes));
  if (fits < bytes.size()) {
    return fail(ErrorCode::kInvalidArgument, "grammar: the text is not allowed from its byte {} on",
                fits);
  }
  push_set(from_);
  return {};
}

Status Matcher::rollback(std::size_t count) {
  const std::size_t most = std::min(offsets_.size() - 1, kMaxRollback);
  if (count > most) {
    return fail(ErrorCode::kInvalidArgument, "grammar: rollback of {} tokens, at most {} here",
                count, most);
  }
  if (count > 0) {
    configs_.resize(offsets_[offsets_.size() - count]);
    offsets_.resize(offsets_.size() - count);
  }
  return {};
}

Status Matcher::mask(std::span<std::uint64_t> out) const {
  if (out.size() != grammar_->vocabulary().mask_words()) {
    return fail(ErrorCode::kInvalidArgument, "grammar mask: {} words, the vocabulary has {}",
                out.size(), grammar_->vocabulary().mask_words());
  }
  return grammar_->masks_->get(stepper_, current(), out);
}

Status Matcher::forced_bytes(std::size_t max_bytes, std::string& out) {
  from_.assign(current().begin(), current().end());
  for (std::size_t i = 0; i < max_bytes; ++i) {
    const int byte = stepper_.only_byte(from_);
    if (byte < 0) {
      break;
    }
    to_.clear();
    TRINE_TRY(stepper_.step(from_, static_cast<std::uint8_t>(byte), to_));
    if (to_.empty()) {
      break;
    }
    out += static_cast<char>(byte);
    from_.swap(to_);
  }
  return {};
}

Status Matcher::forced_tokens(std::size_t max_tokens, std::vector<std::int32_t>& out) {
  const TokenTrie& trie = grammar_->vocabulary();
  std::string bytes;
  TRINE_TRY(forced_bytes(max_tokens * std::size_t{16}, bytes));
  std::size_t pos = 0;
  for (std::size_t n = 0; n < max_tokens && pos < bytes.size(); ++n) {
    std::int32_t best = -1;
    std::size_t size = 0;
    const auto nodes = trie.nodes();
    std::size_t depth = 0;
    for (std::uint32_t i = 0, end = static_cast<std::uint32_t>(nodes.size());
         i < end && pos + depth < bytes.size();) {
      if (nodes[i].byte != static_cast<std::uint8_t>(bytes[pos + depth])) {
        i = nodes[i].end;
        continue;
      }
      ++depth;
      if (nodes[i].num_tokens > 0) {
        best = trie.token_ids()[nodes[i].first_token];
        size = depth;
      }
      end = nodes[i].end;
      ++i;
    }
    if (best < 0) {
      break;
    }
    out.push_back(best);
    pos += size;
  }
  return {};
}

}  // namespace trine::grammar
