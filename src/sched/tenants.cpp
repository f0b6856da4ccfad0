#include "sched/tenants.h"

#include <algorithm>

#include "base/check.h"

namespace trine::sched {

std::int64_t Tenants::least_served() const {
  std::int64_t least = -1;
  for (const Tenant& tenant : list_) {
    if (tenant.num_requests > 0 && (least < 0 || tenant.served < least)) {
      least = tenant.served;
    }
  }
  return std::max(least, floor_);
}

std::int32_t Tenants::enter(std::string_view name) {
  floor_ = least_served();
  auto at = std::find_if(list_.begin(), list_.end(),
                         [&](const Tenant& tenant) { return tenant.name == name; });
  if (at == list_.end() && list_.size() >= kMostIdle) {
    // The idle one with the least on its account: what is forgotten is least.
    for (auto it = list_.begin(); it != list_.end(); ++it) {
      if (it->num_requests == 0 && (at == list_.end() || it->served < at->served)) {
        at = it;
      }
    }
    if (at != list_.end()) {
      *at = Tenant{.name = std::string(name)};
    }
  }
  if (at == list_.end()) {
    at = list_.insert(at, Tenant{.name = std::string(name)});
  }
  if (at->num_requests++ == 0) {
    at->served = std::max(at->served, floor_);
  }
  return static_cast<std::int32_t>(at - list_.begin());
}

void Tenants::leave(std::int32_t tenant) {
  floor_ = least_served();
  TRINE_CHECK(list_[static_cast<std::size_t>(tenant)].num_requests > 0);
  --list_[static_cast<std::size_t>(tenant)].num_requests;
}

void Tenants::charge(std::int32_t tenant, std::int64_t tokens) {
  list_[static_cast<std::size_t>(tenant)].served += tokens;
}

}  // namespace trine::sched
