// Making and cutting marked texts. Every byte keeps its mark. Errors: exhausted when a text would
// pass a limit. Thread rule: as the heap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/value.h"

namespace trine::text::jinja {

// Grows a marked text. Past the limit it stops growing and finish() reports.
class StrBuilder {
 public:
  // `max_bytes` bounds this text alone; what the heap has left bounds it and its marks.
  explicit StrBuilder(Heap& heap, std::size_t max_bytes = SIZE_MAX)
      : heap_(heap), max_bytes_(max_bytes) {}

  void add(std::string_view text, bool user);

  void add(const Str& s) { add(s, 0, s.text.size()); }

  void add(const Str& s, std::size_t from, std::size_t to);
  void add_code_point(char32_t c, bool user);
  void repeat(std::string_view text, std::size_t count, bool user);

  std::size_t size() const { return text_.size(); }

  bool overflow() const { return overflow_; }

  void set_markup(bool on) { markup_ = on; }

  Status check() const;
  Result<const Str*> finish();
  Result<Value> value();

  const std::string& text() const { return text_; }

  const std::vector<Run>& runs() const { return runs_; }

 private:
  Heap& heap_;
  std::size_t max_bytes_;
  bool overflow_ = false;
  bool markup_ = false;
  std::string text_;
  std::vector<Run> runs_;
};

// Byte offset of code point `index` (clamped to the end).
std::size_t byte_offset(const Str& s, std::size_t index);
Result<Value> substring(Heap& heap, const Str& s, std::size_t from_byte, std::size_t to_byte);
// Linear-time search. Both return npos when absent.
std::size_t find_text(std::string_view text, std::string_view needle, std::size_t from = 0);
std::size_t rfind_text(std::string_view text, std::string_view needle);

}  // namespace trine::text::jinja
