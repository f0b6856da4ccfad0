#include "eval/leakage.h"

#include "eval/scripts.h"
#include "text/unicode.h"

namespace trine::eval {
namespace {

// FNV-1a over a word.
std::uint64_t hash_word(std::string_view word) {
  std::uint64_t out = 0xcbf29ce484222325U;
  for (const char c : word) {
    out = (out ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  }
  return out;
}

std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

std::uint64_t hash_words(const std::vector<std::uint64_t>& words, std::size_t begin,
                         std::size_t count) {
  std::uint64_t out = count;
  for (std::size_t i = 0; i < count; ++i) {
    out = mix(out + words[begin + i]);
  }
  return out;
}

std::vector<std::uint64_t> words_of(std::string_view text) {
  const std::string form = text::normalize_utf8(text, text::NormalForm::kNfkc);
  std::vector<std::uint64_t> out;
  std::string word;
  const auto end_word = [&] {
    if (!word.empty()) {
      out.push_back(hash_word(word));
      word.clear();
    }
  };
  for (std::size_t at = 0; at < form.size();) {
    const text::CodePoint c = text::code_point_at(form, at);
    at += c.size;
    if ((text::char_class(c.value) & (text::kWord | text::kNumber)) == 0) {
      end_word();
      continue;
    }
    if (writes_without_blanks(c.value)) {
      end_word();
      text::append_utf8(word, c.value);
      end_word();
      continue;
    }
    text::append_lowercase(word, c.value);
  }
  end_word();
  return out;
}

}  // namespace

LeakageIndex::LeakageIndex(const std::vector<std::string>& calibration_texts) {
  for (const std::string& text : calibration_texts) {
    const std::vector<std::uint64_t> words = words_of(text);
    wholes_.insert(hash_words(words, 0, words.size()));
    for (std::size_t i = 0; i + kLeakWords <= words.size(); ++i) {
      grams_.insert(hash_words(words, i, kLeakWords));
    }
  }
}

double LeakageIndex::share(std::string_view text) const {
  const std::vector<std::uint64_t> words = words_of(text);
  if (words.size() < kLeakWords) {
    return !words.empty() && wholes_.contains(hash_words(words, 0, words.size())) ? 1.0 : 0.0;
  }
  std::size_t found = 0;
  const std::size_t total = words.size() - kLeakWords + 1;
  for (std::size_t i = 0; i < total; ++i) {
    found += grams_.contains(hash_words(words, i, kLeakWords)) ? 1U : 0U;
  }
  return static_cast<double>(found) / static_cast<double>(total);
}

}  // namespace trine::eval
