#include "platform/control_group.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

namespace trine {
namespace {

namespace fs = std::filesystem;

class ControlGroupTest : public ::testing::Test {
 protected:
  void SetUp() override {
    mount_ = fs::temp_directory_path() / ("trine-group-" + std::to_string(::getpid()));
    fs::create_directories(mount_);
  }

  void TearDown() override { fs::remove_all(mount_); }

  void write(const std::string& path, const std::string& text) const {
    fs::create_directories((mount_ / path).parent_path());
    std::ofstream(mount_ / path) << text << '\n';
  }

  fs::path mount_;
};

TEST_F(ControlGroupTest, WithoutFilesThereIsNoLimit) {
  const GroupLimits limits = group_limits("0::/a\n3:cpu,cpuacct:/b\nnonsense\n1:\n", mount_);
  EXPECT_FALSE(limits.cpus);
  EXPECT_FALSE(limits.memory_left);
}

TEST_F(ControlGroupTest, TheTightestGroupOfAPathCounts) {
  write("cgroup.controllers", "cpu memory");
  write("slice/cpu.max", "150000 100000");
  write("slice/memory.max", "9000");
  write("slice/memory.current", "1000");
  write("slice/box/cpu.max", "max 100000");
  write("slice/box/memory.max", "5000");
  write("slice/box/memory.current", "4000");
  write("slice/box/memory.stat", "anon 900\ninactive_file 2000\nactive_file 100\nslab 7");
  const GroupLimits limits = group_limits("0::/slice/box\n", mount_);
  EXPECT_EQ(limits.cpus, 1.5);
  EXPECT_EQ(limits.memory_left, 5000 - (4000 - 2100));
  EXPECT_EQ(group_limits("0::/slice\n", mount_).memory_left, 8000);
}

TEST_F(ControlGroupTest, AContainerSeesItsOwnGroupAtTheTop) {
  write("cgroup.controllers", "cpu memory");
  write("cpu.max", "200000 100000");
  EXPECT_EQ(group_limits("0::/kubepods/pod1/abc\n", mount_).cpus, 2.0);
  EXPECT_EQ(group_limits("0::/../../other\n", mount_).cpus, 2.0);
}

TEST_F(ControlGroupTest, VersionOneHasAHierarchyForEachController) {
  write("cpu,cpuacct/box/cpu.cfs_quota_us", "50000");
  write("cpu,cpuacct/box/cpu.cfs_period_us", "100000");
  write("cpu,cpuacct/cpu.cfs_quota_us", "-1");
  write("cpu,cpuacct/cpu.cfs_period_us", "100000");
  write("memory/box/memory.limit_in_bytes", "4096");
  write("memory/box/memory.usage_in_bytes", "5000");
  write("memory/memory.limit_in_bytes", "9223372036854771712");
  const GroupLimits limits = group_limits("4:memory:/box\n3:cpu,cpuacct:/box\n0::/\n", mount_);
  EXPECT_EQ(limits.cpus, 0.5);
  EXPECT_EQ(limits.memory_left, 0);
}

TEST_F(ControlGroupTest, NumbersThatAreNoneAreNoLimit) {
  write("cgroup.controllers", "cpu memory");
  write("cpu.max", "0 100000");
  write("memory.max", "12x");
  EXPECT_FALSE(group_limits("0::/\n", mount_).cpus);
  EXPECT_FALSE(group_limits("0::/\n", mount_).memory_left);
  write("cpu.max", "100000 0");
  EXPECT_FALSE(group_limits("0::/\n", mount_).cpus);
}

}  // namespace
}  // namespace trine
