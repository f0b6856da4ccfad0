#include "apps/trine/line_core.h"

#include <algorithm>
#include <array>
#include <utility>

namespace trine::app {

namespace {

constexpr std::size_t kMaxHistory = 1000;
constexpr std::size_t kMaxText = std::size_t{16} << 20;
constexpr std::string_view kContinuation = "... ";
constexpr char32_t kJoiner = 0x200D;

struct Range {
  char32_t first;
  char32_t last;
};

// Marks that combine with the character before them, joiners and direction controls. Whole blocks
// where a block is nothing else; enough to place a cursor, not a substitute for the Unicode
// database.
constexpr Range kZeroWidth[] = {
    {0x0300, 0x036F}, {0x0483, 0x0489}, {0x0591, 0x05BD}, {0x0610, 0x061A},   {0x064B, 0x065F},
    {0x0670, 0x0670}, {0x06D6, 0x06DC}, {0x0900, 0x0902}, {0x093A, 0x093A},   {0x093C, 0x093C},
    {0x0941, 0x0948}, {0x094D, 0x094D}, {0x0981, 0x0981}, {0x09BC, 0x09BC},   {0x0E31, 0x0E31},
    {0x0E34, 0x0E3A}, {0x0E47, 0x0E4E}, {0x1AB0, 0x1AFF}, {0x1DC0, 0x1DFF},   {0x200B, 0x200F},
    {0x202A, 0x202E}, {0x2060, 0x2064}, {0x20D0, 0x20FF}, {0x302A, 0x302D},   {0x3099, 0x309A},
    {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}, {0xFEFF, 0xFEFF}, {0x1F3FB, 0x1F3FF}, {0xE0000, 0xE01EF},
};

constexpr Range kWide[] = {
    {0x1100, 0x115F},   {0x231A, 0x231B},   {0x23E9, 0x23EC},   {0x2614, 0x2615},
    {0x26A1, 0x26A1},   {0x2705, 0x2705},   {0x2728, 0x2728},   {0x274C, 0x274C},
    {0x2753, 0x2755},   {0x2B50, 0x2B50},   {0x2E80, 0x303E},   {0x3041, 0x33FF},
    {0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xA000, 0xA4CF},   {0xA960, 0xA97F},
    {0xAC00, 0xD7A3},   {0xF900, 0xFAFF},   {0xFE30, 0xFE6F},   {0xFF01, 0xFF60},
    {0xFFE0, 0xFFE6},   {0x16FE0, 0x18CFF}, {0x1B000, 0x1B2FF}, {0x1F004, 0x1F004},
    {0x1F0CF, 0x1F0CF}, {0x1F18E, 0x1F19A}, {0x1F200, 0x1F265}, {0x1F300, 0x1F64F},
    {0x1F680, 0x1F6FF}, {0x1F7E0, 0x1F7EB}, {0x1F900, 0x1F9FF}, {0x1FA70, 0x1FAFF},
    {0x20000, 0x3FFFD},
};

template <std::size_t N>
bool in_ranges(const Range (&ranges)[N], char32_t c) {
  return std::any_of(std::begin(ranges), std::end(ranges),
                     [c](const Range& range) { return c >= range.first && c <= range.last; });
}

unsigned char byte_at(std::string_view text, std::size_t i) {
  return static_cast<unsigned char>(text[i]);
}

bool is_trail(unsigned char byte) {
  return (byte & 0xC0) == 0x80;
}

// Length announced by a first byte, 0 for one that cannot be first.
std::size_t sequence_length(unsigned char lead) {
  if (lead < 0x80) {
    return 1;
  }
  if (lead >= 0xC2 && lead <= 0xDF) {
    return 2;
  }
  if (lead >= 0xE0 && lead <= 0xEF) {
    return 3;
  }
  return lead >= 0xF0 && lead <= 0xF4 ? 4 : 0;
}

struct Decoded {
  char32_t code_point;
  std::size_t bytes;
};

// The character at `at`; one byte and U+FFFD when it is not well-formed.
Decoded decode_at(std::string_view text, std::size_t at) {
  const unsigned char lead = byte_at(text, at);
  const std::size_t length = sequence_length(lead);
  if (length == 1) {
    return {lead, 1};
  }
  if (length == 0 || at + length > text.size()) {
    return {0xFFFD, 1};
  }
  constexpr std::array<unsigned char, 5> kMask = {0, 0, 0x1F, 0x0F, 0x07};
  char32_t c = lead & kMask[length];
  for (std::size_t i = 1; i < length; ++i) {
    if (!is_trail(byte_at(text, at + i))) {
      return {0xFFFD, 1};
    }
    c = c << 6 | (byte_at(text, at + i) & 0x3Fu);
  }
  const bool overlong = (length == 3 && c < 0x800) || (length == 4 && c < 0x10000);
  if (overlong || c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) {
    return {0xFFFD, 1};
  }
  return {c, length};
}

bool is_word_byte(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x80 || (byte >= '0' && byte <= '9') || (byte >= 'A' && byte <= 'Z') ||
         (byte >= 'a' && byte <= 'z') || byte == '_';
}

}  // namespace

int char_width(char32_t code_point) {
  if (code_point < 0x20 || (code_point >= 0x7F && code_point < 0xA0)) {
    return 0;
  }
  if (code_point < 0x0300) {
    return 1;
  }
  if (in_ranges(kZeroWidth, code_point)) {
    return 0;
  }
  return in_ranges(kWide, code_point) ? 2 : 1;
}

std::string repair_utf8(std::string_view bytes) {
  std::string out;
  for (std::size_t at = 0; at < bytes.size();) {
    const Decoded decoded = decode_at(bytes, at);
    if (decoded.code_point == 0xFFFD && decoded.bytes == 1) {
      out += "\xEF\xBF\xBD";
    } else {
      out += bytes.substr(at, decoded.bytes);
    }
    at += decoded.bytes;
  }
  return out;
}

void LineCore::reset() {
  text_.clear();
  cursor_ = 0;
  state_ = State::kGround;
  pasting_ = false;
  pending_.clear();
  history_at_ = history_.size();
  draft_.clear();
}

void LineCore::add_history(std::string entry) {
  if (entry.empty() || (!history_.empty() && history_.back() == entry)) {
    return;
  }
  history_.push_back(std::move(entry));
  if (history_.size() > kMaxHistory) {
    history_.erase(history_.begin());
  }
  history_at_ = history_.size();
}

LineCore::Event LineCore::feed(unsigned char byte) {
  switch (state_) {
    case State::kEscape:
      return escape(byte);
    case State::kSs3:
      state_ = State::kGround;
      return letter_key(byte, false);
    case State::kCsi:
      if (byte >= 0x40 && byte <= 0x7E) {
        state_ = State::kGround;
        return csi(byte);
      }
      if (parameters_.size() < 16) {
        parameters_ += static_cast<char>(byte);
      }
      return Event::kNone;
    case State::kGround:
      break;
  }
  if (byte == 0x1B) {
    pending_.clear();
    state_ = State::kEscape;
    return Event::kNone;
  }
  return pasting_ ? paste_byte(byte) : key(byte);
}

LineCore::Event LineCore::escape(unsigned char byte) {
  state_ = State::kGround;
  if (byte == '[') {
    state_ = State::kCsi;
    parameters_.clear();
    return Event::kNone;
  }
  if (byte == 'O') {
    state_ = State::kSs3;
    return Event::kNone;
  }
  if (pasting_) {
    return paste_byte(byte);
  }
  switch (byte) {
    case 0x1B:
      state_ = State::kEscape;
      return Event::kNone;
    case '\r':
      insert("\n");
      return Event::kChanged;
    case 'b':
      return letter_key('D', true);
    case 'f':
      return letter_key('C', true);
    case 'd':
      erase(cursor_, word_right());
      return Event::kChanged;
    case 0x7F:
      erase(word_left(), cursor_);
      return Event::kChanged;
    default:
      return Event::kNone;
  }
}

LineCore::Event LineCore::csi(unsigned char final) {
  if (final == '~') {
    if (parameters_ == "200") {
      pasting_ = true;
      paste_after_return_ = false;
      return Event::kNone;
    }
    if (parameters_ == "201") {
      pasting_ = false;
      pending_.clear();
      return Event::kChanged;
    }
    if (pasting_) {
      return Event::kNone;
    }
    if (parameters_ == "3") {
      erase(cursor_, next(cursor_));
      return Event::kChanged;
    }
    if (parameters_ == "1" || parameters_ == "7") {
      return letter_key('H', false);
    }
    if (parameters_ == "4" || parameters_ == "8") {
      return letter_key('F', false);
    }
    return Event::kNone;
  }
  if (pasting_) {
    return Event::kNone;
  }
  const bool modified = parameters_.ends_with(";5") || parameters_.ends_with(";3");
  return letter_key(final, modified);
}

LineCore::Event LineCore::letter_key(unsigned char letter, bool word) {
  switch (letter) {
    case 'A':
    case 'B':
      return vertical(letter == 'A');
    case 'C':
      cursor_ = word ? word_right() : next(cursor_);
      return Event::kChanged;
    case 'D':
      cursor_ = word ? word_left() : previous(cursor_);
      return Event::kChanged;
    case 'H':
      cursor_ = line_begin(cursor_);
      return Event::kChanged;
    case 'F':
      cursor_ = line_end(cursor_);
      return Event::kChanged;
    default:
      return Event::kNone;
  }
}

LineCore::Event LineCore::key(unsigned char byte) {
  if (byte < 0x20 || byte == 0x7F) {
    pending_.clear();
    return control(byte);
  }
  if (byte < 0x80) {
    pending_.clear();
    const char c = static_cast<char>(byte);
    insert(std::string_view(&c, 1));
    return Event::kChanged;
  }
  if (!is_trail(byte)) {
    pending_.clear();
  }
  pending_ += static_cast<char>(byte);
  const std::size_t wanted = sequence_length(byte_at(pending_, 0));
  if (wanted == 0) {
    pending_.clear();
    return Event::kNone;
  }
  if (pending_.size() < wanted) {
    return Event::kNone;
  }
  const std::string whole = repair_utf8(std::exchange(pending_, {}));
  insert(whole);
  return Event::kChanged;
}

LineCore::Event LineCore::control(unsigned char byte) {
  switch (byte) {
    case '\r':
      return Event::kAccept;
    case '\n':
      insert("\n");
      return Event::kChanged;
    case '\t':
      insert("\t");
      return Event::kChanged;
    case 0x01:
      return letter_key('H', false);
    case 0x02:
      return letter_key('D', false);
    case 0x03:
      return Event::kInterrupt;
    case 0x04:
      if (text_.empty()) {
        return Event::kEndOfInput;
      }
      erase(cursor_, next(cursor_));
      return Event::kChanged;
    case 0x05:
      return letter_key('F', false);
    case 0x06:
      return letter_key('C', false);
    case 0x08:
    case 0x7F:
      erase(previous(cursor_), cursor_);
      return Event::kChanged;
    case 0x0B: {
      const std::size_t end = line_end(cursor_);
      erase(cursor_, end == cursor_ ? next(cursor_) : end);
      return Event::kChanged;
    }
    case 0x0C:
      return Event::kClearScreen;
    case 0x0E:
      return from_history(false);
    case 0x10:
      return from_history(true);
    case 0x15:
      erase(line_begin(cursor_), cursor_);
      return Event::kChanged;
    case 0x17:
      erase(word_left(), cursor_);
      return Event::kChanged;
    default:
      return Event::kNone;
  }
}

LineCore::Event LineCore::paste_byte(unsigned char byte) {
  // Line ends of the clipboard arrive as \r, \n or both; they are text here, not Enter.
  if (byte == '\r' || (byte == '\n' && !paste_after_return_)) {
    paste_after_return_ = byte == '\r';
    insert("\n");
    return Event::kNone;
  }
  paste_after_return_ = false;
  if (byte == '\t' || (byte >= 0x20 && byte != 0x7F)) {
    key(byte);
  }
  // Redrawn once, at the end of the paste.
  return Event::kNone;
}

void LineCore::insert(std::string_view bytes) {
  if (text_.size() + bytes.size() > kMaxText) {
    return;
  }
  text_.insert(cursor_, bytes);
  cursor_ += bytes.size();
}

void LineCore::erase(std::size_t from, std::size_t to) {
  text_.erase(from, to - from);
  cursor_ = from;
}

std::size_t LineCore::next(std::size_t at) const {
  if (at >= text_.size()) {
    return text_.size();
  }
  Decoded decoded = decode_at(text_, at);
  at += decoded.bytes;
  bool joined = false;
  while (at < text_.size() && decoded.code_point >= 0x20) {
    const Decoded follower = decode_at(text_, at);
    if (!joined && (char_width(follower.code_point) != 0 || follower.code_point < 0x300)) {
      break;
    }
    joined = follower.code_point == kJoiner;
    at += follower.bytes;
  }
  return at;
}

std::size_t LineCore::previous(std::size_t at) const {
  // Characters are found forwards only; from the start of the line that is cheap enough.
  std::size_t walk = at == 0 ? 0 : line_begin(at);
  if (walk == at) {
    return at == 0 ? 0 : at - 1;
  }
  std::size_t last = walk;
  while (walk < at) {
    last = walk;
    walk = next(walk);
  }
  return last;
}

std::size_t LineCore::word_left() const {
  std::size_t at = cursor_;
  while (at > 0 && !is_word_byte(text_[at - 1])) {
    --at;
  }
  while (at > 0 && is_word_byte(text_[at - 1])) {
    --at;
  }
  return at;
}

std::size_t LineCore::word_right() const {
  std::size_t at = cursor_;
  while (at < text_.size() && !is_word_byte(text_[at])) {
    ++at;
  }
  while (at < text_.size() && is_word_byte(text_[at])) {
    ++at;
  }
  return at;
}

std::size_t LineCore::line_begin(std::size_t at) const {
  const std::size_t newline = at == 0 ? std::string::npos : text_.rfind('\n', at - 1);
  return newline == std::string::npos ? 0 : newline + 1;
}

std::size_t LineCore::line_end(std::size_t at) const {
  return std::min(text_.find('\n', at), text_.size());
}

LineCore::Event LineCore::vertical(bool up) {
  const std::size_t begin = line_begin(cursor_);
  const std::size_t end = line_end(cursor_);
  if (up ? begin == 0 : end == text_.size()) {
    return from_history(up);
  }
  std::size_t steps = 0;
  for (std::size_t at = begin; at < cursor_; at = next(at)) {
    ++steps;
  }
  std::size_t at = up ? line_begin(begin - 1) : end + 1;
  const std::size_t stop = line_end(at);
  while (steps > 0 && at < stop) {
    at = next(at);
    --steps;
  }
  cursor_ = at;
  return Event::kChanged;
}

LineCore::Event LineCore::from_history(bool older) {
  if (older ? history_at_ == 0 : history_at_ == history_.size()) {
    return Event::kNone;
  }
  if (history_at_ == history_.size()) {
    draft_ = text_;
  }
  history_at_ = older ? history_at_ - 1 : history_at_ + 1;
  text_ = history_at_ == history_.size() ? draft_ : history_[history_at_];
  cursor_ = text_.size();
  return Event::kChanged;
}

std::string LineCore::draw(std::string_view prompt, int columns) {
  columns = std::max(columns, 8);
  std::string out = "\r";
  if (drawn_row_ > 0) {
    out += "\x1b[" + std::to_string(drawn_row_) + "A";
  }
  out += "\x1b[J";
  int row = 0;
  int column = 0;
  int cursor_row = 0;
  int cursor_column = 0;
  // Lines are broken here and not by the terminal, so that both agree about rows.
  const auto put = [&](std::string_view bytes, int width) {
    if (column + width > columns) {
      out += "\r\n";
      ++row;
      column = 0;
    }
    out += bytes;
    column += width;
  };
  const auto put_text = [&](std::string_view text) {
    for (std::size_t at = 0; at < text.size();) {
      const Decoded decoded = decode_at(text, at);
      put(text.substr(at, decoded.bytes), char_width(decoded.code_point));
      at += decoded.bytes;
    }
  };
  put_text(prompt);
  for (std::size_t at = 0; at <= text_.size();) {
    if (at == cursor_) {
      cursor_row = row;
      cursor_column = column;
    }
    if (at == text_.size()) {
      break;
    }
    const std::size_t end = next(at);
    const std::string_view cluster = std::string_view(text_).substr(at, end - at);
    if (cluster == "\n") {
      out += "\r\n";
      ++row;
      column = 0;
      put_text(kContinuation);
    } else if (cluster == "\t") {
      put("    ", 4);
    } else {
      put(cluster, char_width(decode_at(cluster, 0).code_point));
    }
    at = end;
  }
  if (cursor_column >= columns) {
    // Behind a full row: the cursor belongs to the next one.
    ++cursor_row;
    cursor_column = 0;
    if (cursor_row > row) {
      out += "\r\n";
      ++row;
      column = 0;
    }
  }
  drawn_last_row_ = row;
  if (row > cursor_row) {
    out += "\x1b[" + std::to_string(row - cursor_row) + "A";
  }
  out += "\r";
  if (cursor_column > 0) {
    out += "\x1b[" + std::to_string(cursor_column) + "C";
  }
  drawn_row_ = cursor_row;
  return out;
}

std::string LineCore::finish_draw() {
  std::string out;
  if (drawn_last_row_ > drawn_row_) {
    out += "\x1b[" + std::to_string(drawn_last_row_ - drawn_row_) + "B";
  }
  drawn_row_ = 0;
  drawn_last_row_ = 0;
  return out + "\r\n";
}

}  // namespace trine::app
