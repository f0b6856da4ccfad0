// read(write(x)) == x for random files of both formats.
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "base/bytes.h"
#include "format/gguf_writer.h"
#include "format/safetensors_writer.h"
#include "support/format_bytes.h"

namespace trine {
namespace {

// Floats come from integers, so that no NaN spoils the comparison.
double random_number() {
  return *rc::gen::inRange(-1000, 1000) / 8.0;
}

template <typename T>
std::vector<T> random_items() {
  return *rc::gen::container<std::vector<T>>(rc::gen::arbitrary<T>());
}

GgufArray random_array() {
  switch (*rc::gen::inRange(0, 6)) {
    case 0:
      return random_items<std::uint8_t>();
    case 1:
      return random_items<std::int32_t>();
    case 2:
      return random_items<std::string>();
    case 3:
      return random_items<bool>();
    case 4:
      return random_items<std::uint64_t>();
    default: {
      std::vector<float> out(*rc::gen::inRange<std::size_t>(0, 20));
      for (float& item : out) {
        item = static_cast<float>(random_number());
      }
      return out;
    }
  }
}

GgufValue random_value() {
  switch (*rc::gen::inRange(0, 13)) {
    case 0:
      return *rc::gen::arbitrary<std::uint8_t>();
    case 1:
      return *rc::gen::arbitrary<std::int8_t>();
    case 2:
      return *rc::gen::arbitrary<std::uint16_t>();
    case 3:
      return *rc::gen::arbitrary<std::int16_t>();
    case 4:
      return *rc::gen::arbitrary<std::uint32_t>();
    case 5:
      return *rc::gen::arbitrary<std::int32_t>();
    case 6:
      return *rc::gen::arbitrary<std::uint64_t>();
    case 7:
      return *rc::gen::arbitrary<std::int64_t>();
    case 8:
      return static_cast<float>(random_number());
    case 9:
      return random_number();
    case 10:
      return *rc::gen::arbitrary<bool>();
    case 11:
      return *rc::gen::arbitrary<std::string>();
    default:
      return random_array();
  }
}

// Tensors with random shapes and bytes; the data live in `storage`.
std::vector<TensorInfo> random_tensors(const std::vector<DType>& types, int min_rank, int min_dim,
                                       std::vector<std::string>& storage) {
  const int count = *rc::gen::inRange(0, 6);
  storage.resize(static_cast<std::size_t>(count));
  std::vector<TensorInfo> out;
  for (int i = 0; i < count; ++i) {
    TensorInfo tensor;
    tensor.name = fmt::format("t{}.{}", *rc::gen::inRange(0, 100), i);
    tensor.dtype = *rc::gen::elementOf(types);
    tensor.shape.resize(static_cast<std::size_t>(*rc::gen::inRange(min_rank, 5)));
    for (std::int64_t& dim : tensor.shape) {
      dim = *rc::gen::inRange(min_dim, 4);
    }
    const DTypeInfo& info = dtype_info(tensor.dtype);
    if (info.block_elems > 1) {
      tensor.shape.resize(std::max<std::size_t>(tensor.shape.size(), 1), 1);
      tensor.shape.back() *= info.block_elems;
    }
    const auto size =
        static_cast<std::size_t>(dtype_row_bytes(tensor.dtype, tensor.num_elems()).value());
    std::string& data = storage[static_cast<std::size_t>(i)];
    data.resize(size);
    const char fill = *rc::gen::arbitrary<char>();
    for (std::size_t at = 0; at < size; ++at) {
      data[at] = static_cast<char>(fill + static_cast<char>(at % 97));
    }
    tensor.data = as_byte_span(data);
    out.push_back(std::move(tensor));
  }
  return out;
}

void check_same(const Checkpoint& read, const std::vector<TensorInfo>& written) {
  RC_ASSERT(read.tensors().size() == written.size());
  for (const TensorInfo& tensor : written) {
    const TensorInfo* found = read.find(tensor.name);
    RC_ASSERT(found != nullptr);
    RC_ASSERT(found->dtype == tensor.dtype);
    RC_ASSERT(found->shape == tensor.shape);
    RC_ASSERT(as_text(found->data) == as_text(tensor.data));
  }
}

RC_GTEST_PROP(GgufProperty, ReadOfWriteIsTheSame, ()) {
  std::vector<GgufMetadata::Pair> metadata;
  const int pairs = *rc::gen::inRange(0, 8);
  for (int i = 0; i < pairs; ++i) {
    metadata.emplace_back(fmt::format("key.{}", i), random_value());
  }
  if (*rc::gen::arbitrary<bool>()) {
    metadata.emplace_back("general.alignment", *rc::gen::element(8u, 32u, 64u, 4096u));
  }
  std::vector<DType> types;
  for (int i = 0; i < kNumDTypes; ++i) {
    if (gguf_type_id(static_cast<DType>(i)).has_value()) {
      types.push_back(static_cast<DType>(i));
    }
  }
  std::vector<std::string> storage;
  const auto tensors = random_tensors(types, 1, 1, storage);
  const test::TempDir dir;
  RC_ASSERT(write_gguf(dir.file("x.gguf"), metadata, tensors).has_value());
  const auto file = open_gguf(dir.file("x.gguf"));
  RC_ASSERT(file.has_value());
  RC_ASSERT(std::vector(file->metadata.pairs().begin(), file->metadata.pairs().end()) == metadata);
  check_same(file->checkpoint, tensors);
  // Tensor order is part of a GGUF file.
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    RC_ASSERT(file->checkpoint.tensors()[i].name == tensors[i].name);
  }
}

RC_GTEST_PROP(SafetensorsProperty, ReadOfWriteIsTheSame, ()) {
  std::vector<DType> types;
  for (int i = 0; i < kNumDTypes; ++i) {
    if (!safetensors_dtype_name(static_cast<DType>(i)).empty()) {
      types.push_back(static_cast<DType>(i));
    }
  }
  std::vector<std::string> storage;
  const auto tensors = random_tensors(types, 0, 0, storage);
  const test::TempDir dir;
  const auto shard = *rc::gen::element<std::uint64_t>(1, 100, 1'000'000);
  RC_ASSERT(write_safetensors_sharded(dir.path(), tensors, {{"k", "v"}}, shard).has_value());
  const auto opened = open_safetensors(dir.path());
  RC_ASSERT(opened.has_value());
  check_same(*opened, tensors);
}

}  // namespace
}  // namespace trine
