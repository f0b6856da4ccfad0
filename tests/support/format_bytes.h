// Hand-made GGUF and safetensors bytes for tests, written independently of the product's writers so
// that a mistake there cannot hide, and able to make broken files. Header-only.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace trine::test {

// Little-endian bytes, appended one field after another.
struct Bytes {
  std::string out;

  template <typename T>
  Bytes& put(T value) {
    static_assert(std::is_arithmetic_v<T>);
    char raw[sizeof(T)];
    std::memcpy(raw, &value, sizeof(T));
    out.append(raw, sizeof(T));
    return *this;
  }

  Bytes& raw(std::string_view bytes) {
    out += bytes;
    return *this;
  }

  // u64 length and the bytes, as GGUF writes strings.
  Bytes& text(std::string_view bytes) {
    return put(static_cast<std::uint64_t>(bytes.size())).raw(bytes);
  }
};

// One GGUF key-value pair: type number and encoded value.
struct GgufPairBytes {
  std::string key;
  std::uint32_t type = 0;
  std::string value;
};

inline GgufPairBytes gguf_u32(std::string key, std::uint32_t value) {
  return {std::move(key), 4, Bytes{}.put(value).out};
}

inline GgufPairBytes gguf_f32(std::string key, float value) {
  return {std::move(key), 6, Bytes{}.put(value).out};
}

inline GgufPairBytes gguf_bool(std::string key, bool value) {
  return {std::move(key), 7, std::string(1, value ? '\1' : '\0')};
}

inline GgufPairBytes gguf_string(std::string key, std::string_view value) {
  return {std::move(key), 8, Bytes{}.text(value).out};
}

// An array of fixed-size numbers; `elem_type` is the GGUF number of T.
template <typename T>
GgufPairBytes gguf_numbers(std::string key, std::uint32_t elem_type, const std::vector<T>& items) {
  Bytes value;
  value.put(elem_type).put(static_cast<std::uint64_t>(items.size()));
  for (const T item : items) {
    value.put(item);
  }
  return {std::move(key), 9, value.out};
}

inline GgufPairBytes gguf_strings(std::string key, const std::vector<std::string>& items) {
  Bytes value;
  value.put(std::uint32_t{8}).put(static_cast<std::uint64_t>(items.size()));
  for (const std::string& item : items) {
    value.text(item);
  }
  return {std::move(key), 9, value.out};
}

struct GgufTensorBytes {
  std::string name;
  std::vector<std::int64_t> dims;  // file order: contiguous first
  std::uint32_t type = 0;          // GGUF number; 0 is F32
  std::string data;
  std::optional<std::uint64_t> offset = {};    // default: the right one
  std::optional<std::uint32_t> num_dims = {};  // default: dims.size()
};

// A whole file; every field can be made wrong.
struct GgufBytes {
  std::string magic = "GGUF";
  std::uint32_t version = 3;
  std::optional<std::uint64_t> num_tensors = {};
  std::optional<std::uint64_t> num_pairs = {};
  std::vector<GgufPairBytes> pairs;
  std::vector<GgufTensorBytes> tensors;
  std::uint64_t alignment = 32;  // used for the layout; not written as a key
  std::string trailing;          // after the padded data

  std::string build() const {
    Bytes file;
    file.raw(magic).put(version);
    file.put(num_tensors.value_or(tensors.size())).put(num_pairs.value_or(pairs.size()));
    for (const GgufPairBytes& pair : pairs) {
      file.text(pair.key).put(pair.type).raw(pair.value);
    }
    std::string data;
    for (const GgufTensorBytes& tensor : tensors) {
      file.text(tensor.name);
      file.put(tensor.num_dims.value_or(static_cast<std::uint32_t>(tensor.dims.size())));
      for (const std::int64_t dim : tensor.dims) {
        file.put(dim);
      }
      file.put(tensor.type).put(tensor.offset.value_or(data.size()));
      data += tensor.data;
      pad(data);
    }
    pad(file.out);
    return file.out + data + trailing;
  }

 private:
  void pad(std::string& bytes) const {
    bytes.resize((bytes.size() + alignment - 1) / alignment * alignment, '\0');
  }
};

// A file with a few pairs and two tensors, the base that tests change.
inline GgufBytes small_gguf() {
  GgufBytes file;
  file.pairs = {gguf_string("general.architecture", "llama"), gguf_u32("llama.block_count", 2),
                gguf_strings("tokenizer.ggml.tokens", {"a", "b", "c"})};
  file.tensors = {{.name = "a.weight", .dims = {4, 3}, .type = 0, .data = std::string(48, '\1')},
                  {.name = "b.weight", .dims = {32, 2}, .type = 8, .data = std::string(68, '\2')}};
  return file;
}

// A safetensors file from its JSON and buffer; the header size can be made wrong.
inline std::string safetensors_bytes(std::string_view json, std::string_view buffer,
                                     std::optional<std::uint64_t> header_size = {}) {
  return Bytes{}.put(header_size.value_or(json.size())).raw(json).raw(buffer).out;
}

// A directory that disappears with the test.
class TempDir {
 public:
  TempDir() {
    std::random_device random;
    do {
      path_ = std::filesystem::temp_directory_path() /
              ("trine-test-" + std::to_string(random()) + std::to_string(random()));
    } while (!std::filesystem::create_directory(path_));
  }

  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  std::string file(std::string_view name) const { return (path_ / name).string(); }

  std::string path() const { return path_.string(); }

  std::string write(std::string_view name, std::string_view bytes) const {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
    return file(name);
  }

  std::size_t num_files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(path_), {}));
  }

 private:
  std::filesystem::path path_;
};

}  // namespace trine::test
