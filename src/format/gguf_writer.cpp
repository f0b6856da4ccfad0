#include "format/gguf_writer.h"

#include <cstring>
#include <type_traits>
#include <unordered_set>
#include <utility>

#include "base/bytes.h"
#include "base/printable.h"
#include "format/gguf_layout.h"

namespace trine {
namespace {

using gguf_layout::align_up;
using gguf_layout::check_alignment;
using gguf_layout::kAlignmentKey;
using gguf_layout::kDefaultAlignment;
using gguf_layout::kMaxKeyBytes;
using gguf_layout::kMaxNameBytes;
using gguf_layout::kMaxStringBytes;
using gguf_layout::kMaxTensors;
using gguf_layout::tensor_bytes;

template <typename T>
void put(std::string& out, T value) {
  static_assert(std::is_arithmetic_v<T>);
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

void put_bool(std::string& out, bool value) {
  out.push_back(value ? '\1' : '\0');
}

void put_string(std::string& out, std::string_view text) {
  put(out, static_cast<std::uint64_t>(text.size()));
  out += text;
}

template <typename T>
void put_item(std::string& out, const T& item) {
  if constexpr (std::is_same_v<T, std::string>) {
    put_string(out, item);
  } else if constexpr (std::is_same_v<T, bool>) {
    put_bool(out, item);
  } else {
    put(out, item);
  }
}

void put_array(std::string& out, const GgufArray& array) {
  put(out, static_cast<std::uint32_t>(gguf_array_elem_type(array)));
  put(out, static_cast<std::uint64_t>(gguf_array_size(array)));
  std::visit(
      [&](const auto& items) {
        using T = typename std::decay_t<decltype(items)>::value_type;
        for (std::size_t i = 0; i < items.size(); ++i) {
          put_item<T>(out, items[i]);
        }
      },
      array);
}

void put_value(std::string& out, const GgufValue& value) {
  put(out, static_cast<std::uint32_t>(gguf_value_type(value)));
  std::visit(
      [&](const auto& held) {
        using T = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<T, GgufArray>) {
          put_array(out, held);
        } else {
          put_item<T>(out, held);
        }
      },
      value);
}

Status check_strings(std::string_view key, const GgufValue& value) {
  const auto check = [&](const std::string& text) -> Status {
    if (text.size() > kMaxStringBytes) {
      return fail(ErrorCode::kInvalidArgument, "metadata key {}: string of {} bytes, at most {}",
                  printable(key), text.size(), kMaxStringBytes);
    }
    return {};
  };
  if (const auto* text = std::get_if<std::string>(&value)) {
    return check(*text);
  }
  if (const auto* array = std::get_if<GgufArray>(&value)) {
    if (const auto* items = std::get_if<std::vector<std::string>>(array)) {
      for (const std::string& text : *items) {
        TRINE_TRY(check(text));
      }
    }
  }
  return {};
}

// The checks of the reader, reported as the caller's mistake.
Status check_metadata(std::span<const GgufMetadata::Pair> metadata) {
  std::unordered_set<std::string_view> seen;
  for (const auto& [key, value] : metadata) {
    if (key.empty() || key.size() > kMaxKeyBytes) {
      return fail(ErrorCode::kInvalidArgument, "metadata key of {} bytes, wanted 1 to {}",
                  key.size(), kMaxKeyBytes);
    }
    if (!seen.insert(key).second) {
      return fail(ErrorCode::kInvalidArgument, "metadata key {} occurs twice", printable(key));
    }
    TRINE_TRY(check_strings(key, value));
  }
  return {};
}

Result<std::uint32_t> alignment_of(std::span<const GgufMetadata::Pair> metadata) {
  for (const auto& [key, value] : metadata) {
    if (key != kAlignmentKey) {
      continue;
    }
    const auto* alignment = std::get_if<std::uint32_t>(&value);
    if (alignment == nullptr) {
      return fail(ErrorCode::kInvalidArgument, "metadata key {} is {}, wanted u32", key,
                  gguf_value_type_name(value));
    }
    if (Status status = check_alignment(*alignment); !status.has_value()) {
      return fail(ErrorCode::kInvalidArgument, "{}", status.error().message);
    }
    return *alignment;
  }
  return kDefaultAlignment;
}

struct Placed {
  std::vector<std::int64_t> dims;  // file order
  std::uint32_t type_id;
  std::uint64_t size;
};

Result<Placed> check_tensor(const GgufTensorSpec& tensor) {
  const std::string name = printable(tensor.name);
  if (tensor.name.empty() || tensor.name.size() > kMaxNameBytes) {
    return fail(ErrorCode::kInvalidArgument, "tensor {}: name of {} bytes, wanted 1 to {}", name,
                tensor.name.size(), kMaxNameBytes);
  }
  const auto id = gguf_type_id(tensor.dtype);
  if (!id.has_value()) {
    return fail(ErrorCode::kInvalidArgument, "tensor {}: GGUF has no type for {}", name,
                dtype_info(tensor.dtype).name);
  }
  Placed out{{tensor.shape.rbegin(), tensor.shape.rend()}, *id, 0};
  const auto size = tensor_bytes(tensor.dtype, out.dims);
  if (!size.has_value()) {
    return fail(ErrorCode::kInvalidArgument, "tensor {}: {}", name, size.error().message);
  }
  out.size = *size;
  return out;
}

}  // namespace

Result<std::string> encode_gguf_header(std::span<const GgufMetadata::Pair> metadata,
                                       std::span<const GgufTensorSpec> tensors) {
  TRINE_TRY(check_metadata(metadata));
  TRINE_TRY_ASSIGN(const std::uint32_t alignment, alignment_of(metadata));
  if (tensors.size() > kMaxTensors) {
    return fail(ErrorCode::kInvalidArgument, "{} tensors, at most {}", tensors.size(), kMaxTensors);
  }
  std::string out = "GGUF";
  put(out, std::uint32_t{3});
  put(out, static_cast<std::uint64_t>(tensors.size()));
  put(out, static_cast<std::uint64_t>(metadata.size()));
  for (const auto& [key, value] : metadata) {
    put_string(out, key);
    put_value(out, value);
  }
  std::unordered_set<std::string_view> seen;
  std::uint64_t offset = 0;
  for (const GgufTensorSpec& tensor : tensors) {
    TRINE_TRY_ASSIGN(const Placed placed, check_tensor(tensor));
    if (!seen.insert(tensor.name).second) {
      return fail(ErrorCode::kInvalidArgument, "tensor {} occurs twice", printable(tensor.name));
    }
    put_string(out, tensor.name);
    put(out, static_cast<std::uint32_t>(placed.dims.size()));
    for (const std::int64_t dim : placed.dims) {
      put(out, dim);
    }
    put(out, placed.type_id);
    put(out, offset);
    const auto end = checked_add(offset, placed.size);
    const auto padded = end.has_value() ? align_up(*end, alignment) : std::nullopt;
    if (!padded.has_value() || *padded > INT64_MAX) {
      return fail(ErrorCode::kInvalidArgument, "tensor {}: the file would pass {} bytes",
                  printable(tensor.name), INT64_MAX);
    }
    offset = *padded;
  }
  out.resize(static_cast<std::size_t>(align_up(out.size(), alignment).value_or(out.size())), '\0');
  return out;
}

Result<GgufWriter> GgufWriter::create(const std::string& path,
                                      std::span<const GgufMetadata::Pair> metadata,
                                      std::span<const GgufTensorSpec> tensors) {
  TRINE_TRY_ASSIGN(const std::string header, encode_gguf_header(metadata, tensors));
  TRINE_TRY_ASSIGN(const std::uint32_t alignment, alignment_of(metadata));
  std::vector<Pending> pending;
  pending.reserve(tensors.size());
  for (const GgufTensorSpec& tensor : tensors) {
    TRINE_TRY_ASSIGN(const Placed placed, check_tensor(tensor));
    pending.push_back({tensor.name, placed.size});
  }
  TRINE_TRY_ASSIGN(OutputFile file, OutputFile::create(path));
  TRINE_TRY(file.write(as_byte_span(header)));
  return GgufWriter(std::move(file), std::move(pending), alignment);
}

Status GgufWriter::append(std::string_view name, std::span<const std::byte> bytes) {
  if (current_ == tensors_.size() || tensors_[current_].name != name) {
    return fail(ErrorCode::kInvalidArgument, "tensor {}: out of order, {} comes next",
                printable(name),
                current_ == tensors_.size() ? "nothing" : printable(tensors_[current_].name));
  }
  const Pending& tensor = tensors_[current_];
  if (bytes.size() > tensor.size - written_) {
    return fail(ErrorCode::kInvalidArgument, "tensor {}: {} bytes given, {} of {} are left",
                printable(name), bytes.size(), tensor.size - written_, tensor.size);
  }
  TRINE_TRY(file_.write(bytes));
  written_ += bytes.size();
  if (written_ == tensor.size) {
    const std::uint64_t padded = align_up(tensor.size, alignment_).value_or(tensor.size);
    TRINE_TRY(file_.write_zeros(padded - tensor.size));
    ++current_;
    written_ = 0;
  }
  return {};
}

Status GgufWriter::finish() {
  if (current_ != tensors_.size()) {
    return fail(ErrorCode::kInvalidArgument, "tensor {}: {} of {} bytes given",
                printable(tensors_[current_].name), written_, tensors_[current_].size);
  }
  return file_.commit();
}

Status write_gguf(const std::string& path, std::span<const GgufMetadata::Pair> metadata,
                  std::span<const TensorInfo> tensors) {
  std::vector<GgufTensorSpec> specs;
  specs.reserve(tensors.size());
  for (const TensorInfo& tensor : tensors) {
    specs.push_back({tensor.name, tensor.dtype, tensor.shape});
  }
  TRINE_TRY_ASSIGN(GgufWriter writer, GgufWriter::create(path, metadata, specs));
  for (const TensorInfo& tensor : tensors) {
    TRINE_TRY(writer.append(tensor.name, tensor.data));
  }
  return writer.finish();
}

}  // namespace trine
