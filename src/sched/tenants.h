// Who has been served how much: a counter of tokens per tenant, so that the one served least comes
// next.
//
// After Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024: a tenant that comes
// back from idleness is lifted to the least of the busy ones, so nobody saves up credit. Names are
// hostile: idle tenants are forgotten past kMostIdle. Thread rule: engine thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trine::sched {

class Tenants {
 public:
  // A request of the tenant comes; returns its index, valid until as many leave() as enter().
  std::int32_t enter(std::string_view name);
  void leave(std::int32_t tenant);
  void charge(std::int32_t tenant, std::int64_t tokens);

  std::int64_t served(std::int32_t tenant) const {
    return list_[static_cast<std::size_t>(tenant)].served;
  }

  std::size_t size() const { return list_.size(); }

  std::int32_t num_requests(std::int32_t tenant) const {
    return list_[static_cast<std::size_t>(tenant)].num_requests;
  }

  static constexpr std::size_t kMostIdle = 1024;

 private:
  struct Tenant {
    std::string name;
    std::int64_t served = 0;
    std::int32_t num_requests = 0;
  };

  std::int64_t least_served() const;

  std::vector<Tenant> list_;
  std::int64_t floor_ = 0;  // the least served busy tenant had this much when last seen
};

}  // namespace trine::sched
