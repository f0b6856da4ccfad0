// Tiny models of every family for tests: the golden cases of tests/golden/families, written as
// model files into a temporary directory, and a small runner for forward passes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "kv/kv_cache.h"
#include "model/model.h"
#include "ops/ops.h"
#include "platform/thread_team.h"
#include "tensor/dtype.h"

namespace trine::testing {

// A directory that goes away with the object.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

void write_file(const std::filesystem::path& path, std::string_view bytes);
std::string read_file(const std::filesystem::path& path);

struct TinyTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};

// One folder of tests/golden/families.
struct FamilyCase {
  std::string name;
  std::string config, config_v5;
  std::int32_t max_context = 0;
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> positions;
  std::vector<TinyTensor> tensors;  // HF hub names
  std::vector<float> logits;        // [positions, vocabulary]
};

std::vector<std::string> family_case_names();
FamilyCase load_family_case(const std::string& name);

// A model directory: config.json and model.safetensors with every tensor in `dtype` (kF32, kF16 or
// kBF16). `misalign` pads the header so that the data begins at an odd address.
void write_model_dir(const std::filesystem::path& dir, std::string_view config,
                     std::span<const TinyTensor> tensors, DType dtype = DType::kF32,
                     bool misalign = false);
std::string safetensors_bytes(std::span<const TinyTensor> tensors, DType dtype,
                              bool misalign = false);

// Everything that a forward pass needs besides the model.
struct Runner {
  explicit Runner(std::shared_ptr<const Model> loaded, int num_threads = 1,
                  DType kv_dtype = DType::kF32, std::int32_t num_pages = 256);

  // Runs `tokens` through a fresh sequence in steps of `chunk` tokens (0: all at once) and returns
  // the logits of every position, [tokens, vocabulary].
  std::vector<float> logits(std::span<const std::int32_t> tokens, std::size_t chunk = 0);
  // One step over spans; reserves pages and commits.
  Status step(std::span<const Span> spans, std::vector<float>& out,
              LayerObserver* observer = nullptr);

  std::shared_ptr<const Model> model;
  std::unique_ptr<ThreadTeam> team;
  std::unique_ptr<ops::Context> context;
  std::unique_ptr<PagePool> pool;
  std::unique_ptr<Model::Workspace> workspace;
};

// max |a - b| / max |b| of one row.
double relative_error(std::span<const float> a, std::span<const float> b);

}  // namespace trine::testing
