// Any bytes either open or give a printable error; what opens is encoded again and reads back the
// same.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "format/gguf.h"
#include "format/gguf_writer.h"
#include "fuzz_support.h"

namespace {

std::vector<trine::GgufTensorSpec> specs_of(const trine::Checkpoint& checkpoint) {
  std::vector<trine::GgufTensorSpec> out;
  for (const trine::TensorInfo& tensor : checkpoint.tensors()) {
    out.push_back({tensor.name, tensor.dtype, tensor.shape});
  }
  return out;
}

// The header and padded data, as GgufWriter would write them.
std::string encode(const trine::GgufFile& file) {
  const auto header = trine::encode_gguf_header(file.metadata.pairs(), specs_of(file.checkpoint));
  trine::require(header.has_value());
  std::string out = *header;
  for (const trine::TensorInfo& tensor : file.checkpoint.tensors()) {
    out += trine::as_text(tensor.data);
    out.resize((out.size() + file.alignment - 1) / file.alignment * file.alignment, '\0');
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto file = trine::parse_gguf({reinterpret_cast<const std::byte*>(data), size}, "fuzz");
  if (!file.has_value()) {
    trine::require_printable(file.error());
    return 0;
  }
  for (const auto& [key, value] : file->metadata.pairs()) {
    // Every getter gives a value or an error, whatever the type.
    static_cast<void>(file->metadata.get_uint(key));
    static_cast<void>(file->metadata.get_int(key));
    static_cast<void>(file->metadata.get_float(key));
    static_cast<void>(file->metadata.get_string(key));
    static_cast<void>(file->metadata.get_int_array(key));
    static_cast<void>(file->metadata.get_array<std::string>(key, 1));
  }
  // NaN values differ from themselves, so the comparison is between encodings.
  const std::string once = encode(*file);
  const auto again = trine::parse_gguf(trine::as_byte_span(once), "again");
  trine::require(again.has_value());
  trine::require(encode(*again) == once);
  return 0;
}
