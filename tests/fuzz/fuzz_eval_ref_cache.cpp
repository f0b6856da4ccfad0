// Any bytes as a file of reference logits give rows that lie in the file, or an error.
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "eval/ref_cache.h"
#include "fuzz_support.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace trine;
  const auto header = eval::parse_ref_cache({reinterpret_cast<const std::byte*>(data), size});
  if (!header.has_value()) {
    require_printable(header.error());
    return 0;
  }
  const std::uint64_t each = header->key.type == eval::RefCacheType::kF32 ? 4 : 2;
  require(header->key.num_ids > 0 && header->key.num_rows > 0);
  require(header->data_offset + static_cast<std::uint64_t>(header->key.num_rows) *
                                    static_cast<std::uint64_t>(header->key.num_ids) * each ==
          size);
  for (const auto& ids : header->continuations) {
    for (const std::int32_t id : ids) {
      require(id >= 0 && id < header->key.num_ids);
    }
  }
  require(eval::check_ref_cache(*header, header->key).has_value());
  return 0;
}
