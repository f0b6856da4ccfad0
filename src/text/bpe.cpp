// Both BPE models: by merge rank and by piece score.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <queue>

#include "text/models.h"
#include "text/unicode.h"

namespace trine::text {
namespace {

constexpr std::size_t kMaxPiece = std::size_t{1} << 31;
// Below this many symbols a scan for the best merge is quicker than a heap; both find the same
// merges.
constexpr std::size_t kScanSymbols = 24;

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

struct MergeRule {
  std::int32_t rank = std::numeric_limits<std::int32_t>::max();
  std::int32_t id = kNoToken;  // kNoToken: no such merge
};

// (left id, right id) -> merge; open addressing, half full at most.
class MergeTable {
 public:
  void build(const std::vector<std::pair<std::uint64_t, MergeRule>>& rules) {
    std::size_t capacity = 16;
    while (capacity < rules.size() * 2) {
      capacity *= 2;
    }
    mask_ = capacity - 1;
    slots_.assign(capacity, Slot{});
    for (const auto& [key, rule] : rules) {
      std::size_t i = hash(key);
      while (slots_[i].rule.id != kNoToken && slots_[i].key != key) {
        i = (i + 1) & mask_;
      }
      slots_[i] = Slot{key, rule};  // a repeated merge: the last one counts, as in a map
    }
  }

  MergeRule find(std::int32_t left, std::int32_t right) const {
    const std::uint64_t key = pair_key(left, right);
    for (std::size_t i = hash(key); slots_[i].rule.id != kNoToken; i = (i + 1) & mask_) {
      if (slots_[i].key == key) {
        return slots_[i].rule;
      }
    }
    return {};
  }

 private:
  struct Slot {
    std::uint64_t key = 0;
    MergeRule rule;
  };

  std::size_t hash(std::uint64_t key) const {
    key ^= key >> 31;
    key *= 0x9e3779b97f4a7c15ULL;
    key ^= key >> 29;
    return static_cast<std::size_t>(key) & mask_;
  }

  std::vector<Slot> slots_;
  std::size_t mask_ = 0;
};

// A doubly linked list of symbols; `id` kNoToken marks one that was merged into its left neighbour.
struct Symbol {
  std::int32_t id = kNoToken;
  std::int32_t previous = -1;
  std::int32_t next = -1;
};

class Bpe final : public Model {
 public:
  Bpe(const Vocab& vocab, const BpeOptions& options, MergeTable merges)
      : vocab_(vocab), options_(options), merges_(std::move(merges)) {
    for (char32_t c = 0; c < kDirect; ++c) {
      std::string text;
      append_utf8(text, c);
      direct_.push_back(vocab_.find_text(text));
    }
  }

  Status encode(std::string_view piece, std::vector<std::int32_t>& out) const override {
    if (piece.size() >= kMaxPiece) {
      return fail(ErrorCode::kExhausted, "a piece of {} bytes between two split points, at most {}",
                  piece.size(), kMaxPiece);
    }
    if (options_.ignore_merges) {
      if (const std::int32_t id = vocab_.find_text(piece); id != kNoToken) {
        out.push_back(id);
        return {};
      }
    }
    const std::size_t begin = out.size();
    append_characters(piece, out);
    const std::size_t count = out.size() - begin;
    if (count < 2) {
      return {};
    }
    if (count <= kScanSymbols) {
      merge_by_scan(out, begin);
    } else {
      merge_by_heap(out, begin);
    }
    return {};
  }

 private:
  static constexpr char32_t kDirect = 0x250;  // covers the byte-level alphabet

  std::int32_t character_id(std::string_view piece, std::size_t pos, const CodePoint& c) const {
    return c.value < kDirect ? direct_[c.value] : vocab_.find_text(piece.substr(pos, c.size));
  }

  // One id per character; unknown ones as byte tokens, the unknown token, or (as the reference
  // does) left out.
  void append_characters(std::string_view piece, std::vector<std::int32_t>& out) const {
    bool pending_unk = false;
    for (std::size_t pos = 0; pos < piece.size();) {
      const CodePoint c = code_point_at(piece, pos);
      const std::string_view text = piece.substr(pos, c.size);
      const std::int32_t id = character_id(piece, pos, c);
      pos += c.size;
      if (id != kNoToken) {
        if (pending_unk) {
          out.push_back(options_.unk);
          pending_unk = false;
        }
        out.push_back(id);
        continue;
      }
      if (options_.byte_fallback && append_byte_tokens(vocab_, text, out)) {
        continue;
      }
      if (options_.unk != kNoToken) {
        if (pending_unk && !options_.fuse_unk) {
          out.push_back(options_.unk);
        }
        pending_unk = true;
      }
    }
    if (pending_unk) {
      out.push_back(options_.unk);
    }
  }

