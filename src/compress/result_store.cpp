#include "compress/result_store.h"

#include <algorithm>
#include <filesystem>

#include "base/check.h"
#include "compress/checkpoint_layout.h"

namespace trine {
namespace fs = std::filesystem;

Result<ResultStore> ResultStore::open(std::string folder, std::string identity) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    return fail(ErrorCode::kInvalidArgument, "cannot create {}: {}", folder, error.message());
  }
  return ResultStore(std::move(folder), std::move(identity));
}

std::string ResultStore::path_of(std::int32_t layer_idx) const {
  return fmt::format("{}/block-{:04}.safetensors", folder_, layer_idx);
}

void ResultStore::index(std::int32_t layer_idx, const BlockResult& result) {
  for (std::size_t i = 0; i < result.linears.size(); ++i) {
    const LinearResult& linear = result.linears[i];
    QuantizedModule& module = modules_[linear.module];
    module.layer_idx = layer_idx;
    module.parts.push_back(i);
    module.plain_activations = module.plain_activations || linear.plain_activations;
    module.kept = module.kept || !linear.kept.empty();
    if (linear.quantized.has_value()) {
      module.scheme = linear.quantized->scheme;
    }
  }
  for (auto& [name, module] : modules_) {
    if (module.layer_idx == layer_idx) {
      std::sort(module.parts.begin(), module.parts.end(), [&](std::size_t a, std::size_t b) {
        return result.linears[a].first_row < result.linears[b].first_row;
      });
    }
  }
  for (const auto& [name, values] : result.folded) {
    folded_[name] = layer_idx;
  }
}

Result<std::shared_ptr<const BlockResult>> ResultStore::find(std::int32_t layer_idx) {
  const std::string path = path_of(layer_idx);
  std::error_code error;
  if (!fs::exists(path, error)) {
    return std::shared_ptr<const BlockResult>();
  }
  TRINE_TRY_ASSIGN(BlockResult result, read_block_result(path, identity_));
  last_ = std::make_shared<const BlockResult>(std::move(result));
  last_idx_ = layer_idx;
  index(layer_idx, *last_);
  return last_;
}

Status ResultStore::add(std::int32_t layer_idx, std::shared_ptr<const BlockResult> result) {
  TRINE_TRY(write_block_result(path_of(layer_idx), *result, identity_));
  index(layer_idx, *result);
  last_ = std::move(result);
  last_idx_ = layer_idx;
  return {};
}

Result<std::shared_ptr<const BlockResult>> ResultStore::block(std::int32_t layer_idx) {
  if (layer_idx != last_idx_) {
    TRINE_TRY_ASSIGN(BlockResult result, read_block_result(path_of(layer_idx), identity_));
    last_ = std::make_shared<const BlockResult>(std::move(result));
    last_idx_ = layer_idx;
  }
  return last_;
}

std::int32_t ResultStore::folded_in(const std::string& name) const {
  const auto at = folded_.find(name);
  return at == folded_.end() ? -1 : at->second;
}

Result<QuantizedWeights> ResultStore::quantized(const QuantizedModule& module) {
  TRINE_TRY_ASSIGN(const auto result, block(module.layer_idx));
  std::vector<const QuantizedWeights*> parts;
  for (const std::size_t i : module.parts) {
    TRINE_CHECK(result->linears[i].quantized.has_value());
    parts.push_back(&*result->linears[i].quantized);
  }
  return stack_rows(parts);
}

Result<std::vector<float>> ResultStore::kept(const QuantizedModule& module) {
  TRINE_TRY_ASSIGN(const auto result, block(module.layer_idx));
  std::vector<float> out;
  for (const std::size_t i : module.parts) {
    const std::vector<float>& part = result->linears[i].kept;
    out.insert(out.end(), part.begin(), part.end());
  }
  return out;
}

Result<std::vector<float>> ResultStore::folded(const std::string& name) {
  TRINE_TRY_ASSIGN(const auto result, block(folded_in(name)));
  for (const auto& [known, values] : result->folded) {
    if (known == name) {
      return values;
    }
  }
  return fail(ErrorCode::kInternal, "no folded vector {}", name);
}

void ResultStore::clear() {
  std::error_code error;
  for (std::int32_t i = 0; fs::remove(path_of(i), error); ++i) {
  }
  fs::remove_all(output_path(), error);
  fs::remove_all(replaced_path(), error);
  modules_.clear();
  folded_.clear();
  last_idx_ = -1;
}

void ResultStore::remove() {
  clear();
  std::error_code error;
  fs::remove(folder_, error);
}

}  // namespace trine
