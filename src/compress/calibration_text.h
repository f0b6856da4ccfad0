// Calibration texts: which tokens a quantizer sees.
//
// Files are JSONL, one object a line with "text" or with "messages" (rendered by the model's chat
// template), or plain text, which is cut at line ends into texts of some pages. Texts are taken in
// an order that the seed decides, cut into windows without leaving anything out, until the wanted
// number of tokens is there; several files share it by their weights. Thread rule: pure functions
// on the file system.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/bundle.h"

namespace trine {

struct CalibrationSpec {
  std::vector<std::string> files;
  std::vector<double> weights;  // one for each file; empty: by their size
  std::int64_t tokens = 0;      // wanted
  std::int32_t window = 0;      // most tokens of one sequence
  std::uint64_t seed = 1;
};

struct CalibrationFile {
  std::string path;
  std::string sha256;
  std::int64_t texts = 0;   // that were used
  std::int64_t tokens = 0;  // of those
};

struct CalibrationSet {
  std::vector<std::vector<std::int32_t>> sequences;
  std::size_t num_sequences = 0;  // of those above, also when they were let go
  std::vector<CalibrationFile> files;
  std::int64_t tokens = 0;
  std::string hash;  // of the tokens: two models with one hash saw the same
};

// Errors: not_found; invalid_argument naming file, line and field; exhausted when the files hold no
// tokens.
Result<CalibrationSet> read_calibration(const CalibrationSpec& spec, const ModelText& text,
                                        const ModelConfig& config);

struct CalibrationText {
  std::string text;
  std::string messages;  // a JSON array; empty: text counts
  std::int64_t line = 0;
};

// The texts of a file's content. Errors: invalid_argument naming `path`, line and field.
Result<std::vector<CalibrationText>> parse_calibration(std::string_view content,
                                                       const std::string& path);

}  // namespace trine
