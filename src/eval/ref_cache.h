// The logits that a reference gave, as a file: computed once, compared with many models.
//
// The file says what it was computed from: the reference's files by their SHA-256, how it was run,
// the text and the protocol. It is used only where all of it is the same.
// Layout: "TRINEREF", u32 version, u32 length of the header, the header (JSON), zeros up to a
// multiple of 64, then a row for each scored token: float32 logits as they were, which compare bit
// for bit as if the reference had run, or binary16 log-probabilities in half the space. All
// little-endian. Thread rule: a source belongs to one thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "eval/logit_source.h"
#include "platform/mapped_file.h"

namespace trine::eval {

enum class RefCacheType : std::uint8_t { kF32, kF16 };

// What the rows were computed from.
struct RefCacheKey {
  std::string model_hash;  // fingerprint()
  std::string settings;    // "kv=f16 activations=int8"
  std::string protocol;
  std::string text_hash;
  std::int32_t num_ids = 0;
  std::int64_t num_rows = 0;
  std::string greedy;  // how prompts were continued
  RefCacheType type = RefCacheType::kF32;
};

struct RefCacheHeader {
  RefCacheKey key;
  std::vector<std::vector<std::int32_t>> continuations;
  std::size_t data_offset = 0;  // of the first row in the file
};

// Reads and checks the header of a file's bytes, and that the rows are all there. Errors:
// corrupt_data naming the field; unsupported for another version.
Result<RefCacheHeader> parse_ref_cache(std::span<const std::byte> bytes);

// Errors: invalid_argument naming the first thing that differs, with both values.
Status check_ref_cache(const RefCacheHeader& header, const RefCacheKey& wanted);

// Runs `source` over all windows and its continuations of `prompts`, and writes the file, which
// appears complete or not at all. `progress` gets the rows done; false ends the work as cancelled.
Status write_ref_cache(const std::string& path, const RefCacheKey& key, const TokenText& text,
                       const WindowPlan& plan, LogitSource& source,
                       const std::vector<std::vector<std::int32_t>>& prompts,
                       std::int32_t num_tokens,
                       const std::function<bool(std::int64_t rows)>& progress);

// The rows of a file.
class RefCacheSource : public LogitSource {
 public:
  // Errors: those of the file; those of parse_ref_cache and check_ref_cache, naming the file.
  static Result<std::unique_ptr<RefCacheSource>> open(const std::string& path,
                                                      const RefCacheKey& wanted);

  // Windows come in the plan's order.
  Status begin(const TokenText& text, const WindowPlan& plan, const Window& window) override;
  Status next(std::int32_t count, std::vector<float>& logits) override;
  Result<std::vector<std::vector<std::int32_t>>> continue_greedily(
      const std::vector<std::vector<std::int32_t>>& prompts, std::int32_t num_tokens) override;

 private:
  RefCacheSource(std::shared_ptr<const MappedFile> file, RefCacheHeader header)
      : file_(std::move(file)), header_(std::move(header)) {}

  std::shared_ptr<const MappedFile> file_;
  RefCacheHeader header_;
  std::int64_t row_ = 0;
};

// SHA-256 over a model's files: the .gguf file, or the weights, config.json and tokenizer.json of a
// directory. Errors: those of reading; cancelled.
Result<std::string> fingerprint(const std::string& model_path, const std::atomic<bool>* cancel);

}  // namespace trine::eval
