#include <cstdint>

#include "ops/ops.h"
#include "ops/quantized_rows.h"

namespace trine::ops {
namespace {

constexpr std::size_t kCacheLine = 64;

std::byte* aligned(std::byte* start) {
  const auto address = reinterpret_cast<std::uintptr_t>(start);
  return start + (kCacheLine - address % kCacheLine) % kCacheLine;
}

}  // namespace

Context::Context(ThreadTeam& team)
    : team_(&team),
      turns_(team.num_threads()),
      quantized_rows_(std::make_unique<QuantizedRows>()),
      scratch_(static_cast<std::size_t>(team.num_threads())) {}

Context::~Context() = default;

void Context::reserve_scratch(std::size_t bytes) {
  if (bytes <= scratch_bytes_) {
    return;
  }
  for (auto& block : scratch_) {
    block = std::make_unique<std::byte[]>(bytes + kCacheLine);
  }
  scratch_bytes_ = bytes;
}

std::byte* Context::scratch(int thread_idx) {
  return aligned(scratch_[static_cast<std::size_t>(thread_idx)].get());
}

std::byte* Context::shared_scratch(std::size_t bytes) {
  if (bytes > shared_bytes_) {
    shared_ = std::make_unique<std::byte[]>(bytes + kCacheLine);
    shared_bytes_ = bytes;
  }
  return aligned(shared_.get());
}

}  // namespace trine::ops
