#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "base/check.h"
#include "kv/kv_cache.h"

namespace trine {

namespace {

std::size_t pages_for(std::int32_t tokens) {
  return (static_cast<std::size_t>(tokens) + kPageTokens - 1) / kPageTokens;
}

}  // namespace

std::int32_t KvSequence::capacity() const {
  const std::size_t tokens = pages_.size() * kPageTokens;
  const auto limit = static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max());
  return static_cast<std::int32_t>(std::min(tokens, limit));
}

Status KvSequence::reserve(std::int32_t upto) {
  if (upto <= length_) {
    return {};
  }
  const std::size_t needed = pages_for(upto);
  const std::size_t first_written = static_cast<std::size_t>(length_) / kPageTokens;
  std::size_t num_shared = 0;
  for (std::size_t i = first_written; i < std::min(needed, pages_.size()); ++i) {
    num_shared += pages_[i].use_count() > 1 ? 1u : 0u;
  }
  const std::size_t num_new = needed > pages_.size() ? needed - pages_.size() : 0;
  if (num_shared + num_new > static_cast<std::size_t>(pool_->num_free())) {
    return pages_exhausted(*pool_, static_cast<std::int64_t>(num_shared + num_new));
  }
  const auto page_bytes = static_cast<std::size_t>(pool_->geometry().page_bytes());
  for (std::size_t i = first_written; i < needed; ++i) {
    if (i < pages_.size() && pages_[i].use_count() == 1) {
      continue;
    }
    Result<PageRef> page = pool_->allocate();
    TRINE_CHECK(page.has_value());  // counted above
    if (i < pages_.size()) {
      std::memcpy(page->data(), page_data_[i], page_bytes);
      pages_[i] = *std::move(page);
      page_data_[i] = pages_[i].data();
    } else {
      pages_.push_back(*std::move(page));
      page_data_.push_back(pages_.back().data());
    }
  }
  return {};
}

void KvSequence::reserve_table(std::int32_t max_tokens) {
  pages_.reserve(pages_for(max_tokens));
  page_data_.reserve(pages_for(max_tokens));
}

void KvSequence::commit(std::int32_t count) {
  TRINE_CHECK(count >= 0 && count <= capacity() - length_);
  length_ += count;
}

void KvSequence::adopt(std::span<const PageRef> pages) {
  TRINE_CHECK(pages_.empty() && length_ == 0);
  for (const PageRef& page : pages) {
    pages_.push_back(page);
    page_data_.push_back(page.data());
  }
  length_ = capacity();
}

void KvSequence::truncate(std::int32_t length) {
  TRINE_CHECK(length >= 0 && length <= length_);
  length_ = length;
  pages_.erase(pages_.begin() + static_cast<std::ptrdiff_t>(pages_for(length)), pages_.end());
  page_data_.resize(pages_.size());
}

KvSequence KvSequence::fork() const {
  KvSequence twin(*pool_);
  const std::size_t count = pages_for(length_);
  twin.length_ = length_;
  twin.pages_.assign(pages_.begin(), pages_.begin() + static_cast<std::ptrdiff_t>(count));
  twin.page_data_.assign(page_data_.begin(),
                         page_data_.begin() + static_cast<std::ptrdiff_t>(count));
  return twin;
}

}  // namespace trine
