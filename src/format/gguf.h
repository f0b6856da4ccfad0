// GGUF files, versions 2 and 3, little-endian: reader over mapped memory and writer.
//
// Layout: magic "GGUF", u32 version, u64 tensor count, u64 pair count; the key-value pairs; the
// tensor infos; zero padding to `general.alignment`; the tensor data, each tensor padded to the
// alignment. Types and block layouts: docs/formats/gguf-blocks.md. Specification: the GGUF document
// of the ggml project.
//
// The reader treats every byte as hostile: each length is checked against the bytes left before
// anything is allocated, sizes are computed with overflow checks, and tensors must tile the data
// section exactly. Limits: keys 64 KiB, strings 16 MiB, tensors 1e6, dimensions 1..4, names 1..63
// bytes, alignment a power of two in 8..65536. Errors: corrupt_data for a file that breaks the
// format, unsupported for version 1, big-endian files, split files and tensor types without a known
// layout. Each names the key or tensor, the value and the limit. Thread rule: GgufMetadata and
// GgufFile are immutable after construction.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "format/checkpoint.h"

namespace trine {

// The numbers are the file's own.
enum class GgufType : std::uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

// "u32", "string", ...; "type 99" for a number outside the list.
std::string gguf_type_name(GgufType type);

// An array of one element type. Arrays do not nest.
using GgufArray =
    std::variant<std::vector<std::uint8_t>, std::vector<std::int8_t>, std::vector<std::uint16_t>,
                 std::vector<std::int16_t>, std::vector<std::uint32_t>, std::vector<std::int32_t>,
                 std::vector<float>, std::vector<bool>, std::vector<std::string>,
                 std::vector<std::uint64_t>, std::vector<std::int64_t>, std::vector<double>>;

using GgufValue = std::variant<std::uint8_t, std::int8_t, std::uint16_t, std::int16_t,
                               std::uint32_t, std::int32_t, float, bool, std::string, std::uint64_t,
                               std::int64_t, double, GgufArray>;

GgufType gguf_value_type(const GgufValue& value);
GgufType gguf_array_elem_type(const GgufArray& array);
std::size_t gguf_array_size(const GgufArray& array);
// "u32", "string[49152]".
std::string gguf_value_type_name(const GgufValue& value);

// The key-value pairs in file order, with getters that check the type and, for arrays, the count.
// The errors of the getters are corrupt_data and name the key, the type found and the type wanted.
class GgufMetadata {
 public:
  using Pair = std::pair<std::string, GgufValue>;

  GgufMetadata() = default;
  // Keys must be unique and non-empty (corrupt_data otherwise).
  static Result<GgufMetadata> build(std::vector<Pair> pairs);

  std::span<const Pair> pairs() const { return pairs_; }

  // nullptr when the key is absent.
  const GgufValue* find(std::string_view key) const;

  bool has(std::string_view key) const { return find(key) != nullptr; }

  // Any integer type that holds a value in [0, max].
  Result<std::uint64_t> get_uint(std::string_view key, std::uint64_t max = UINT64_MAX) const;
  // Any integer type whose value fits.
  Result<std::int64_t> get_int(std::string_view key) const;
  // f32 or f64, finite.
  Result<double> get_float(std::string_view key) const;
  Result<bool> get_bool(std::string_view key) const;
  // The view lives as long as this object.
  Result<std::string_view> get_string(std::string_view key) const;

  // An array whose element type is exactly T (one of the element types of GgufArray) and whose
  // length is `count` when given. The pointer lives as long as this object.
  template <typename T>
  Result<const std::vector<T>*> get_array(std::string_view key,
                                          std::optional<std::uint64_t> count = {}) const;
  // Integers of any integer element type, each of which must fit i64.
  Result<std::vector<std::int64_t>> get_int_array(std::string_view key,
                                                  std::optional<std::uint64_t> count = {}) const;

 private:
  Result<const GgufValue*> require(std::string_view key, std::string_view wanted) const;

  std::vector<Pair> pairs_;
  std::unordered_map<std::string, std::size_t> index_;
};

struct GgufFile {
  std::uint32_t version = 3;
  std::uint32_t alignment = 32;
  GgufMetadata metadata;
  Checkpoint checkpoint;  // shapes outermost first
};

// Maps and checks the file at `path`.
Result<GgufFile> open_gguf(const std::string& path);

// The same from memory; the tensors view `bytes`, which `keep_alive` owns (may be null when the
// caller does).
Result<GgufFile> parse_gguf(std::span<const std::byte> bytes, const std::string& source,
                            std::shared_ptr<const void> keep_alive = nullptr);

// The file's tensor type number of a DType, nullopt when GGUF has none (e.g. F8_E4M3).
std::optional<std::uint32_t> gguf_type_id(DType type);

}  // namespace trine
