// A terminal good enough for what LineCore writes: printable characters with their width, \r, \n,
// cursor moves, erase to the end of the screen. It fails the test when a row would wrap by itself.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "apps/trine/line_core.h"

namespace trine::app {

class FakeTerminal {
 public:
  explicit FakeTerminal(int columns) : columns_(columns), rows_(1) {}

  void write(std::string_view bytes) {
    for (std::size_t at = 0; at < bytes.size();) {
      const auto byte = static_cast<unsigned char>(bytes[at]);
      if (byte == '\r') {
        column_ = 0;
        ++at;
      } else if (byte == '\n') {
        ++row_;
        grow();
        ++at;
      } else if (byte == 0x1B) {
        at = sequence(bytes, at);
      } else {
        at = print(bytes, at);
      }
    }
  }

  std::string row(int index) const {
    std::string out;
    for (const std::string& cell : rows_[static_cast<std::size_t>(index)]) {
      out += cell;
    }
    return out;
  }

  std::vector<std::string> screen() const {
    std::vector<std::string> out;
    for (int i = 0; i < static_cast<int>(rows_.size()); ++i) {
      out.push_back(row(i));
    }
    while (!out.empty() && out.back().empty()) {
      out.pop_back();
    }
    return out;
  }

  int cursor_row() const { return row_; }

  int cursor_column() const { return column_; }

 private:
  using Row =
      std::vector<std::string>;  // one entry per column; the second half of a wide character is ""

  void grow() {
    if (rows_.size() <= static_cast<std::size_t>(row_)) {
      rows_.resize(static_cast<std::size_t>(row_) + 1);
    }
  }

  std::size_t sequence(std::string_view bytes, std::size_t at) {
    EXPECT_EQ(bytes[at + 1], '[');
    at += 2;
    int number = 0;
    while (bytes[at] >= '0' && bytes[at] <= '9') {
      number = number * 10 + (bytes[at++] - '0');
    }
    const int count = number == 0 ? 1 : number;
    switch (bytes[at]) {
      case 'A':
        row_ -= count;
        EXPECT_GE(row_, 0);
        break;
      case 'B':
        row_ += count;
        EXPECT_LT(row_, static_cast<int>(rows_.size()));
        break;
      case 'C':
        column_ += count;
        EXPECT_LT(column_, columns_);
        break;
      case 'J':
        rows_.resize(static_cast<std::size_t>(row_) + 1);
        if (static_cast<std::size_t>(column_) < rows_.back().size()) {
          rows_.back().resize(static_cast<std::size_t>(column_));
        }
        break;
      default:
        ADD_FAILURE() << "unexpected sequence " << bytes.substr(at, 1);
    }
    return at + 1;
  }

  std::size_t print(std::string_view bytes, std::size_t at) {
    std::size_t end = at + 1;
    while (end < bytes.size() && (static_cast<unsigned char>(bytes[end]) & 0xC0) == 0x80) {
      ++end;
    }
    const std::string character(bytes.substr(at, end - at));
    char32_t c = static_cast<unsigned char>(character[0]);
    if (character.size() > 1) {
      c &= 0xFFu >> (character.size() + 1);
      for (std::size_t i = 1; i < character.size(); ++i) {
        c = c << 6 | (static_cast<unsigned char>(character[i]) & 0x3Fu);
      }
    }
    const int width = char_width(c);
    Row& row = rows_[static_cast<std::size_t>(row_)];
    const auto column = static_cast<std::size_t>(column_);
    EXPECT_LE(column_ + width, columns_) << "the terminal would wrap";
    if (width == 0) {
      if (column > 0 && column <= row.size()) {
        row[column - 1] += character;
      }
      return end;
    }
    row.resize(column);
    row.push_back(character);
    if (width == 2) {
      row.emplace_back();
    }
    column_ += width;
    return end;
  }

  int columns_;
  std::vector<Row> rows_;
  int row_ = 0;
  int column_ = 0;
};

}  // namespace trine::app
