// Whole runs on the small trained model: the same bytes whatever the threads and the interruptions,
// sizes as predicted, and refusals before any work.
#include "compress/quantize_model.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/tiny_model.h"

namespace trine {
namespace {

namespace fs = std::filesystem;
using ::trine::testing::read_file;
using ::trine::testing::TempDir;
using ::trine::testing::write_file;

const std::string kModel = std::string(TRINE_SOURCE_DIR) + "/assets/models/docs-1m";

// Text enough for the model's 384 wide layers.
std::string calibration_text() {
  return read_file(std::string(TRINE_SOURCE_DIR) + "/docs/serving.md");
}

class QuantizeModel : public ::testing::Test {
 protected:
  void SetUp() override {
    calib_ = (dir_.path() / "calib.txt").string();
    write_file(calib_, calibration_text());
  }

  QuantizeRequest request(QuantMethod method, OutputFormat format, const std::string& out) const {
    QuantizeRequest out_request;
    out_request.source = kModel;
    out_request.out = (dir_.path() / out).string();
    out_request.options.method = method;
    out_request.options.format = format;
    if (method == QuantMethod::kSmoothQuant) {
      out_request.options.scheme = {8, 0, GridKind::kSymmetric};
    } else if (method == QuantMethod::kFp8) {
      out_request.options.scheme = {8, 0, GridKind::kFloat8};
    }
    out_request.calibration.files = {calib_};
    out_request.calibration.window = 512;
    out_request.calibration.tokens = 1600;
    out_request.warn = [](std::string_view) {};
    return out_request;
  }

  std::string weights(const std::string& out) const {
    return read_file(dir_.path() / out / "model.safetensors");
  }

  bool exists(const std::string& name) const { return fs::exists(dir_.path() / name); }

