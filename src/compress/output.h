// A quantized model's files: a Hugging Face directory in one of the ecosystem's layouts, or a GGUF
// file. Each appears complete or not at all. Thread rule: the thread that owns the team.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "base/error.h"
#include "compress/options.h"
#include "compress/result_store.h"
#include "model/decoder_parts.h"
#include "platform/thread_team.h"

namespace trine {

// Where the bytes of an output's weights go.
struct OutputSizes {
  std::uint64_t codes = 0, scales = 0, zeros = 0;  // of quantized matrices, padding in the first
  std::uint64_t kept = 0;                          // everything else

  std::uint64_t total() const { return codes + scales + zeros + kept; }

  void add(const OutputSizes& other) {
    codes += other.codes;
    scales += other.scales;
    zeros += other.zeros;
    kept += other.kept;
  }
};

struct OutputContext {
  ThreadTeam& team;
  const DecoderParts& parts;
  const QuantizeOptions& options;
  ResultStore& results;
  std::string source;  // the path the model came from
  // What is written beside the weights about how they were made.
  const nlohmann::ordered_json& provenance;
  // Told of each tensor that is written; an error ends the writing.
  std::function<Status(std::string_view tensor)> progress;
};

// `out` is a directory that does not exist.
Result<OutputSizes> write_checkpoint(const OutputContext& context, const std::string& out);
// `out` is a file. The source is a GGUF file.
Result<OutputSizes> write_gguf_model(const OutputContext& context, const std::string& out);

// The embedding and output tables that the output holds in 8 bits (Q8_0).
std::set<const TensorInfo*> quantized_tables(const DecoderParts& parts,
                                             const QuantizeOptions& options);

// The quantization_config of the checkpoint, as its format's readers expect it. `modules` by name.
nlohmann::ordered_json quantization_config(const QuantizeOptions& options,
                                           const std::map<std::string, QuantizedModule>& modules);

}  // namespace trine