  void merge_by_scan(std::vector<std::int32_t>& out, std::size_t begin) const {
    std::size_t count = out.size() - begin;
    std::int32_t* const ids = out.data() + begin;
    std::int32_t ranks[kScanSymbols];
    std::int32_t results[kScanSymbols];
    const auto look = [&](std::size_t i) {
      const MergeRule rule = merges_.find(ids[i], ids[i + 1]);
      ranks[i] = rule.rank;
      results[i] = rule.id;
    };
    for (std::size_t i = 0; i + 1 < count; ++i) {
      look(i);
    }
    while (count > 1) {
      const auto best =
          static_cast<std::size_t>(std::min_element(ranks, ranks + count - 1) - ranks);
      if (ranks[best] == MergeRule{}.rank) {
        break;
      }
      ids[best] = results[best];
      for (std::size_t i = best + 1; i + 1 < count; ++i) {
        ids[i] = ids[i + 1];
        ranks[i] = ranks[i + 1 < count - 1 ? i + 1 : i];
        results[i] = results[i + 1 < count - 1 ? i + 1 : i];
      }
      --count;
      if (best + 1 < count) {
        look(best);
      }
      if (best > 0) {
        look(best - 1);
      }
    }
    out.resize(begin + count);
  }

  struct Candidate {
    std::int32_t rank = 0;
    std::int32_t pos = 0;
    std::int32_t id = 0;

    bool operator<(const Candidate& other)
        const {  // for a max-heap: the best is the lowest rank, then position
      return rank != other.rank ? rank > other.rank : pos > other.pos;
    }
  };

  void merge_by_heap(std::vector<std::int32_t>& out, std::size_t begin) const {
    const auto count = static_cast<std::int32_t>(out.size() - begin);
    std::vector<Symbol> symbols(static_cast<std::size_t>(count));
    const auto at = [&](std::int32_t i) -> Symbol& { return symbols[static_cast<std::size_t>(i)]; };
    for (std::int32_t i = 0; i < count; ++i) {
      at(i) = {out[begin + static_cast<std::size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1};
    }
    std::vector<Candidate> start;
    const auto candidate = [&](std::int32_t left, std::int32_t right) -> Candidate {
      const MergeRule rule = merges_.find(at(left).id, at(right).id);
      return {rule.rank, left, rule.id};
    };
    for (std::int32_t i = 0; i + 1 < count; ++i) {
      if (const Candidate c = candidate(i, i + 1); c.id != kNoToken) {
        start.push_back(c);
      }
    }
    std::priority_queue<Candidate> heap(std::less<Candidate>(), std::move(start));
    while (!heap.empty()) {
      const Candidate top = heap.top();
      heap.pop();
      Symbol& left = at(top.pos);
      if (left.id == kNoToken || left.next < 0 ||
          merges_.find(left.id, at(left.next).id).id != top.id) {
        continue;  // one of the two was merged with another neighbour meanwhile
      }
      Symbol& right = at(left.next);
      left.id = top.id;
      left.next = right.next;
      right.id = kNoToken;
      if (left.next >= 0) {
        at(left.next).previous = top.pos;
        if (const Candidate c = candidate(top.pos, left.next); c.id != kNoToken) {
          heap.push(c);
        }
      }
      if (left.previous >= 0) {
        if (const Candidate c = candidate(left.previous, top.pos); c.id != kNoToken) {
          heap.push(c);
        }
      }
    }
    out.resize(begin);
    for (std::int32_t i = 0; i >= 0; i = at(i).next) {
      out.push_back(at(i).id);
    }
  }

  const Vocab& vocab_;
  const BpeOptions options_;
  const MergeTable merges_;
  std::vector<std::int32_t> direct_;  // ids of the characters below kDirect
};

// Symbols are stretches of text, because a stretch may merge although it is no piece itself.
class SpmBpe final : public Model {
 public:
  SpmBpe(const Vocab& vocab, std::vector<float> scores, std::int32_t unk)
      : vocab_(vocab), scores_(std::move(scores)), unk_(unk) {}

