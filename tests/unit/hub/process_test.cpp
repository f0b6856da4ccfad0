#include "hub/process.h"

#include <atomic>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trine::hub {
namespace {

using testing::HasSubstr;

ProcessOptions shell(const std::string& script) {
  ProcessOptions options;
  options.argv = {"sh", "-c", script};
  return options;
}

TEST(ProcessTest, OutputStatusAndErrors) {
  ProcessOptions options = shell("cat; echo $GREETING; echo problem >&2; exit 7");
  options.extra_environment = {"GREETING=hello"};
  std::string output;
  options.on_output = [&output](std::string_view bytes) -> Status {
    output += bytes;
    return {};
  };
  const ProcessResult result = run_process(options).value();
  EXPECT_EQ(result.status, 7);
  EXPECT_EQ(output, "hello\n");  // and `cat` found nothing to read
  EXPECT_EQ(result.err_tail, "problem\n");
}

TEST(ProcessTest, OnlyTheTailOfErrorsIsKept) {
  const ProcessResult result =
      run_process(shell("i=0; while [ $i -lt 2000 ]; do echo line$i >&2; i=$((i+1)); done"))
          .value();
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.err_tail.size(), 8192U);
  EXPECT_THAT(result.err_tail, HasSubstr("line1999\n"));
}

TEST(ProcessTest, MissingProgram) {
  ProcessOptions options;
  options.argv = {"/nonexistent/program"};
  EXPECT_EQ(run_process(options).error().code, ErrorCode::kNotFound);
}

TEST(ProcessTest, KilledChild) {
  EXPECT_EQ(run_process(shell("kill -9 $$"))->status, 128 + 9);
}

TEST(ProcessTest, ConsumerErrorEndsTheChild) {
  ProcessOptions options = shell("yes");
  options.on_output = [](std::string_view) -> Status {
    return fail(ErrorCode::kCorruptData, "enough");
  };
  EXPECT_EQ(run_process(options).error().message, "enough");
}

TEST(ProcessTest, CancelEndsTheChild) {
  std::atomic<bool> cancel = false;
  ProcessOptions options = shell("sleep 60");
  options.cancel = &cancel;
  options.on_tick = [&cancel] { cancel = true; };
  EXPECT_EQ(run_process(options).error().code, ErrorCode::kCancelled);
}

}  // namespace
}  // namespace trine::hub
