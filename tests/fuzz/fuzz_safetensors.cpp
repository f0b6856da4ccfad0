// Any bytes either parse or give a printable error; what parses tiles the buffer.
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "format/safetensors.h"
#include "fuzz_support.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto file = trine::parse_safetensors(bytes);
  if (!file.has_value()) {
    trine::require_printable(file.error());
    return 0;
  }
  std::size_t total = 0;
  for (const trine::TensorInfo& tensor : file->tensors) {
    const auto expected = trine::dtype_row_bytes(tensor.dtype, tensor.num_elems());
    trine::require(expected.has_value());
    trine::require(static_cast<std::size_t>(*expected) == tensor.data.size());
    trine::require(tensor.data.empty() ||
                   (tensor.data.data() >= bytes.data() + 8 &&
                    tensor.data.data() + tensor.data.size() <= bytes.data() + size));
    total += tensor.data.size();
  }
  trine::require(total <= size - 8);
  return 0;
}
