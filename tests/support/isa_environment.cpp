// Linked into tests that run once per instruction-set level: says which level runs, and ends the
// program with status 77 (skipped, for ctest) when TRINE_ISA forces a level that this machine
// lacks.
#include <cstdio>
#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

#include "platform/cpu.h"

namespace trine {
namespace {

class IsaEnvironment : public ::testing::Environment {
 public:
  void SetUp() override {
    const Status status = select_isa_level();
    if (!status.has_value()) {
      std::printf("skipped: %s\n", status.error().message.c_str());
      std::fflush(stdout);
      std::_Exit(77);
    }
    std::printf("instruction-set level: %s\n", std::string(isa_level_name(isa_level())).c_str());
  }
};

// Registered before main(); gtest owns it.
const ::testing::Environment* const kRegistered =
    ::testing::AddGlobalTestEnvironment(new IsaEnvironment);

}  // namespace
}  // namespace trine
