#include "model/pack_weights.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/check.h"
#include "quant/pack_gguf.h"

namespace trine {
namespace {

// Source pages are given back after about this many packed bytes, so that a load does not hold the
// file and the packed weights in memory at once.
constexpr std::int64_t kReleaseBytes = std::int64_t{32} << 20;

void collect(MlpWeights& mlp, std::vector<ops::WeightView*>& out) {
  for (ops::WeightView* view : {&mlp.gate, &mlp.up, &mlp.down}) {
    out.push_back(view);
  }
}

// The binder makes no other sources.
const QuantizedMatrix& quantized_of(const ops::WeightView& view) {
  return static_cast<const QuantizedMatrix&>(*view.source);
}

// nullopt for what stays as it is in its file.
std::optional<kernels::PackedScheme> find_scheme(const ops::WeightView& view) {
  if (view.source != nullptr) {
    return quantized_of(view).scheme();
  }
  return view.cols > kernels::kMaxPackedCols ? std::nullopt : packed_scheme_of(view.dtype);
}

std::int64_t packed_cols(const ops::WeightView& view) {
  return view.input_order.empty() ? view.cols : static_cast<std::int64_t>(view.input_order.size());
}

// Every matrix that linear() multiplies, in the order of a step.
std::vector<ops::WeightView*> matrices_of(DecoderWeights& weights) {
  std::vector<ops::WeightView*> out;
  for (LayerWeights& layer : weights.layers) {
    for (ops::WeightView* view : {&layer.q, &layer.k, &layer.v, &layer.o, &layer.router}) {
      out.push_back(view);
    }
    collect(layer.mlp, out);
    for (MlpWeights& expert : layer.experts) {
      collect(expert, out);
    }
  }
  out.push_back(&weights.output);
  std::erase_if(out, [](const ops::WeightView* view) {
    return !view->bound() || !find_scheme(*view).has_value();
  });
  return out;
}

std::int64_t num_blocks(const ops::WeightView& view) {
  return (view.rows + kernels::kPackedBlockRows - 1) / kernels::kPackedBlockRows;
}

// Of a matrix that matrices_of() chose.
kernels::PackedScheme scheme_of(const ops::WeightView& view) {
  const std::optional<kernels::PackedScheme> scheme = find_scheme(view);
  TRINE_CHECK(scheme.has_value());
  return *scheme;
}

std::int64_t block_bytes(const ops::WeightView& view) {
  return kernels::packed_block_bytes(scheme_of(view), packed_cols(view));
}

std::int64_t packed_bytes(const std::vector<ops::WeightView*>& matrices) {
  std::int64_t total = 0;
  for (const ops::WeightView* view : matrices) {
    total += num_blocks(*view) * block_bytes(*view);
  }
  return total;
}

// Blocks [first, last) of a matrix to `out`.
void pack_blocks(ThreadTeam& team, const ops::WeightView& view, std::int64_t first,
                 std::int64_t last, std::uint8_t* out) {
  const std::int64_t bytes = block_bytes(view);
  std::atomic<std::int64_t> next{first};
  team.run([&](int) {
    for (;;) {
      const std::int64_t block = next.fetch_add(1, std::memory_order_relaxed);
      if (block >= last) {
        return;
      }
      std::uint8_t* to = out + (block - first) * bytes;
      if (view.source == nullptr) {
        pack_block(view.dtype, view.data, view.row_bytes, view.rows, view.cols, block, to);
        continue;
      }
      const std::int64_t row = block * kernels::kPackedBlockRows;
      quantized_of(view).pack_rows(view.first_row + row,
                                   std::min(view.rows - row, kernels::kPackedBlockRows), to);
    }
  });
}

void count_quantized(const QuantizedMatrix& matrix, std::vector<QuantizedTotal>& totals) {
  const QuantizedLinear& linear = matrix.linear();
  const std::string what = linear.describe();
  auto it = std::find_if(totals.begin(), totals.end(),
                         [&what](const QuantizedTotal& total) { return total.what == what; });
  if (it == totals.end()) {
    totals.push_back({what, 0, 0, 0, {}});
    it = totals.end() - 1;
  }
  ++it->num_matrices;
  it->num_weights += linear.rows() * linear.cols();
  it->bytes += linear.file_bytes();
  it->tensors.insert(it->tensors.end(), linear.tensor_names().begin(), linear.tensor_names().end());
}

}  // namespace

Status pack_weights(const Checkpoint& checkpoint, ThreadTeam& team, DecoderWeights& weights) {
  const std::vector<ops::WeightView*> matrices = matrices_of(weights);
  TRINE_TRY_ASSIGN(weights.packed,
                   HugeBuffer::allocate(static_cast<std::size_t>(packed_bytes(matrices))));
  std::uint8_t* out = weights.packed.data();
  std::int64_t since_release = 0;
  for (ops::WeightView* view : matrices) {
    view->packed = {scheme_of(*view), view->rows, packed_cols(*view), out};
    const std::int64_t blocks = num_blocks(*view);
    const std::int64_t bytes = block_bytes(*view);
    // In parts, as one matrix, a head over many tokens, may be most of the file.
    for (std::int64_t first = 0; first < blocks;) {
      const std::int64_t fitting = (kReleaseBytes - since_release) / bytes;
      const std::int64_t last = std::min(blocks, first + std::max<std::int64_t>(fitting, 1));
      pack_blocks(team, *view, first, last, out);
      out += (last - first) * bytes;
      since_release += (last - first) * bytes;
      first = last;
      if (since_release + bytes > kReleaseBytes) {
        checkpoint.release_pages();
        since_release = 0;
      }
    }
  }
  checkpoint.release_pages();
  return {};
}

Result<WeightMemory> weight_memory(const OpenedCheckpoint& checkpoint, ModelConfig& config,
                                   bool packs) {
  const Checkpoint& tensors = checkpoint.weights();
  TRINE_TRY_ASSIGN(DecoderWeights weights, checkpoint.kind == CheckpointKind::kGguf
                                               ? bind_gguf_weights(tensors, config)
                                               : bind_hf_weights(tensors, config));
  WeightMemory out;
  for (const TensorInfo& tensor : tensors.tensors()) {
    out.mapped_bytes += tensor.data.size();
  }
  for (const auto& matrix : weights.quantized) {
    count_quantized(*matrix, out.quantized);
  }
  if (!packs) {
    return out;
  }
  const std::vector<ops::WeightView*> matrices = matrices_of(weights);
  out.packed_bytes = static_cast<std::uint64_t>(packed_bytes(matrices));
  std::unordered_set<const ops::RowSource*> counted{weights.embedding.source};
  for (const ops::WeightView* view : matrices) {
    // A tied output matrix is packed, and its rows are read from the file as embeddings.
    if (view->source != nullptr) {
      // q, k and v may be parts of one matrix.
      if (counted.insert(view->source).second) {
        out.mapped_bytes -= quantized_of(*view).linear().file_bytes();
      }
    } else if (view->data != weights.embedding.data) {
      out.mapped_bytes -= static_cast<std::uint64_t>(view->rows * view->row_bytes);
    }
  }
  return out;
}

}  // namespace trine
