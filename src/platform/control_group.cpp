#include "platform/control_group.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>

namespace trine {
namespace {

namespace fs = std::filesystem;

std::optional<std::string> first_word(std::istream& in) {
  std::string word;
  return in >> word ? std::optional(word) : std::nullopt;
}

// "max" and what is no number have no value.
std::optional<std::int64_t> number(const std::optional<std::string>& word) {
  if (!word || word->empty() || word->size() > 18 ||
      word->find_first_not_of("0123456789") != std::string::npos) {
    return std::nullopt;
  }
  return std::stoll(*word);
}

std::optional<std::int64_t> file_number(const fs::path& path) {
  std::ifstream in(path);
  return number(first_word(in));
}

template <typename T>
void keep_least(std::optional<T>& kept, std::optional<T> value) {
  if (value && (!kept || *value < *kept)) {
    kept = value;
  }
}

std::optional<double> share(std::optional<std::int64_t> quota, std::optional<std::int64_t> period) {
  if (!quota || !period || *quota == 0 || *period == 0) {
    return std::nullopt;
  }
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

// Of a file of "key value" lines; 0 for a key that is not there.
std::int64_t keyed_number(const fs::path& path, std::string_view key) {
  std::ifstream in(path);
  for (std::string word; in >> word;) {
    if (word == key) {
      return number(first_word(in)).value_or(0);
    }
  }
  return 0;
}

// The page cache counts as used and is given back on demand.
std::optional<std::int64_t> left(std::optional<std::int64_t> limit,
                                 std::optional<std::int64_t> used, std::int64_t cache) {
  if (!limit) {
    return std::nullopt;
  }
  return *limit - std::clamp<std::int64_t>(used.value_or(0) - cache, 0, *limit);
}

void read_v2(const fs::path& group, GroupLimits& limits) {
  std::ifstream cpu(group / "cpu.max");
  const auto quota = number(first_word(cpu));
  keep_least(limits.cpus, share(quota, number(first_word(cpu))));
  const fs::path stat = group / "memory.stat";
  keep_least(limits.memory_left,
             left(file_number(group / "memory.max"), file_number(group / "memory.current"),
                  keyed_number(stat, "inactive_file") + keyed_number(stat, "active_file")));
}

// Files of a controller that is not in this hierarchy are not there.
void read_v1(const fs::path& group, GroupLimits& limits) {
  keep_least(limits.cpus, share(file_number(group / "cpu.cfs_quota_us"),  // "-1": no limit
                                file_number(group / "cpu.cfs_period_us")));
  const fs::path stat = group / "memory.stat";
  keep_least(limits.memory_left, left(file_number(group / "memory.limit_in_bytes"),
                                      file_number(group / "memory.usage_in_bytes"),
                                      keyed_number(stat, "total_inactive_file") +
                                          keyed_number(stat, "total_active_file")));
}

// The group and its parents up to `base`. Inside a container the path may be the host's, which is
// not there: then `base` is the container's own group.
template <typename Read>
void walk(const fs::path& base, std::string_view path, GroupLimits& limits, Read read) {
  std::error_code ignored;
  fs::path group = (base / fs::path(path).relative_path()).lexically_normal();
  if (path.find("..") != std::string_view::npos || !fs::is_directory(group, ignored)) {
    group = base;
  }
  for (; group != base && group.has_relative_path(); group = group.parent_path()) {
    read(group, limits);
  }
  read(base, limits);
}

void read_line(std::string_view line, const fs::path& mount, GroupLimits& limits) {
  const std::size_t first = line.find(':');
  const std::size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
  if (second == std::string_view::npos) {
    return;
  }
  const std::string_view controllers = line.substr(first + 1, second - first - 1);
  const std::string_view path = line.substr(second + 1);
  std::error_code ignored;
  if (controllers.empty()) {
    const bool only_v2 = fs::exists(mount / "cgroup.controllers", ignored);
    walk(only_v2 ? mount : mount / "unified", path, limits, read_v2);
    return;
  }
  walk(mount / controllers, path, limits, read_v1);
}

}  // namespace

GroupLimits group_limits(std::string_view membership, const fs::path& mount) {
  GroupLimits limits;
  while (!membership.empty()) {
    const std::size_t end = std::min(membership.find('\n'), membership.size());
    read_line(membership.substr(0, end), mount.lexically_normal(), limits);
    membership.remove_prefix(std::min(end + 1, membership.size()));
  }
  return limits;
}

GroupLimits group_limits() {
  std::ifstream in("/proc/self/cgroup");
  const std::string membership{std::istreambuf_iterator<char>(in), {}};
  return group_limits(membership, "/sys/fs/cgroup");
}

}  // namespace trine
