// What a quantized model says about the texts that it was calibrated on.
//
// `trine quantize` leaves it beside the weights: trine_quantization.json in a directory,
// trine.quantization in a GGUF file's metadata. Thread rule: pure functions on the file system.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace trine::eval {

struct CalibrationOrigin {
  std::string hash;  // of the tokens; empty: the model does not say

  struct File {
    std::string name;
    std::string sha256;
  };

  std::vector<File> files;
};

// The part of a provenance record. Errors: corrupt_data naming the field.
Result<CalibrationOrigin> parse_calibration_origin(std::string_view json);

// Of the model at a path; empty where it says nothing. Errors: those of reading the file.
Result<CalibrationOrigin> calibration_origin(const std::string& model_path);

}  // namespace trine::eval
