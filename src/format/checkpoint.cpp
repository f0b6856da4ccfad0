#include "format/checkpoint.h"

#include <utility>

namespace trine {
namespace {

// Length of the valid UTF-8 sequence at the start of `text`, 0 when there is none. Overlong forms
// and surrogates count as invalid.
std::size_t utf8_sequence_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  const std::size_t length = first < 0x80   ? 1
                             : first < 0xC2 ? 0
                             : first < 0xE0 ? 2
                             : first < 0xF0 ? 3
                             : first < 0xF5 ? 4
                                            : 0;
  if (length == 0 || length > text.size()) {
    return 0;
  }
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) {
      return 0;
    }
  }
  const bool overlong = (first == 0xE0 && byte(1) < 0xA0) || (first == 0xF0 && byte(1) < 0x90);
  const bool outside = (first == 0xED && byte(1) > 0x9F) || (first == 0xF4 && byte(1) > 0x8F);
  return overlong || outside ? 0 : length;
}

}  // namespace

std::int64_t TensorInfo::num_elems() const {
  std::int64_t elems = 1;
  for (const std::int64_t dim : shape) {
    elems *= dim;
  }
  return elems;
}

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string out = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    out += fmt::format("{}{}", i == 0 ? "" : ", ", shape[i]);
  }
  return out + "]";
}

std::string printable(std::string_view text, std::size_t max_bytes) {
  std::string out;
  while (!text.empty()) {
    if (out.size() >= max_bytes) {
      return out + "...";
    }
    const std::size_t length = utf8_sequence_length(text);
    const auto first = static_cast<unsigned char>(text.front());
    // C1 controls (U+0080 to U+009F, encoded C2 80..C2 9F) drive terminals too.
    const bool c1 = length == 2 && first == 0xC2 && static_cast<unsigned char>(text[1]) < 0xA0;
    if (length == 0 || first < 0x20 || first == 0x7F || c1) {
      out += fmt::format("\\x{:02x}", first);
      text.remove_prefix(1);
    } else {
      out += text.substr(0, length);
      text.remove_prefix(length);
    }
  }
  return out;
}

void Checkpoint::release_pages() const {
  for (const auto& file : files_) {
    file->release_pages();
  }
}

Result<Checkpoint> Checkpoint::build(std::string source, std::vector<TensorInfo> tensors,
                                     std::vector<std::shared_ptr<const void>> keep_alive) {
  Checkpoint out;
  out.source_ = std::move(source);
  out.tensors_ = std::move(tensors);
  out.keep_alive_ = std::move(keep_alive);
  out.index_.reserve(out.tensors_.size());
  for (std::size_t i = 0; i < out.tensors_.size(); ++i) {
    if (!out.index_.emplace(out.tensors_[i].name, i).second) {
      return fail(ErrorCode::kCorruptData, "tensor {} occurs twice",
                  printable(out.tensors_[i].name));
    }
  }
  return out;
}

const TensorInfo* Checkpoint::find(std::string_view name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : &tensors_[it->second];
}

Result<const TensorInfo*> Checkpoint::require(std::string_view name) const {
  if (const TensorInfo* tensor = find(name)) {
    return tensor;
  }
  return fail(ErrorCode::kCorruptData, "{}: tensor {} is missing ({} tensors in the file)", source_,
              printable(name), tensors_.size());
}

Status check_decodable(const TensorInfo& tensor) {
  const DTypeInfo& info = dtype_info(tensor.dtype);
  if (info.decodes_to_f32) {
    return {};
  }
  const bool codebook = tensor.dtype >= DType::kIQ2XXS && tensor.dtype <= DType::kIQ1M;
  if (codebook) {
    return fail(ErrorCode::kUnsupported,
                "tensor {}: {} is a codebook type, which is not decoded; use a file quantized to "
                "Q4_K, IQ4_XS, "
                "Q8_0 or another listed block type",
                printable(tensor.name), info.name);
  }
  return fail(ErrorCode::kUnsupported, "tensor {}: type {} cannot be used as a weight",
              printable(tensor.name), info.name);
}

}  // namespace trine
