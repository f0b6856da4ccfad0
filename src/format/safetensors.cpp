#include "format/safetensors.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <system_error>
#include <unordered_map>

#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/json.h"
#include "base/printable.h"
#include "platform/mapped_file.h"

namespace trine {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
constexpr std::size_t kMaxIndexBytes = 100'000'000;
constexpr int kMaxJsonDepth = 8;
constexpr std::size_t kMaxNameBytes = std::size_t{64} << 10;
constexpr std::size_t kMaxTensors = 1'000'000;
constexpr std::string_view kMetadataKey = "__metadata__";

struct Name {
  std::string_view name;
  DType dtype;
};

// F4 and F6 have no entry in older readers; names as the reference implementation spells them.
constexpr Name kNames[] = {
    {"BOOL", DType::kBool},
    {"U8", DType::kU8},
    {"I8", DType::kI8},
    {"F8_E5M2", DType::kF8E5M2},
    {"F8_E4M3", DType::kF8E4M3},
    {"F8_E8M0", DType::kF8E8M0},
    {"I16", DType::kI16},
    {"U16", DType::kU16},
    {"F16", DType::kF16},
    {"BF16", DType::kBF16},
    {"I32", DType::kI32},
    {"U32", DType::kU32},
    {"F32", DType::kF32},
    {"F64", DType::kF64},
    {"I64", DType::kI64},
    {"U64", DType::kU64},
    {"C64", DType::kC64},
    {"F4", DType::kF4},
    {"F6_E2M3", DType::kF6E2M3},
    {"F6_E3M2", DType::kF6E3M2},
    {"F8_E4M3FNUZ", DType::kF8E4M3FNUZ},
    {"F8_E5M2FNUZ", DType::kF8E5M2FNUZ},
};

Result<DType> dtype_of_name(std::string_view name) {
  for (const Name& entry : kNames) {
    if (entry.name == name) {
      return entry.dtype;
    }
  }
  return fail(ErrorCode::kUnsupported, "dtype \"{}\" is unknown", printable(name));
}

// A non-negative JSON integer that fits 63 bits.
Result<std::uint64_t> size_value(const Json& value, std::string_view field) {
  if (!value.is_number_unsigned()) {
    return fail(ErrorCode::kCorruptData, "{} holds {}, wanted a non-negative integer", field,
                printable(value.dump(-1, ' ', true), 40));
  }
  const auto number = value.get<std::uint64_t>();
  if (number > INT64_MAX) {
    return fail(ErrorCode::kCorruptData, "{} holds {}, at most {}", field, number, INT64_MAX);
  }
  return number;
}

struct Entry {
  TensorInfo info;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

Status set_shape(const Json& shape, Entry& entry) {
  if (!shape.is_array()) {
    return fail(ErrorCode::kCorruptData, "shape is not an array");
  }
  std::uint64_t elems = 1;
  bool empty = false;
  for (const Json& item : shape) {
    TRINE_TRY_ASSIGN(const auto dim, size_value(item, "shape"));
    entry.info.shape.push_back(static_cast<std::int64_t>(dim));
    empty = empty || dim == 0;
    // A zero anywhere makes the tensor empty, whatever the product of the rest.
    const auto product = checked_mul(elems, std::max<std::uint64_t>(dim, 1));
    if (!product.has_value() || *product > INT64_MAX) {
      return fail(ErrorCode::kCorruptData, "shape {} has more than 2^63 elements",
                  shape_text(entry.info.shape));
    }
    elems = *product;
  }
  elems = empty ? 0 : elems;
  const DTypeInfo& info = dtype_info(entry.info.dtype);
  const auto size = dtype_row_bytes(entry.info.dtype, static_cast<std::int64_t>(elems));
  if (!size.has_value()) {
    return fail(ErrorCode::kCorruptData,
                "{} elements of {} do not end on a byte or need more than 2^63 bytes", elems,
                info.name);
  }
  if (static_cast<std::uint64_t>(*size) != entry.end - entry.begin) {
    return fail(ErrorCode::kCorruptData,
                "shape {} of {} needs {} bytes, data_offsets [{}, {}) give {}",
                shape_text(entry.info.shape), info.name, *size, entry.begin, entry.end,
                entry.end - entry.begin);
  }
  return {};
}

Status set_offsets(const Json& offsets, Entry& entry) {
  if (!offsets.is_array() || offsets.size() != 2) {
    return fail(ErrorCode::kCorruptData, "data_offsets is not an array of two");
  }
  TRINE_TRY_ASSIGN(entry.begin, size_value(offsets[0], "data_offsets"));
  TRINE_TRY_ASSIGN(entry.end, size_value(offsets[1], "data_offsets"));
  if (entry.end < entry.begin) {
    return fail(ErrorCode::kCorruptData, "data_offsets [{}, {}) run backwards", entry.begin,
                entry.end);
  }
  return {};
}

Status read_entry(const Json& value, Entry& entry) {
  if (!value.is_object()) {
    return fail(ErrorCode::kCorruptData, "entry is not an object");
  }
  for (const auto& [key, unused] : value.items()) {
    if (key != "dtype" && key != "shape" && key != "data_offsets") {
      return fail(ErrorCode::kCorruptData, "unknown field \"{}\"", printable(key));
    }
  }
  for (const char* field : {"dtype", "shape", "data_offsets"}) {
    if (!value.contains(field)) {
      return fail(ErrorCode::kCorruptData, "field {} is missing", field);
    }
  }
  if (!value["dtype"].is_string()) {
    return fail(ErrorCode::kCorruptData, "dtype is not a string");
  }
  TRINE_TRY_ASSIGN(entry.info.dtype, dtype_of_name(value["dtype"].get_ref<const std::string&>()));
  TRINE_TRY(set_offsets(value["data_offsets"], entry));
  return set_shape(value["shape"], entry);
}

Status check_name(std::string_view name) {
  if (name.size() > kMaxNameBytes) {
    return fail(ErrorCode::kCorruptData, "tensor name of {} bytes, at most {}", name.size(),
                kMaxNameBytes);
  }
  return {};
}

Result<StringPairs> read_metadata(const Json& value) {
  if (!value.is_object()) {
    return fail(ErrorCode::kCorruptData, "{} is not an object", kMetadataKey);
  }
  StringPairs out;
  for (const auto& [key, item] : value.items()) {
    if (!item.is_string()) {
      return fail(ErrorCode::kCorruptData, "{} key \"{}\" is not a string", kMetadataKey,
                  printable(key));
    }
    out.emplace_back(key, item.get<std::string>());
  }
  return out;
}

// Sorted by begin, the tensors must follow one another from 0 to the end of the buffer.
Status place_tensors(std::span<const std::byte> buffer, std::vector<Entry>& entries) {
  std::ranges::stable_sort(entries, [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::uint64_t expected = 0;
  for (Entry& entry : entries) {
    const std::string name = printable(entry.info.name);
    if (entry.begin != expected) {
      return fail(ErrorCode::kCorruptData,
                  "tensor {}: begins at {}, wanted {} ({} between tensors is not allowed)", name,
                  entry.begin, expected, entry.begin < expected ? "overlap" : "a hole");
    }
    if (entry.end > buffer.size()) {
      return fail(ErrorCode::kCorruptData,
                  "tensor {}: ends at {}, the buffer has {} bytes (truncated file?)", name,
                  entry.end, buffer.size());
    }
    entry.info.data = buffer.subspan(static_cast<std::size_t>(entry.begin),
                                     static_cast<std::size_t>(entry.end - entry.begin));
    expected = entry.end;
  }
  if (expected != buffer.size()) {
    return fail(ErrorCode::kCorruptData, "{} bytes after the last tensor, none are allowed",
                buffer.size() - expected);
  }
  return {};
}

Result<std::string_view> read_header(ByteReader& reader) {
  TRINE_TRY_ASSIGN(const auto size, reader.read<std::uint64_t>("header size"));
  if (size > kMaxHeaderBytes) {
    return fail(ErrorCode::kCorruptData, "header of {} bytes, at most {}", size, kMaxHeaderBytes);
  }
  TRINE_TRY_ASSIGN(const auto bytes, reader.read_bytes(size, "header"));
  const std::string_view text = as_text(bytes);
  if (!text.starts_with('{')) {
    return fail(ErrorCode::kCorruptData, "header starts with \"{}\", wanted \"{{\"",
                printable(text.substr(0, 1)));
  }
  return text;
}

// File names come from an index that anybody may have written: no way out of the directory.
Status check_plain_file_name(std::string_view name) {
  const bool plain = !name.empty() && name.size() <= 255 && !name.starts_with('.') &&
                     name.find_first_of("/\\:") == std::string_view::npos &&
                     std::ranges::none_of(name, [](char c) {
                       return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
                     });
  if (!plain) {
    return fail(ErrorCode::kCorruptData,
                "file name \"{}\" is not a plain name in the same directory", printable(name));
  }
  if (!name.ends_with(".safetensors")) {
    return fail(ErrorCode::kUnsupported, "file name \"{}\" does not end in .safetensors",
                printable(name));
  }
  return {};
}

struct OpenShard {
  std::vector<TensorInfo> tensors;
  std::shared_ptr<const MappedFile> mapped;
};

Result<OpenShard> open_file(const std::string& path) {
  TRINE_TRY_ASSIGN(auto mapped, MappedFile::open(path));
  auto file = parse_safetensors(mapped->bytes());
  if (!file.has_value()) {
    return tl::unexpected(std::move(file).error().with_context(path));
  }
  return OpenShard{std::move(file->tensors), std::move(mapped)};
}

Result<Checkpoint> open_single(const std::string& path) {
  TRINE_TRY_ASSIGN(OpenShard shard, open_file(path));
  return Checkpoint::build(path, std::move(shard.tensors), {std::move(shard.mapped)});
}

Result<Checkpoint> open_sharded(const std::filesystem::path& directory,
                                const std::filesystem::path& index_path) {
  TRINE_TRY_ASSIGN(const auto index_file, MappedFile::open(index_path.string()));
  auto parsed = parse_safetensors_index(as_text(index_file->bytes()));
  if (!parsed.has_value()) {
    return tl::unexpected(std::move(parsed).error().with_context(index_path.string()));
  }
  std::vector<SafetensorsShard> shards;
  std::vector<std::shared_ptr<const void>> keep_alive;
  for (const auto& [tensor, file] : *parsed) {
    if (std::ranges::any_of(shards, [&](const auto& shard) { return shard.file == file; })) {
      continue;
    }
    auto opened = open_file((directory / file).string());
    if (!opened.has_value()) {
      Error error = std::move(opened).error();
      if (error.code == ErrorCode::kNotFound) {
        error.code = ErrorCode::kCorruptData;  // the model is there, a part of it is not
      }
      return tl::unexpected(std::move(error));
    }
    OpenShard shard = *std::move(opened);
    shards.push_back({file, std::move(shard.tensors)});
    keep_alive.push_back(std::move(shard.mapped));
  }
  auto joined = join_safetensors_shards(*parsed, std::move(shards));
  if (!joined.has_value()) {
    return tl::unexpected(std::move(joined).error().with_context(index_path.string()));
  }
  return Checkpoint::build(directory.string(), *std::move(joined), std::move(keep_alive));
}

bool path_exists(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

Result<Checkpoint> open_directory(const std::filesystem::path& directory) {
  if (path_exists(directory / "model.safetensors")) {
    return open_single((directory / "model.safetensors").string());
  }
  const auto index_path = directory / "model.safetensors.index.json";
  if (path_exists(index_path)) {
    return open_sharded(directory, index_path);
  }
  std::vector<std::string> found;
  std::string pickle;
  std::error_code error;
  for (std::filesystem::directory_iterator it(directory, error), end; !error && it != end;
       it.increment(error)) {
    const std::string extension = it->path().extension().string();
    if (extension == ".safetensors") {
      found.push_back(it->path().string());
    } else if (extension == ".bin" || extension == ".pt" || extension == ".pth") {
      pickle = it->path().filename().string();
    }
  }
  if (error) {
    return fail(ErrorCode::kInvalidArgument, "cannot list {}: {}", directory.string(),
                error.message());
  }
  if (found.size() == 1) {
    return open_single(found.front());
  }
  if (found.size() > 1) {
    std::ranges::sort(found);
    return fail(
        ErrorCode::kInvalidArgument,
        "{} has {} .safetensors files and no model.safetensors.index.json; name one, e.g. {}",
        directory.string(), found.size(), found.front());
  }
  if (!pickle.empty()) {
    return fail(ErrorCode::kUnsupported,
                "{} has only pickle weights ({}), which can run code when loaded; convert them to "
                "safetensors "
                "(transformers: model.save_pretrained(dir, safe_serialization=True))",
                directory.string(), pickle);
  }
  return fail(ErrorCode::kCorruptData, "{} has no .safetensors file", directory.string());
}

}  // namespace

std::string_view safetensors_dtype_name(DType type) {
  for (const Name& entry : kNames) {
    if (entry.dtype == type) {
      return entry.name;
    }
  }
  return {};
}

Result<SafetensorsFile> parse_safetensors(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  TRINE_TRY_ASSIGN(const std::string_view text, read_header(reader));
  TRINE_TRY_ASSIGN(const Json header,
                   parse_json(text, {.max_depth = kMaxJsonDepth, .max_bytes = kMaxHeaderBytes}));
  if (header.size() > kMaxTensors) {
    return fail(ErrorCode::kCorruptData, "{} tensors, at most {}", header.size(), kMaxTensors);
  }
  SafetensorsFile file;
  std::vector<Entry> entries;
  for (const auto& [name, value] : header.items()) {
    if (name == kMetadataKey) {
      TRINE_TRY_ASSIGN(file.metadata, read_metadata(value));
      continue;
    }
    TRINE_TRY(check_name(name));
    Entry entry;
    entry.info.name = name;
    if (Status status = read_entry(value, entry); !status.has_value()) {
      return tl::unexpected(
          std::move(status).error().with_context(fmt::format("tensor {}", printable(name))));
    }
    entries.push_back(std::move(entry));
  }
  TRINE_TRY(place_tensors(bytes.subspan(reader.position()), entries));
  file.tensors.reserve(entries.size());
  for (Entry& entry : entries) {
    file.tensors.push_back(std::move(entry.info));
  }
  return file;
}

Result<StringPairs> parse_safetensors_index(std::string_view json) {
  TRINE_TRY_ASSIGN(const Json index,
                   parse_json(json, {.max_depth = kMaxJsonDepth, .max_bytes = kMaxIndexBytes}));
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
    return fail(ErrorCode::kCorruptData, "weight_map is missing or not an object");
  }
  const Json& map = index["weight_map"];
  if (map.empty() || map.size() > kMaxTensors) {
    return fail(ErrorCode::kCorruptData, "weight_map has {} entries, wanted 1 to {}", map.size(),
                kMaxTensors);
  }
  StringPairs out;
  for (const auto& [name, value] : map.items()) {
    TRINE_TRY(check_name(name));
    if (!value.is_string()) {
      return fail(ErrorCode::kCorruptData, "weight_map entry {} is not a file name",
                  printable(name));
    }
    const auto& file = value.get_ref<const std::string&>();
    if (Status status = check_plain_file_name(file); !status.has_value()) {
      return tl::unexpected(std::move(status).error().with_context(
          fmt::format("weight_map entry {}", printable(name))));
    }
    out.emplace_back(name, file);
  }
  return out;
}

Result<std::vector<TensorInfo>> join_safetensors_shards(const StringPairs& weight_map,
                                                        std::vector<SafetensorsShard> shards) {
  std::unordered_map<std::string_view, std::string_view> file_of;  // what the index says
  for (const auto& [name, file] : weight_map) {
    if (!file_of.emplace(name, file).second) {
      return fail(ErrorCode::kCorruptData, "tensor {} occurs twice in weight_map", printable(name));
    }
  }
  std::vector<TensorInfo> out;
  for (SafetensorsShard& shard : shards) {
    for (TensorInfo& tensor : shard.tensors) {
      const auto it = file_of.find(tensor.name);
      if (it == file_of.end()) {
        return fail(ErrorCode::kCorruptData,
                    "tensor {} is in {} but not in weight_map (or occurs twice)",
                    printable(tensor.name), printable(shard.file));
      }
      if (it->second != shard.file) {
        return fail(ErrorCode::kCorruptData, "tensor {} is in {}, weight_map says {}",
                    printable(tensor.name), printable(shard.file), printable(it->second));
      }
      file_of.erase(it);
      out.push_back(std::move(tensor));
    }
  }
  if (!file_of.empty()) {
    // The first missing one in file order, so that the message does not depend on hashing.
    for (const auto& [name, file] : weight_map) {
      if (file_of.contains(name)) {
        return fail(ErrorCode::kCorruptData, "tensor {} is not in {}, where weight_map puts it",
                    printable(name), printable(file));
      }
    }
  }
  return out;
}

Result<Checkpoint> open_safetensors(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return open_directory(path);
  }
  return open_single(path);
}

}  // namespace trine
