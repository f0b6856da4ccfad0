#include "format/gguf.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/bytes.h"
#include "base/printable.h"
#include "format/gguf_layout.h"
#include "platform/mapped_file.h"

namespace trine {
namespace {

using gguf_layout::align_up;
using gguf_layout::check_alignment;
using gguf_layout::dtype_of_id;
using gguf_layout::kAlignmentKey;
using gguf_layout::kDefaultAlignment;
using gguf_layout::kMaxDims;
using gguf_layout::kMaxKeyBytes;
using gguf_layout::kMaxNameBytes;
using gguf_layout::kMaxStringBytes;
using gguf_layout::kMaxTensors;
using gguf_layout::tensor_bytes;

// Smallest possible encodings, to refuse counts that the bytes left cannot hold before reserving
// memory.
constexpr std::uint64_t kMinPairBytes = 8 + 1 + 4 + 1;                // key length, key, type, u8
constexpr std::uint64_t kMinTensorInfoBytes = 8 + 1 + 4 + 8 + 4 + 8;  // one dimension

Result<std::string_view> read_string(ByteReader& reader, std::uint64_t max_bytes,
                                     std::string_view what) {
  TRINE_TRY_ASSIGN(const auto length, reader.read<std::uint64_t>(what));
  if (length > max_bytes) {
    return fail(ErrorCode::kCorruptData, "{}: string of {} bytes, at most {}", what, length,
                max_bytes);
  }
  TRINE_TRY_ASSIGN(const auto bytes, reader.read_bytes(length, what));
  return as_text(bytes);
}

Result<bool> read_bool(ByteReader& reader, std::string_view what) {
  TRINE_TRY_ASSIGN(const auto byte, reader.read<std::uint8_t>(what));
  if (byte > 1) {
    return fail(ErrorCode::kCorruptData, "{}: bool byte is {}, wanted 0 or 1", what, byte);
  }
  return byte == 1;
}

template <typename T>
Result<GgufArray> read_numbers(ByteReader& reader, std::uint64_t count, std::string_view what) {
  const auto size = checked_mul(count, sizeof(T));
  if (!size.has_value() || *size > reader.remaining()) {
    return fail(ErrorCode::kCorruptData, "{}: array of {} items of {} bytes, {} bytes left", what,
                count, sizeof(T), reader.remaining());
  }
  TRINE_TRY_ASSIGN(const auto bytes, reader.read_bytes(*size, what));
  std::vector<T> items(static_cast<std::size_t>(count));
  if (!items.empty()) {
    std::memcpy(items.data(), bytes.data(), bytes.size());
  }
  return GgufArray(std::move(items));
}

Result<GgufArray> read_bools(ByteReader& reader, std::uint64_t count, std::string_view what) {
  if (count > reader.remaining()) {
    return fail(ErrorCode::kCorruptData, "{}: array of {} items of 1 byte, {} bytes left", what,
                count, reader.remaining());
  }
  std::vector<bool> items;
  items.reserve(static_cast<std::size_t>(count));
  for (std::uint64_t i = 0; i < count; ++i) {
    TRINE_TRY_ASSIGN(const bool item, read_bool(reader, what));
    items.push_back(item);
  }
  return GgufArray(std::move(items));
}

Result<GgufArray> read_strings(ByteReader& reader, std::uint64_t count, std::string_view what) {
  if (count > reader.remaining() / sizeof(std::uint64_t)) {
    return fail(ErrorCode::kCorruptData, "{}: array of {} strings, {} bytes left", what, count,
                reader.remaining());
  }
  std::vector<std::string> items;
  items.reserve(static_cast<std::size_t>(count));
  for (std::uint64_t i = 0; i < count; ++i) {
    TRINE_TRY_ASSIGN(const auto item, read_string(reader, kMaxStringBytes, what));
    items.emplace_back(item);
  }
  return GgufArray(std::move(items));
}

Result<GgufArray> read_array(ByteReader& reader, std::string_view what) {
  TRINE_TRY_ASSIGN(const auto type, reader.read<std::uint32_t>(what));
  TRINE_TRY_ASSIGN(const auto count, reader.read<std::uint64_t>(what));
  switch (static_cast<GgufType>(type)) {
    case GgufType::kU8:
      return read_numbers<std::uint8_t>(reader, count, what);
    case GgufType::kI8:
      return read_numbers<std::int8_t>(reader, count, what);
    case GgufType::kU16:
      return read_numbers<std::uint16_t>(reader, count, what);
    case GgufType::kI16:
      return read_numbers<std::int16_t>(reader, count, what);
    case GgufType::kU32:
      return read_numbers<std::uint32_t>(reader, count, what);
    case GgufType::kI32:
      return read_numbers<std::int32_t>(reader, count, what);
    case GgufType::kF32:
      return read_numbers<float>(reader, count, what);
    case GgufType::kU64:
      return read_numbers<std::uint64_t>(reader, count, what);
    case GgufType::kI64:
      return read_numbers<std::int64_t>(reader, count, what);
    case GgufType::kF64:
      return read_numbers<double>(reader, count, what);
    case GgufType::kBool:
      return read_bools(reader, count, what);
    case GgufType::kString:
      return read_strings(reader, count, what);
    case GgufType::kArray:
      return fail(ErrorCode::kCorruptData, "{}: array of arrays, arrays may not nest", what);
  }
  return fail(ErrorCode::kCorruptData, "{}: array element type {}, wanted 0 to 12", what, type);
}

template <typename T>
Result<GgufValue> read_number(ByteReader& reader, std::string_view what) {
  TRINE_TRY_ASSIGN(const T value, reader.read<T>(what));
  return GgufValue(value);
}

Result<GgufValue> read_value(ByteReader& reader, std::string_view what) {
  TRINE_TRY_ASSIGN(const auto type, reader.read<std::uint32_t>(what));
  switch (static_cast<GgufType>(type)) {
    case GgufType::kU8:
      return read_number<std::uint8_t>(reader, what);
    case GgufType::kI8:
      return read_number<std::int8_t>(reader, what);
    case GgufType::kU16:
      return read_number<std::uint16_t>(reader, what);
    case GgufType::kI16:
      return read_number<std::int16_t>(reader, what);
    case GgufType::kU32:
      return read_number<std::uint32_t>(reader, what);
    case GgufType::kI32:
      return read_number<std::int32_t>(reader, what);
    case GgufType::kF32:
      return read_number<float>(reader, what);
    case GgufType::kU64:
      return read_number<std::uint64_t>(reader, what);
    case GgufType::kI64:
      return read_number<std::int64_t>(reader, what);
    case GgufType::kF64:
      return read_number<double>(reader, what);
    case GgufType::kBool: {
      TRINE_TRY_ASSIGN(const bool value, read_bool(reader, what));
      return GgufValue(value);
    }
    case GgufType::kString: {
      TRINE_TRY_ASSIGN(const auto text, read_string(reader, kMaxStringBytes, what));
      return GgufValue(std::string(text));
    }
    case GgufType::kArray: {
      TRINE_TRY_ASSIGN(GgufArray array, read_array(reader, what));
      return GgufValue(std::move(array));
    }
  }
  return fail(ErrorCode::kCorruptData, "{}: value type {}, wanted 0 to 12", what, type);
}

struct Header {
  std::uint32_t version;
  std::uint64_t num_tensors;
  std::uint64_t num_pairs;
};

Result<Header> read_header(ByteReader& reader) {
  TRINE_TRY_ASSIGN(const auto magic, reader.read_bytes(4, "magic"));
  if (as_text(magic) != "GGUF") {
    return fail(ErrorCode::kCorruptData, "magic is \"{}\", wanted \"GGUF\"",
                printable(as_text(magic)));
  }
  Header header = {};
  TRINE_TRY_ASSIGN(header.version, reader.read<std::uint32_t>("version"));
  const std::uint32_t swapped = __builtin_bswap32(header.version);
  if (header.version > 0xFFFF && swapped <= 0xFFFF) {
    return fail(
        ErrorCode::kUnsupported,
        "big-endian GGUF (version {}); convert it to little-endian with gguf_convert_endian",
        swapped);
  }
  if (header.version == 1) {
    return fail(ErrorCode::kUnsupported,
                "GGUF version 1 has 32-bit lengths and is not read; convert the model again");
  }
  if (header.version != 2 && header.version != 3) {
    return fail(ErrorCode::kUnsupported, "GGUF version {}, supported are 2 and 3", header.version);
  }
  TRINE_TRY_ASSIGN(header.num_tensors, reader.read<std::uint64_t>("tensor count"));
  TRINE_TRY_ASSIGN(header.num_pairs, reader.read<std::uint64_t>("metadata count"));
  if (header.num_tensors > kMaxTensors) {
    return fail(ErrorCode::kCorruptData, "tensor count {}, at most {}", header.num_tensors,
                kMaxTensors);
  }
  if (header.num_pairs > reader.remaining() / kMinPairBytes) {
    return fail(ErrorCode::kCorruptData, "metadata count {} needs {} bytes each, {} bytes left",
                header.num_pairs, kMinPairBytes, reader.remaining());
  }
  if (header.num_tensors > reader.remaining() / kMinTensorInfoBytes) {
    return fail(ErrorCode::kCorruptData, "tensor count {} needs {} bytes each, {} bytes left",
                header.num_tensors, kMinTensorInfoBytes, reader.remaining());
  }
  return header;
}

Result<GgufMetadata> read_metadata(ByteReader& reader, std::uint64_t num_pairs) {
  std::vector<GgufMetadata::Pair> pairs;
  for (std::uint64_t i = 0; i < num_pairs; ++i) {
    TRINE_TRY_ASSIGN(const auto key,
                     read_string(reader, kMaxKeyBytes, fmt::format("metadata key {}", i)));
    TRINE_TRY_ASSIGN(GgufValue value,
                     read_value(reader, fmt::format("metadata key {}", printable(key))));
    pairs.emplace_back(std::string(key), std::move(value));
  }
  return GgufMetadata::build(std::move(pairs));
}

Result<std::uint32_t> read_alignment(const GgufMetadata& metadata) {
  const GgufValue* value = metadata.find(kAlignmentKey);
  if (value == nullptr) {
    return kDefaultAlignment;
  }
  const auto* alignment = std::get_if<std::uint32_t>(value);
  if (alignment == nullptr) {
    return fail(ErrorCode::kCorruptData, "metadata key {} is {}, wanted u32", kAlignmentKey,
                gguf_value_type_name(*value));
  }
  TRINE_TRY(check_alignment(*alignment));
  return *alignment;
}

Status check_not_split(const GgufMetadata& metadata) {
  if (!metadata.has("split.count")) {
    return {};
  }
  TRINE_TRY_ASSIGN(const auto count, metadata.get_uint("split.count"));
  if (count > 1) {
    return fail(ErrorCode::kUnsupported,
                "metadata key split.count is {}: a part of a split GGUF; merge the parts first "
                "(llama-gguf-split --merge)",
                count);
  }
  return {};
}

// A tensor info as the file gives it; data is set once the data section is known.
struct PendingTensor {
  TensorInfo info;
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
};

Status read_tensor_fields(ByteReader& reader, PendingTensor& tensor) {
  TRINE_TRY_ASSIGN(const auto num_dims, reader.read<std::uint32_t>("dimension count"));
  if (num_dims < 1 || num_dims > kMaxDims) {
    return fail(ErrorCode::kCorruptData, "{} dimensions, wanted 1 to {}", num_dims, kMaxDims);
  }
  std::array<std::int64_t, kMaxDims> dims = {};
  for (std::uint32_t i = 0; i < num_dims; ++i) {
    TRINE_TRY_ASSIGN(dims[i], reader.read<std::int64_t>("dimension"));
  }
  TRINE_TRY_ASSIGN(const auto type, reader.read<std::uint32_t>("type"));
  TRINE_TRY_ASSIGN(tensor.info.dtype, dtype_of_id(type));
  TRINE_TRY_ASSIGN(tensor.offset, reader.read<std::uint64_t>("offset"));
  const auto used = std::span(dims).first(num_dims);
  tensor.info.shape.assign(used.rbegin(), used.rend());
  TRINE_TRY_ASSIGN(tensor.size, tensor_bytes(tensor.info.dtype, used));
  return {};
}

Result<std::vector<PendingTensor>> read_tensor_infos(ByteReader& reader,
                                                     std::uint64_t num_tensors) {
  std::vector<PendingTensor> tensors;
  tensors.reserve(static_cast<std::size_t>(num_tensors));
  for (std::uint64_t i = 0; i < num_tensors; ++i) {
    TRINE_TRY_ASSIGN(const auto name,
                     read_string(reader, kMaxNameBytes, fmt::format("name of tensor {}", i)));
    if (name.empty()) {
      return fail(ErrorCode::kCorruptData, "tensor {} has an empty name", i);
    }
    PendingTensor tensor;
    tensor.info.name = std::string(name);
    if (Status status = read_tensor_fields(reader, tensor); !status.has_value()) {
      return tl::unexpected(
          std::move(status).error().with_context(fmt::format("tensor {}", printable(name))));
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

// Gives every tensor its bytes: offsets must be the running sum of padded sizes, so that tensors
// neither overlap nor leave holes where data could hide.
Status place_tensors(std::span<const std::byte> section, std::uint64_t alignment,
                     std::vector<PendingTensor>& tensors) {
  std::uint64_t expected = 0;
  for (PendingTensor& tensor : tensors) {
    const std::string name = printable(tensor.info.name);
    if (tensor.offset != expected) {
      return fail(ErrorCode::kCorruptData,
                  "tensor {}: offset {}, wanted {} (the sum of the padded sizes before it)", name,
                  tensor.offset, expected);
    }
    const auto end = checked_add(tensor.offset, tensor.size);
    if (!end.has_value() || *end > section.size()) {
      return fail(ErrorCode::kCorruptData,
                  "tensor {}: {} bytes at offset {}, the data section has {} (truncated file?)",
                  name, tensor.size, tensor.offset, section.size());
    }
    tensor.info.data = section.subspan(static_cast<std::size_t>(tensor.offset),
                                       static_cast<std::size_t>(tensor.size));
    const auto padded = align_up(*end, alignment);
    if (!padded.has_value()) {
      return fail(ErrorCode::kCorruptData, "tensor {}: padding of offset {} overflows", name, *end);
    }
    expected = *padded;
  }
  const std::uint64_t used = tensors.empty() ? 0 : tensors.back().offset + tensors.back().size;
  const auto rest = section.subspan(static_cast<std::size_t>(used));
  if (used + rest.size() > expected) {
    return fail(ErrorCode::kCorruptData, "{} bytes after the last tensor, at most {} of padding",
                rest.size(), expected - used);
  }
  if (!std::ranges::all_of(rest, [](std::byte b) { return b == std::byte{0}; })) {
    return fail(ErrorCode::kCorruptData,
                "the {} bytes of padding after the last tensor are not zero", rest.size());
  }
  return {};
}

Result<GgufFile> parse_fields(std::span<const std::byte> bytes, const std::string& source,
                              std::shared_ptr<const void> keep_alive) {
  ByteReader reader(bytes);
  TRINE_TRY_ASSIGN(const Header header, read_header(reader));
  GgufFile file;
  file.version = header.version;
  TRINE_TRY_ASSIGN(file.metadata, read_metadata(reader, header.num_pairs));
  TRINE_TRY_ASSIGN(file.alignment, read_alignment(file.metadata));
  TRINE_TRY(check_not_split(file.metadata));
  TRINE_TRY_ASSIGN(auto pending, read_tensor_infos(reader, header.num_tensors));
  // position() is at most the file size and the alignment at most 64 KiB, so this cannot overflow.
  const std::uint64_t start = align_up(reader.position(), file.alignment).value_or(0);
  std::span<const std::byte> section;
  if (start <= bytes.size()) {
    section = bytes.subspan(static_cast<std::size_t>(start));
  }
  TRINE_TRY(place_tensors(section, file.alignment, pending));
  std::vector<TensorInfo> tensors;
  tensors.reserve(pending.size());
  for (PendingTensor& tensor : pending) {
    tensors.push_back(std::move(tensor.info));
  }
  TRINE_TRY_ASSIGN(file.checkpoint,
                   Checkpoint::build(source, std::move(tensors), {std::move(keep_alive)}));
  return file;
}

}  // namespace

Result<GgufFile> parse_gguf(std::span<const std::byte> bytes, const std::string& source,
                            std::shared_ptr<const void> keep_alive) {
  auto file = parse_fields(bytes, source, std::move(keep_alive));
  if (!file.has_value()) {
    return tl::unexpected(std::move(file).error().with_context(source));
  }
  return file;
}

Result<GgufFile> open_gguf(const std::string& path) {
  TRINE_TRY_ASSIGN(auto mapped, MappedFile::open(path));
  const auto bytes = mapped->bytes();
  TRINE_TRY_ASSIGN(GgufFile file, parse_gguf(bytes, path, mapped));
  file.checkpoint.set_files({std::move(mapped)});
  return file;
}

}  // namespace trine
