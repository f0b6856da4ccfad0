// The results of the blocks on disk while a model is quantized and its output written.
// Thread rule: one thread at a time.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "compress/block_result.h"

namespace trine {

// Where the parts of a tensor that was quantized are.
struct QuantizedModule {
  std::int32_t layer_idx = 0;
  std::vector<std::size_t> parts;  // of the block's linears, by their rows
  std::optional<QuantScheme> scheme;
  bool plain_activations = false;
  bool kept = false;  // in full precision, with scaled weights
};

class ResultStore {
 public:
  // Creates the folder. Errors: invalid_argument when it cannot be.
  static Result<ResultStore> open(std::string folder, std::string identity);

  // Whether a finished result of this run's identity is there. Errors: those of a damaged file, or
  // one of another run.
  Result<std::shared_ptr<const BlockResult>> find(std::int32_t layer_idx);  // null: not there
  Status add(std::int32_t layer_idx, std::shared_ptr<const BlockResult> result);
  // A block that add() or find() saw; the last one is remembered.
  Result<std::shared_ptr<const BlockResult>> block(std::int32_t layer_idx);

  // By the tensor's name without ".weight".
  const std::map<std::string, QuantizedModule>& modules() const { return modules_; }

  // Layers whose vector of this name was folded into; -1: none.
  std::int32_t folded_in(const std::string& name) const;

  // The quantized matrix of a whole tensor, its parts on top of each other.
  Result<QuantizedWeights> quantized(const QuantizedModule& module);
  // A kept one's weights, [rows, cols].
  Result<std::vector<float>> kept(const QuantizedModule& module);
  Result<std::vector<float>> folded(const std::string& name);

  // Where an output is made before it gets its name, and where the one that it replaces goes.
  std::string output_path() const { return folder_ + "/output"; }

  std::string replaced_path() const { return folder_ + "/replaced"; }

  // Forgets all results, also those of other runs.
  void clear();
  // Removes the folder with what this class and its user put there; what else it holds stays.
  void remove();

 private:
  ResultStore(std::string folder, std::string identity)
      : folder_(std::move(folder)), identity_(std::move(identity)) {}

  std::string path_of(std::int32_t layer_idx) const;
  void index(std::int32_t layer_idx, const BlockResult& result);

  std::string folder_;
  std::string identity_;
  std::map<std::string, QuantizedModule> modules_;
  std::map<std::string, std::int32_t> folded_;
  std::int32_t last_idx_ = -1;
  std::shared_ptr<const BlockResult> last_;
};

}  // namespace trine
