#include "format/safetensors_writer.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/printable.h"

namespace trine {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxHeaderBytes = 100'000'000;
constexpr std::string_view kMetadataKey = "__metadata__";

// Bytes that the start of a tensor should be a multiple of.
std::int32_t alignment_of(DType dtype) {
  const DTypeInfo& info = dtype_info(dtype);
  return info.block_elems == 1 ? info.block_bytes : 1;
}

Result<std::uint64_t> tensor_bytes(const SafetensorsSpec& tensor) {
  const std::string name = printable(tensor.name);
  if (safetensors_dtype_name(tensor.dtype).empty()) {
    return fail(ErrorCode::kInvalidArgument, "tensor {}: safetensors has no dtype for {}", name,
                dtype_info(tensor.dtype).name);
  }
  std::int64_t elems = 1;
  bool empty = false;
  for (const std::int64_t dim : tensor.shape) {
    empty = empty || dim == 0;
    if (dim < 0 || __builtin_mul_overflow(elems, std::max<std::int64_t>(dim, 1), &elems)) {
      return fail(ErrorCode::kInvalidArgument, "tensor {}: shape {} is negative or too large", name,
                  shape_text(tensor.shape));
    }
  }
  const auto size = dtype_row_bytes(tensor.dtype, empty ? 0 : elems);
  if (!size.has_value()) {
    return fail(ErrorCode::kInvalidArgument,
                "tensor {}: shape {} of {} has no whole number of bytes", name,
                shape_text(tensor.shape), dtype_info(tensor.dtype).name);
  }
  return static_cast<std::uint64_t>(*size);
}

// Library boundary: dump() throws on text that is not UTF-8.
Result<std::string> dump(const Json& value) {
  try {
    return value.dump();
  } catch (const std::exception&) {
    return fail(ErrorCode::kInvalidArgument, "a tensor name or metadata string is not valid UTF-8");
  }
}

Result<std::string> encode_header(std::span<const SafetensorsSpec> tensors,
                                  std::span<const std::uint64_t> sizes,
                                  const StringPairs& metadata) {
  Json header = Json::object();
  auto& entries = header.get_ref<Json::object_t&>();
  if (!metadata.empty()) {
    Json pairs = Json::object();
    for (const auto& [key, value] : metadata) {
      pairs[key] = value;
    }
    entries.push_back({std::string(kMetadataKey), std::move(pairs)});
  }
  std::unordered_set<std::string_view> seen{kMetadataKey};
  std::uint64_t offset = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const SafetensorsSpec& tensor = tensors[i];
    if (!seen.insert(tensor.name).second) {
      return fail(ErrorCode::kInvalidArgument, "tensor {} occurs twice or is reserved",
                  printable(tensor.name));
    }
    const auto end = checked_add(offset, sizes[i]);
    if (!end.has_value() || *end > INT64_MAX) {
      return fail(ErrorCode::kInvalidArgument, "tensor {}: the file would pass {} bytes",
                  printable(tensor.name), INT64_MAX);
    }
    Json entry = Json::object();
    entry["dtype"] = safetensors_dtype_name(tensor.dtype);
    entry["shape"] = tensor.shape;
    entry["data_offsets"] = {offset, *end};
    // Names are unique, so appending spares ordered_json its linear search.
    entries.push_back({tensor.name, std::move(entry)});
    offset = *end;
  }
  TRINE_TRY_ASSIGN(std::string text, dump(header));
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > kMaxHeaderBytes) {
    return fail(ErrorCode::kInvalidArgument, "header of {} bytes, at most {}", text.size(),
                kMaxHeaderBytes);
  }
  return text;
}

// Files written so far, removed again unless the whole set is complete.
class CommittedFiles {
 public:
  CommittedFiles() = default;
  CommittedFiles(const CommittedFiles&) = delete;
  CommittedFiles& operator=(const CommittedFiles&) = delete;

  ~CommittedFiles() {
    for (const std::string& path : paths_) {
      std::error_code ignored;
      std::filesystem::remove(path, ignored);
    }
  }

  void add(std::string path) { paths_.push_back(std::move(path)); }

  void keep() { paths_.clear(); }

 private:
  std::vector<std::string> paths_;
};

