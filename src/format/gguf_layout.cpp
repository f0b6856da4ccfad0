#include "format/gguf_layout.h"

#include <bit>

#include "base/bytes.h"
#include "format/checkpoint.h"
#include "format/gguf.h"

namespace trine {
namespace gguf_layout {
namespace {

struct TypeId {
  std::uint32_t id;
  DType dtype;
};

constexpr TypeId kTypeIds[] = {
    {0, DType::kF32},    {1, DType::kF16},     {2, DType::kQ4_0},   {3, DType::kQ4_1},
    {6, DType::kQ5_0},   {7, DType::kQ5_1},    {8, DType::kQ8_0},   {9, DType::kQ8_1},
    {10, DType::kQ2K},   {11, DType::kQ3K},    {12, DType::kQ4K},   {13, DType::kQ5K},
    {14, DType::kQ6K},   {16, DType::kIQ2XXS}, {17, DType::kIQ2XS}, {18, DType::kIQ3XXS},
    {19, DType::kIQ1S},  {20, DType::kIQ4NL},  {21, DType::kIQ3S},  {22, DType::kIQ2S},
    {23, DType::kIQ4XS}, {24, DType::kI8},     {25, DType::kI16},   {26, DType::kI32},
    {27, DType::kI64},   {28, DType::kF64},    {29, DType::kIQ1M},  {30, DType::kBF16},
    {34, DType::kTQ1_0}, {35, DType::kTQ2_0},  {39, DType::kMXFP4}, {40, DType::kNVFP4},
    {41, DType::kQ1_0},  {42, DType::kQ2_0},
};

// Types that once had the number and never come back; the names say what an old file holds.
struct RemovedType {
  std::uint32_t id;
  std::string_view name;
};

constexpr RemovedType kRemovedTypes[] = {
    {4, "Q4_2"},      {5, "Q4_3"},        {31, "Q4_0_4_4"},   {32, "Q4_0_4_8"},
    {33, "Q4_0_8_8"}, {36, "IQ4_NL_4_4"}, {37, "IQ4_NL_4_8"}, {38, "IQ4_NL_8_8"},
};

}  // namespace

Result<DType> dtype_of_id(std::uint32_t id) {
  for (const TypeId& entry : kTypeIds) {
    if (entry.id == id) {
      return entry.dtype;
    }
  }
  for (const RemovedType& removed : kRemovedTypes) {
    if (removed.id == id) {
      return fail(ErrorCode::kUnsupported,
                  "type {} ({}) was removed from GGUF; convert the model again with a current tool",
                  id, removed.name);
    }
  }
  if (id == 15) {
    return fail(ErrorCode::kUnsupported,
                "type 15 (Q8_K) exists only inside computations, not in files");
  }
  return fail(ErrorCode::kUnsupported, "type {} is unknown (known: up to 42, Q2_0)", id);
}

Status check_alignment(std::uint32_t alignment) {
  if (!std::has_single_bit(alignment) || alignment < kMinAlignment || alignment > kMaxAlignment) {
    return fail(ErrorCode::kCorruptData,
                "metadata key {} is {}, wanted a power of two from {} to {}", kAlignmentKey,
                alignment, kMinAlignment, kMaxAlignment);
  }
  return {};
}

Result<std::uint64_t> tensor_bytes(DType dtype, std::span<const std::int64_t> dims) {
  if (dims.empty() || dims.size() > kMaxDims) {
    return fail(ErrorCode::kCorruptData, "{} dimensions, wanted 1 to {}", dims.size(), kMaxDims);
  }
  std::uint64_t elems = 1;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] <= 0) {
      // The file's field is unsigned.
      return fail(ErrorCode::kCorruptData, "dimension {} is {}, wanted 1 to {}", i,
                  static_cast<std::uint64_t>(dims[i]), INT64_MAX);
    }
    const auto product = checked_mul(elems, static_cast<std::uint64_t>(dims[i]));
    if (!product.has_value() || *product > INT64_MAX) {
      return fail(ErrorCode::kCorruptData, "dimensions {} (file order) have more than {} elements",
                  shape_text(dims), INT64_MAX);
    }
    elems = *product;
  }
  const DTypeInfo& info = dtype_info(dtype);
  if (dims[0] % info.block_elems != 0) {
    return fail(ErrorCode::kCorruptData,
                "row of {} elements is not a multiple of {}, the block of {}", dims[0],
                info.block_elems, info.name);
  }
  const auto size = dtype_row_bytes(dtype, static_cast<std::int64_t>(elems));
  if (!size.has_value()) {
    return fail(ErrorCode::kCorruptData, "{} elements of {} need more than {} bytes", elems,
                info.name, INT64_MAX);
  }
  return static_cast<std::uint64_t>(*size);
}

std::optional<std::uint64_t> align_up(std::uint64_t value, std::uint64_t alignment) {
  const auto sum = checked_add(value, alignment - 1);
  return sum.has_value() ? std::optional(*sum & ~(alignment - 1)) : std::nullopt;
}

}  // namespace gguf_layout

std::optional<std::uint32_t> gguf_type_id(DType type) {
  for (const auto& entry : gguf_layout::kTypeIds) {
    if (entry.dtype == type) {
      return entry.id;
    }
  }
  return std::nullopt;
}

}  // namespace trine
