#include "text/jinja/str_builder.h"

#include <algorithm>
#include <cstring>

#include "text/jinja/unicode.h"

namespace trine::text::jinja {

void StrBuilder::add(std::string_view text, bool user) {
  if (text.empty() || overflow_) {
    return;
  }
  if (text.size() > max_bytes_ - text_.size() ||
      heap_.would_exceed(text_.size() + text.size() + (runs_.size() + 1) * sizeof(Run))) {
    overflow_ = true;
    return;
  }
  text_.append(text);
  if (!runs_.empty() && runs_.back().user == user) {
    runs_.back().end = text_.size();
  } else {
    runs_.push_back({text_.size(), user});
  }
}

void StrBuilder::add(const Str& s, std::size_t from, std::size_t to) {
  if (from >= to) {
    return;
  }
  auto run = std::upper_bound(s.runs.begin(), s.runs.end(), from,
                              [](std::size_t b, const Run& r) { return b < r.end; });
  const std::string_view text = s.text;
  while (from < to) {
    const std::size_t end = std::min(to, run->end);
    add(text.substr(from, end - from), run->user);
    from = end;
    ++run;
  }
}

void StrBuilder::add_code_point(char32_t c, bool user) {
  char buffer[4];
  add({buffer, encode_utf8(c, buffer)}, user);
}

void StrBuilder::repeat(std::string_view text, std::size_t count, bool user) {
  if (text.empty() || count == 0) {
    return;
  }
  if (count > (SIZE_MAX >> 1) / text.size() ||
      heap_.would_exceed(text_.size() + count * text.size())) {
    overflow_ = true;
    return;
  }
  for (std::size_t i = 0; i < count && !overflow_; ++i) {
    add(text, user);
  }
}

Status StrBuilder::check() const {
  if (overflow_) {
    return fail(ErrorCode::kExhausted, "the template builds a text larger than {} bytes",
                std::min(max_bytes_, heap_.limits().heap_bytes));
  }
  return {};
}

Result<const Str*> StrBuilder::finish() {
  TRINE_TRY(check());
  TRINE_TRY(heap_.charge(text_.size() + runs_.size() * sizeof(Run)));
  TRINE_TRY(heap_.text_work(text_.size()));
  Str* s = heap_.make<Str>();
  s->text = std::move(text_);
  s->runs = std::move(runs_);
  s->num_chars = count_code_points(s->text);
  s->markup = markup_;
  return s;
}

Result<Value> StrBuilder::value() {
  TRINE_TRY_ASSIGN(const Str* s, finish());
  return Value::of(s);
}

std::size_t byte_offset(const Str& s, std::size_t index) {
  if (s.ascii()) {
    return std::min(index, s.text.size());
  }
  std::size_t pos = 0;
  for (std::size_t i = 0; i < index && pos < s.text.size(); ++i) {
    next_code_point(s.text, pos);
  }
  return pos;
}

Result<Value> substring(Heap& heap, const Str& s, std::size_t from_byte, std::size_t to_byte) {
  StrBuilder b(heap);
  b.add(s, from_byte, to_byte);
  b.set_markup(s.markup);
  return b.value();
}

std::size_t find_text(std::string_view text, std::string_view needle, std::size_t from) {
  if (from > text.size()) {
    return std::string_view::npos;
  }
  if (needle.empty()) {
    return from;
  }
  // glibc's memmem is linear; string_view::find is quadratic on hostile text.
  const void* at = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  return at == nullptr ? std::string_view::npos
                       : static_cast<std::size_t>(static_cast<const char*>(at) - text.data());
}

std::size_t rfind_text(std::string_view text, std::string_view needle) {
  if (needle.size() > text.size()) {
    return std::string_view::npos;
  }
  if (needle.empty()) {
    return text.size();
  }
  // Knuth-Morris-Pratt on the reversed strings, so that hostile text stays linear.
  const std::size_t m = needle.size();
  const auto pattern = [&](std::size_t i) { return needle[m - 1 - i]; };
  std::vector<std::size_t> fallback(m, 0);
  for (std::size_t i = 1, k = 0; i < m; ++i) {
    while (k > 0 && pattern(i) != pattern(k)) {
      k = fallback[k - 1];
    }
    k += pattern(i) == pattern(k) ? 1U : 0U;
    fallback[i] = k;
  }
  for (std::size_t i = 0, k = 0; i < text.size(); ++i) {
    const char c = text[text.size() - 1 - i];
    while (k > 0 && c != pattern(k)) {
      k = fallback[k - 1];
    }
    k += c == pattern(k) ? 1U : 0U;
    if (k == m) {
      return text.size() - 1 - i;
    }
  }
  return std::string_view::npos;
}

}  // namespace trine::text::jinja