// Cuts the tensors, in name order, into runs that fit.
std::vector<std::vector<TensorInfo>> split_shards(std::span<const TensorInfo> tensors,
                                                  std::uint64_t max_shard_bytes) {
  std::vector<TensorInfo> sorted(tensors.begin(), tensors.end());
  std::ranges::sort(sorted, {}, &TensorInfo::name);
  std::vector<std::vector<TensorInfo>> shards(1);
  std::uint64_t used = 0;
  for (TensorInfo& tensor : sorted) {
    if (!shards.back().empty() && used + tensor.data.size() > max_shard_bytes) {
      shards.emplace_back();
      used = 0;
    }
    used += tensor.data.size();
    shards.back().push_back(std::move(tensor));
  }
  return shards;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(OutputFile file, std::vector<SafetensorsSpec> tensors,
                                     std::vector<std::uint64_t> sizes)
    : file_(std::move(file)), tensors_(std::move(tensors)), sizes_(std::move(sizes)) {
  skip_empty();
}

void SafetensorsWriter::skip_empty() {
  while (current_ < sizes_.size() && sizes_[current_] == 0) {
    ++current_;
  }
}

Result<SafetensorsWriter> SafetensorsWriter::create(const std::string& path,
                                                    std::vector<SafetensorsSpec> tensors,
                                                    const StringPairs& metadata) {
  std::ranges::sort(tensors, [](const SafetensorsSpec& a, const SafetensorsSpec& b) {
    return std::tuple(-alignment_of(a.dtype), std::string_view(a.name)) <
           std::tuple(-alignment_of(b.dtype), std::string_view(b.name));
  });
  std::vector<std::uint64_t> sizes;
  sizes.reserve(tensors.size());
  for (const SafetensorsSpec& tensor : tensors) {
    TRINE_TRY_ASSIGN(const std::uint64_t size, tensor_bytes(tensor));
    sizes.push_back(size);
  }
  TRINE_TRY_ASSIGN(const std::string header, encode_header(tensors, sizes, metadata));
  TRINE_TRY_ASSIGN(OutputFile file, OutputFile::create(path));
  const std::uint64_t length = header.size();
  TRINE_TRY(file.write(std::as_bytes(std::span(&length, 1))));
  TRINE_TRY(file.write(as_byte_span(header)));
  return SafetensorsWriter(std::move(file), std::move(tensors), std::move(sizes));
}

Status SafetensorsWriter::append(std::string_view name, std::span<const std::byte> bytes) {
  if (bytes.empty()) {
    return {};
  }
  if (current_ == tensors_.size() || tensors_[current_].name != name) {
    return fail(ErrorCode::kInvalidArgument, "tensor {}: out of order, {} comes next",
                printable(name),
                current_ == tensors_.size() ? "nothing" : printable(tensors_[current_].name));
  }
  const std::uint64_t size = sizes_[current_];
  if (bytes.size() > size - written_) {
    return fail(ErrorCode::kInvalidArgument, "tensor {}: {} bytes given, {} of {} are left",
                printable(name), bytes.size(), size - written_, size);
  }
  TRINE_TRY(file_.write(bytes));
  written_ += bytes.size();
  if (written_ == size) {
    ++current_;
    written_ = 0;
    skip_empty();
  }
  return {};
}

Status SafetensorsWriter::finish() {
  if (current_ != tensors_.size()) {
    return fail(ErrorCode::kInvalidArgument, "tensor {}: {} of {} bytes given",
                printable(tensors_[current_].name), written_, sizes_[current_]);
  }
  return file_.commit();
}

Status write_safetensors(const std::string& path, std::span<const TensorInfo> tensors,
                         const StringPairs& metadata) {
  std::vector<SafetensorsSpec> specs;
  std::unordered_map<std::string_view, std::span<const std::byte>> data;
  for (const TensorInfo& tensor : tensors) {
    specs.push_back({tensor.name, tensor.dtype, tensor.shape});
    data.emplace(tensor.name, tensor.data);
  }
  TRINE_TRY_ASSIGN(SafetensorsWriter writer,
                   SafetensorsWriter::create(path, std::move(specs), metadata));
  for (const SafetensorsSpec& tensor : writer.order()) {
    TRINE_TRY(writer.append(tensor.name, data[tensor.name]));
  }
  return writer.finish();
}

Status write_safetensors_sharded(const std::string& directory, std::span<const TensorInfo> tensors,
                                 const StringPairs& metadata, std::uint64_t max_shard_bytes) {
  const std::filesystem::path base(directory);
  const std::string single = (base / "model.safetensors").string();
  const auto shards = split_shards(tensors, max_shard_bytes);
  if (shards.size() == 1) {
    return write_safetensors(single, tensors, metadata);
  }
  std::error_code ignored;
  if (std::filesystem::exists(single, ignored)) {
    return fail(ErrorCode::kInvalidArgument, "{} exists and would hide the shards; remove it first",
                single);
  }
  CommittedFiles committed;
  Json map = Json::object();
  std::uint64_t total = 0;
  std::unordered_set<std::string_view> seen;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string file = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    const std::string path = (base / file).string();
    TRINE_TRY(write_safetensors(path, shards[i], metadata));
    committed.add(path);
    for (const TensorInfo& tensor : shards[i]) {
      if (!seen.insert(tensor.name).second) {
        return fail(ErrorCode::kInvalidArgument, "tensor {} occurs twice", printable(tensor.name));
      }
      map.get_ref<Json::object_t&>().push_back({tensor.name, file});
      total += tensor.data.size();
    }
  }
  Json index = Json::object();
  index["metadata"] = {{"total_size", total}};
  index["weight_map"] = std::move(map);
  TRINE_TRY_ASSIGN(const std::string text, dump(index));
  TRINE_TRY_ASSIGN(OutputFile file,
                   OutputFile::create((base / "model.safetensors.index.json").string()));
  TRINE_TRY(file.write(as_byte_span(text)));
  TRINE_TRY(file.commit());
  committed.keep();
  return {};
}

}  // namespace trine
