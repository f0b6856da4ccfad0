#include "text/charsmap.h"

#include "base/bytes.h"
#include "text/unicode.h"

namespace trine::text {

Result<CharsMap> CharsMap::parse(std::string_view bytes) {
  ByteReader reader(as_byte_span(bytes));
  TRINE_TRY_ASSIGN(const auto trie_bytes,
                   reader.read<std::uint32_t>("precompiled_charsmap: trie size"));
  if (trie_bytes % 4 != 0) {
    return fail(ErrorCode::kCorruptData, "precompiled_charsmap: trie size {} is no multiple of 4",
                trie_bytes);
  }
  CharsMap out;
  if (trie_bytes > reader.remaining()) {
    return fail(ErrorCode::kCorruptData, "precompiled_charsmap: trie of {} bytes, {} left",
                trie_bytes, reader.remaining());
  }
  out.units_.reserve(trie_bytes / 4);
  for (std::uint32_t i = 0; i < trie_bytes / 4; ++i) {
    TRINE_TRY_ASSIGN(const auto unit, reader.read<std::uint32_t>("precompiled_charsmap: trie"));
    out.units_.push_back(unit);
  }
  TRINE_TRY_ASSIGN(const auto rest,
                   reader.read_bytes(reader.remaining(), "precompiled_charsmap: replacements"));
  out.replacements_ = as_text(rest);
  if (const auto pos = find_invalid_utf8(out.replacements_)) {
    return fail(ErrorCode::kCorruptData,
                "precompiled_charsmap: replacements are not UTF-8 at byte {}", *pos);
  }
  return out;
}

std::optional<CharsMap::Hit> CharsMap::find(std::string_view text, bool first) const {
  if (units_.empty()) {
    return std::nullopt;
  }
  const auto offset_of = [](std::uint32_t unit) {
    return (unit >> 10) << ((unit & (1U << 9)) >> 6);
  };
  std::optional<Hit> hit;
  std::size_t node = offset_of(units_[0]);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte == 0) {
      break;
    }
    node ^= byte;
    if (node >= units_.size()) {
      break;
    }
    const std::uint32_t unit = units_[node];
    if ((unit & ((1U << 31) | 0xffU)) != byte) {  // the label of another byte, or a leaf
      break;
    }
    node ^= offset_of(unit);
    if (((unit >> 8) & 1U) == 0) {
      continue;
    }
    const std::size_t value =
        node < units_.size() ? units_[node] & 0x7fffffffU : replacements_.size();
    // A replacement that starts inside a character would make bytes that are no text.
    if (value >= replacements_.size() ||
        (static_cast<unsigned char>(replacements_[value]) & 0xc0U) == 0x80U) {
      break;
    }
    const std::string_view tail = std::string_view(replacements_).substr(value);
    hit = Hit{i + 1, tail.substr(0, tail.find('\0'))};
    if (first) {
      break;
    }
  }
  // An entry must end where a character ends, for the same reason.
  if (hit && hit->size < text.size() &&
      (static_cast<unsigned char>(text[hit->size]) & 0xc0U) == 0x80U) {
    return std::nullopt;
  }
  return hit;
}

}  // namespace trine::text
