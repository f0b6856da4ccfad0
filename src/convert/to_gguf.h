// `trine convert`: a Hugging Face directory in F32, F16 or BF16 as a GGUF file that llama.cpp runs.
// Streams: in memory are the metadata and about a megabyte of rows. The file appears complete or
// not at all. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "convert/gguf_keys.h"
#include "convert/gguf_plan.h"
#include "tensor/dtype.h"

namespace trine {

struct ConvertRequest {
  std::string source;            // a directory, or a safetensors file in one
  std::string out;               // the file
  std::optional<DType> type;     // of matrices: F32, F16, BF16 or Q8_0; none: the source's own
  std::int32_t max_context = 0;  // a smaller context_length than the model's; 0: the model's
  bool replace = false;          // an output that exists
  // Bytes written and to write; an error ends the work.
  std::function<Status(std::uint64_t done, std::uint64_t total)> progress;
};

struct ConvertReport {
  std::string architecture;
  DType type = DType::kF32;
  std::int64_t tensors = 0;
  std::int64_t params = 0;
  std::uint64_t bytes = 0;  // of the file
  bool has_tokenizer = false;
  std::vector<std::string> notes;  // what readers may do differently, a sentence each
};

// All of a GGUF file's metadata for the model at `source` but general.file_type; `notes` as above.
// Errors: those of the tokenizer; a directory without one is noted.
Result<GgufPairs> gguf_pairs(const std::string& source, const DecoderParts& parts,
                             std::string_view architecture, std::vector<std::string>& notes);

// ggml's number for a file whose matrices are of `type` (F32, F16, BF16 or Q8_0).
std::uint32_t gguf_file_type(DType type);

// Errors: not_found, invalid_argument (the source is a GGUF file, the output exists), corrupt_data
// and unsupported as the parts say, exhausted for a full disk.
Result<ConvertReport> convert_to_gguf(const ConvertRequest& request);

}  // namespace trine
