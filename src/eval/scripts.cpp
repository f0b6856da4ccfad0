#include "eval/scripts.h"

#include "text/unicode.h"

namespace trine::eval {
namespace {

constexpr std::array<std::string_view, kNumScripts> kNames = {
    "Latin", "Greek", "Cyrillic", "Hebrew", "Arabic", "Devanagari", "Bengali",
    "Tamil", "Thai",  "Kana",     "Hangul", "Han",    "other"};
constexpr std::size_t kThai = 8;
constexpr std::size_t kKana = 9;
constexpr std::size_t kHan = 11;

struct Block {
  char32_t first;
  char32_t last;
  std::size_t script;
};

// Letters only; what stands in no block is "other".
constexpr Block kBlocks[] = {
    {0x0041, 0x024f, 0},  {0x0370, 0x03ff, 1},  {0x0400, 0x052f, 2},    {0x0590, 0x05ff, 3},
    {0x0600, 0x077f, 4},  {0x0900, 0x097f, 5},  {0x0980, 0x09ff, 6},    {0x0b80, 0x0bff, 7},
    {0x0e00, 0x0e7f, 8},  {0x1100, 0x11ff, 10}, {0x1e00, 0x1eff, 0},    {0x1f00, 0x1fff, 1},
    {0x3005, 0x3007, 11}, {0x3040, 0x30ff, 9},  {0x3130, 0x318f, 10},   {0x31f0, 0x31ff, 9},
    {0x3400, 0x9fff, 11}, {0xac00, 0xd7af, 10}, {0xf900, 0xfaff, 11},   {0xfb50, 0xfdff, 4},
    {0xff21, 0xff5a, 0},  {0xff66, 0xff9f, 9},  {0x20000, 0x3ffff, 11},
};

std::size_t script_of(char32_t c) {
  for (const Block& block : kBlocks) {
    if (c >= block.first && c <= block.last) {
      return block.script;
    }
  }
  return kNumScripts - 1;
}

}  // namespace

std::string_view script_name(std::size_t script) {
  return kNames[script];
}

ScriptCounts count_scripts(std::string_view text) {
  ScriptCounts out;
  for (std::size_t at = 0; at < text.size();) {
    const text::CodePoint c = text::code_point_at(text, at);
    at += c.size;
    if ((text::char_class(c.value) & text::kLetter) != 0) {
      ++out.of[script_of(c.value)];
      ++out.letters;
    }
  }
  return out;
}

bool writes_without_blanks(char32_t c) {
  const std::size_t script = script_of(c);
  return script == kHan || script == kKana || script == kThai;
}

}  // namespace trine::eval