  TempDir dir_;
  std::string calib_;
};

std::string failure(const QuantizeRequest& request) {
  const auto report = quantize_model(request);
  return report.has_value() ? std::string() : report.error().message;
}

ModuleRule keep_rule(const std::string& pattern) {
  ModuleRule rule;
  rule.pattern = pattern;
  rule.keep = true;
  return rule;
}

TEST_F(QuantizeModel, TheThreadsDoNotShow) {
  for (const QuantMethod method :
       {QuantMethod::kRtn, QuantMethod::kAwqGptq, QuantMethod::kSmoothQuant}) {
    for (const int threads : {1, 3}) {
      QuantizeRequest r = request(method, OutputFormat::kCompressedTensors,
                                  fmt::format("{}-{}", method_name(method), threads));
      r.threads = threads;
      ASSERT_EQ(failure(r), "");
    }
    EXPECT_TRUE(weights(method_name(method) + "-1") == weights(method_name(method) + "-3"))
        << method_name(method);
  }
}

TEST_F(QuantizeModel, AnInterruptedRunGoesOnToTheSameBytes) {
  for (const QuantMethod method : {QuantMethod::kRtn, QuantMethod::kAwqGptq}) {
    const std::string whole = "whole-" + method_name(method);
    const std::string parts = "parts-" + method_name(method);
    ASSERT_EQ(failure(request(method, OutputFormat::kGptq, whole)), "");
    QuantizeRequest r = request(method, OutputFormat::kGptq, parts);
    std::atomic<bool> cancel{false};
    r.cancel = &cancel;
    r.progress = [&](const QuantizeProgress& progress) {
      cancel = progress.stage == QuantizeStage::kBlocks && progress.done == 1;
    };
    EXPECT_THAT(failure(r), ::testing::HasSubstr("interrupted"));
    EXPECT_FALSE(exists(parts));
    EXPECT_TRUE(exists(parts + ".work"));

    // Other options must not use what is there.
    QuantizeRequest other = request(method, OutputFormat::kGptq, parts);
    other.options.damping = 0.02;
    other.options.scheme.group = 32;
    EXPECT_THAT(failure(other), ::testing::HasSubstr("--restart"));

    // Interrupted again while the output is written.
    cancel = false;
    r.progress = [&](const QuantizeProgress& progress) {
      cancel = progress.stage == QuantizeStage::kOutput;
    };
    EXPECT_THAT(failure(r), ::testing::HasSubstr("interrupted"));
    EXPECT_FALSE(exists(parts));

    cancel = false;
    r.progress = nullptr;
    const auto report = quantize_model(r);
    ASSERT_TRUE(report.has_value()) << report.error().message;
    EXPECT_EQ(report->resumed_blocks, 2);
    EXPECT_FALSE(exists(parts + ".work"));
    EXPECT_TRUE(weights(parts) == weights(whole));
    EXPECT_EQ(report->modules.size(), 14U);
  }
}

TEST_F(QuantizeModel, ADamagedResultIsNamed) {
  QuantizeRequest r = request(QuantMethod::kRtn, OutputFormat::kGptq, "out");
  std::atomic<bool> cancel{false};
  r.cancel = &cancel;
  r.progress = [&](const QuantizeProgress& progress) { cancel = progress.done == 1; };
  EXPECT_THAT(failure(r), ::testing::HasSubstr("interrupted"));
  const fs::path block = dir_.path() / "out.work" / "block-0000.safetensors";
  write_file(block, read_file(block).substr(0, 1000));
  cancel = false;
  r.progress = nullptr;
  EXPECT_THAT(failure(r), ::testing::HasSubstr("block-0000.safetensors"));
  r.restart = true;
  EXPECT_EQ(failure(r), "");
}

TEST_F(QuantizeModel, SizesAreThosePredicted) {
  const auto check = [&](QuantMethod method, OutputFormat format, QuantScheme scheme) {
    QuantizeRequest r = request(method, format, "sizes");
    r.options.scheme = scheme;
    r.replace = true;
    const auto report = quantize_model(r);
    ASSERT_TRUE(report.has_value()) << report.error().message;
    EXPECT_EQ(report->predicted.codes, report->written.codes) << scheme.text();
    EXPECT_EQ(report->predicted.scales, report->written.scales) << scheme.text();
    EXPECT_EQ(report->predicted.zeros, report->written.zeros) << scheme.text();
    const auto file = fs::file_size(dir_.path() / "sizes" / "model.safetensors");
    EXPECT_NEAR(static_cast<double>(file), static_cast<double>(report->predicted.total()),
                0.02 * static_cast<double>(file));
  };
  for (const int bits : {2, 3, 4, 8}) {
    for (const int group : {32, 256, 0}) {
      for (const GridKind kind : {GridKind::kSymmetric, GridKind::kZeroPoint}) {
        check(QuantMethod::kRtn, OutputFormat::kGptq, {bits, group, kind});
        check(QuantMethod::kRtn, OutputFormat::kCompressedTensors, {bits, group, kind});
      }
    }
  }
  check(QuantMethod::kRtn, OutputFormat::kAwq, {4, 128, GridKind::kZeroPoint});
  check(QuantMethod::kFp8, OutputFormat::kCompressedTensors, {8, 0, GridKind::kFloat8});
  check(QuantMethod::kSmoothQuant, OutputFormat::kCompressedTensors, {8, 0, GridKind::kSymmetric});
}

TEST_F(QuantizeModel, RefusesBeforeAnyWork) {
  QuantizeRequest r = request(QuantMethod::kGptq, OutputFormat::kGptq, "out");
  r.calibration.tokens = 383;  // of 384
  EXPECT_THAT(failure(r),
              ::testing::HasSubstr("383 tokens, but model.layers.0.mlp.down_proj has 384"));
  r.calibration.tokens = 384;
  std::string warning;
  r.warn = [&](std::string_view text) { warning = text; };
  r.dry_run = true;
  EXPECT_EQ(failure(r), "");
  EXPECT_THAT(warning, ::testing::HasSubstr("384 calibration tokens are few"));
  EXPECT_FALSE(exists("out.work"));

  r.options.rules = {keep_rule("*.nothing")};
  EXPECT_THAT(failure(r), ::testing::HasSubstr("--override *.nothing: no linear layer"));
  r.options.rules = {keep_rule("*")};
  EXPECT_THAT(failure(r), ::testing::HasSubstr("nothing to quantize"));
  r.options.rules = {};
  r.calibration.files = {};
  EXPECT_THAT(failure(r), ::testing::HasSubstr("--calib FILE"));

  QuantizeRequest gguf = request(QuantMethod::kRtn, OutputFormat::kGguf, "out.gguf");
  EXPECT_EQ(failure(gguf), "");
  gguf.source = gguf.out;
  gguf.out = (dir_.path() / "directory").string();
  gguf.options.format = OutputFormat::kGptq;
  EXPECT_THAT(failure(gguf), ::testing::HasSubstr("is a GGUF file, from which --format gptq"));
  fs::create_directory(dir_.path() / "there");
  EXPECT_THAT(failure(request(QuantMethod::kRtn, OutputFormat::kGptq, "there")),
              ::testing::HasSubstr("exists already"));
}

}  // namespace
}  // namespace trine