  Status encode(std::string_view piece, std::vector<std::int32_t>& out) const override {
    if (piece.size() >= kMaxPiece) {
      return fail(ErrorCode::kExhausted, "a text of {} bytes, at most {}", piece.size(), kMaxPiece);
    }
    std::vector<Stretch> symbols;
    for (std::size_t pos = 0; pos < piece.size();) {
      const std::size_t size = code_point_at(piece, pos).size;
      const auto i = static_cast<std::int32_t>(symbols.size());
      symbols.push_back({static_cast<std::uint32_t>(pos), static_cast<std::uint32_t>(size), i - 1,
                         pos + size < piece.size() ? i + 1 : -1});
      pos += size;
    }
    merge(piece, symbols);
    for (std::int32_t i = symbols.empty() ? -1 : 0; i >= 0;
         i = symbols[static_cast<std::size_t>(i)].next) {
      const Stretch& s = symbols[static_cast<std::size_t>(i)];
      const std::string_view text = piece.substr(s.begin, s.size);
      if (const std::int32_t id = vocab_.find_text(text); id != kNoToken) {
        out.push_back(id);
      } else if (!append_byte_tokens(vocab_, text, out) && unk_ != kNoToken) {
        out.push_back(unk_);
      }
    }
    return {};
  }

 private:
  struct Stretch {
    std::uint32_t begin = 0;
    std::uint32_t size = 0;  // 0: merged into its left neighbour
    std::int32_t previous = -1;
    std::int32_t next = -1;
  };

  struct Candidate {
    float score = 0;
    std::int32_t left = 0;
    std::int32_t right = 0;
    std::uint32_t size = 0;

    bool operator<(
        const Candidate& other) const {  // the best has the highest score, then the lowest position
      return score != other.score ? score < other.score : left > other.left;
    }
  };

  void merge(std::string_view piece, std::vector<Stretch>& symbols) const {
    const auto at = [&](std::int32_t i) -> Stretch& {
      return symbols[static_cast<std::size_t>(i)];
    };
    std::priority_queue<Candidate> heap;
    const auto consider = [&](std::int32_t left, std::int32_t right) {
      if (left < 0 || right < 0) {
        return;
      }
      const std::uint32_t size = at(left).size + at(right).size;
      if (size > vocab_.max_piece_bytes()) {
        return;
      }
      const std::int32_t id = vocab_.find_text(piece.substr(at(left).begin, size));
      if (id != kNoToken && vocab_.kind(id) != TokenKind::kUnknown) {
        heap.push({scores_[static_cast<std::size_t>(id)], left, right, size});
      }
    };
    for (std::int32_t i = 0; i + 1 < static_cast<std::int32_t>(symbols.size()); ++i) {
      consider(i, i + 1);
    }
    while (!heap.empty()) {
      const Candidate top = heap.top();
      heap.pop();
      Stretch& left = at(top.left);
      Stretch& right = at(top.right);
      if (left.size == 0 || right.size == 0 || left.size + right.size != top.size) {
        continue;
      }
      left.size += right.size;
      right.size = 0;
      left.next = right.next;
      if (left.next >= 0) {
        at(left.next).previous = top.left;
      }
      consider(left.previous, top.left);
      consider(top.left, left.next);
    }
  }

  const Vocab& vocab_;
  const std::vector<float> scores_;
  const std::int32_t unk_;
};

}  // namespace

bool append_byte_tokens(const Vocab& vocab, std::string_view text, std::vector<std::int32_t>& out) {
  const std::size_t begin = out.size();
  for (const char c : text) {
    const std::int32_t id = vocab.byte_token(static_cast<unsigned char>(c));
    if (id == kNoToken) {
      out.resize(begin);
      return false;
    }
    out.push_back(id);
  }
  return true;
}

Result<std::unique_ptr<const Model>> make_bpe(const Vocab& vocab,
                                              const std::vector<MergePair>& merges,
                                              const BpeOptions& options, std::string_view key) {
  std::vector<std::pair<std::uint64_t, MergeRule>> rules;
  rules.reserve(merges.size());
  for (std::size_t i = 0; i < merges.size(); ++i) {
    const auto& [left, right] = merges[i];
    const std::int32_t left_id = vocab.find(left);
    const std::int32_t right_id = vocab.find(right);
    const std::int32_t id = vocab.find(left + right);
    if (left_id == kNoToken || right_id == kNoToken || id == kNoToken) {
      return fail(ErrorCode::kCorruptData, "{}[{}]: \"{}\" + \"{}\": {} is not in the vocabulary",
                  key, i, left.substr(0, 80), right.substr(0, 80),
                  left_id == kNoToken    ? "the left part"
                  : right_id == kNoToken ? "the right part"
                                         : "the result");
    }
    if (vocab.find_text(left + right) == kNoToken) {
      continue;  // text may not become a control token
    }
    rules.push_back({pair_key(left_id, right_id), {static_cast<std::int32_t>(i), id}});
  }
  MergeTable table;
  table.build(rules);
  return std::make_unique<const Bpe>(vocab, options, std::move(table));
}

std::unique_ptr<const Model> make_spm_bpe(const Vocab& vocab, std::vector<float> scores,
                                          std::int32_t unk) {
  return std::make_unique<const SpmBpe>(vocab, std::move(scores), unk);
}

}  // namespace trine::text
