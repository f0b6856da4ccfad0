#include <cmath>
#include <limits>

#include "text/models.h"
#include "text/unicode.h"

namespace trine::text {
namespace {

// What an unknown character costs below the rarest piece (SentencePiece's constant).
constexpr double kUnkPenalty = 10.0;

class Unigram final : public Model {
 public:
  Unigram(const Vocab& vocab, std::vector<double> scores, const UnigramOptions& options,
          ByteTrie trie)
      : vocab_(vocab), scores_(std::move(scores)), options_(options), trie_(std::move(trie)) {
    double lowest = std::numeric_limits<double>::infinity();
    for (std::int32_t id = 0; id < vocab_.size(); ++id) {
      const double score = scores_[static_cast<std::size_t>(id)];
      lowest = score < lowest ? score : lowest;  // false for NaN
    }
    unk_score_ = lowest - kUnkPenalty;
  }

  Status encode(std::string_view piece, std::vector<std::int32_t>& out) const override {
    // best[i]: the best way to reach byte i.
    struct Node {
      double score = 0;
      std::size_t begin = kUnreached;
      std::int32_t id = kNoToken;
    };

    std::vector<Node> best(piece.size() + 1);
    const auto relax = [&](std::size_t begin, std::size_t end, std::int32_t id, double step) {
      const double score = best[begin].score + step;
      if (best[end].begin == kUnreached || score > best[end].score) {
        best[end] = {score, begin, id};
      }
    };
    for (std::size_t pos = 0; pos < piece.size();) {
      const std::size_t char_size = code_point_at(piece, pos).size;
      bool has_single = false;
      trie_.each(piece, pos, [&](std::size_t size, std::int32_t id) {
        relax(pos, pos + size, id, scores_[static_cast<std::size_t>(id)]);
        has_single = has_single || size == char_size;
      });
      if (!has_single) {
        relax(pos, pos + char_size, kNoToken, unk_score_);
      }
      pos += char_size;
    }
    // Back along the path. Unknown neighbours are one unknown stretch.
    std::vector<std::pair<std::string_view, std::int32_t>> path;
    for (std::size_t end = piece.size(); end > 0;) {
      std::size_t begin = best[end].begin;
      const std::int32_t id = best[end].id;
      while (is_unknown(id) && begin > 0 && is_unknown(best[begin].id)) {
        begin = best[begin].begin;
      }
      path.emplace_back(piece.substr(begin, end - begin), id);
      end = begin;
    }
    for (auto it = path.rbegin(); it != path.rend(); ++it) {
      TRINE_TRY(append(it->first, it->second, out));
    }
    return {};
  }

 private:
  static constexpr std::size_t kUnreached = std::numeric_limits<std::size_t>::max();

  bool is_unknown(std::int32_t id) const { return id == kNoToken || id == options_.unk; }

  Status append(std::string_view text, std::int32_t id, std::vector<std::int32_t>& out) const {
    if (is_unknown(id)) {
      id = vocab_.find_text(text);
    }
    if (id != kNoToken) {
      out.push_back(id);
      return {};
    }
    if (options_.byte_fallback && append_byte_tokens(vocab_, text, out)) {
      return {};
    }
    if (options_.unk == kNoToken) {
      return fail(ErrorCode::kInvalidArgument,
                  "the vocabulary cannot express \"{}\" and the model names no unknown token",
                  text.substr(0, 40));
    }
    out.push_back(options_.unk);
    return {};
  }

  const Vocab& vocab_;
  const std::vector<double> scores_;
  const UnigramOptions options_;
  const ByteTrie trie_;
  double unk_score_ = 0;
};

}  // namespace

Result<std::unique_ptr<const Model>> make_unigram(const Vocab& vocab, std::vector<double> scores,
                                                  const UnigramOptions& options) {
  std::vector<std::pair<std::string, std::int32_t>> entries;
  for (std::int32_t id = 0; id < vocab.size(); ++id) {
    const std::string& piece = vocab.piece(id);
    if (piece.empty() || std::isnan(scores[static_cast<std::size_t>(id)]) ||
        vocab.find_text(piece) == kNoToken) {
      continue;
    }
    if (piece.size() > kMaxAddedTokenBytes) {
      return fail(ErrorCode::kCorruptData, "unigram token {}: {} bytes, at most {}", id,
                  piece.size(), kMaxAddedTokenBytes);
    }
    entries.emplace_back(piece, id);
  }
  ByteTrie trie;
  trie.build(std::move(entries));
  return std::make_unique<const Unigram>(vocab, std::move(scores), options, std::move(trie));
}

}  // namespace trine::text
