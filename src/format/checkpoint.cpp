#include "format/checkpoint.h"

#include <utility>

#include "base/printable.h"

namespace trine {
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
