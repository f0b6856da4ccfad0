// Checked, parallel operations of the forward pass on float32 activations.
//
// Numeric contract (docs/numerics.md): every output element is one fixed chain of operations that
// depends on the operands and the shape only: not on the number of rows, on which rows they are, on
// the thread count or on the instruction set. So a row computed alone equals, bit for bit, the same
// row computed in a batch. Shapes: T rows (tokens of the step), K inputs, N outputs. All matrices
// are row-major and dense. Errors: shapes are the model's responsibility and were validated when it
// was bound; a mismatch is a bug (TRINE_CHECK). Thread rule: called by the engine thread; each
// operation uses the whole team and returns when it is done. No operation allocates after the
// workspace has reached its size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/packed.h"
#include "platform/thread_team.h"
#include "platform/turn_queue.h"
#include "tensor/dtype.h"

namespace trine::ops {

// Rows of a matrix whose file keeps them in another form than one DType. Thread rule: any number of
// readers.
class RowSource {
 public:
  virtual ~RowSource() = default;
  // Rows [first, first + count) as float32, `stride` floats apart.
  virtual void read_rows(std::int64_t first, std::int64_t count, float* out,
                         std::int64_t stride) const = 0;
};

// A weight matrix [N, K]. Never owns. As it is in its file: any dtype with a dequantizer, rows
// contiguous along K, or a RowSource; it is multiplied in float32. With `packed` as well, linear()
// reads that instead, and multiplies int8 activations.
struct WeightView {
  DType dtype = DType::kF32;
  std::int64_t rows = 0;  // N
  std::int64_t cols = 0;  // K
  const std::byte* data = nullptr;
  std::int64_t row_bytes = 0;
  kernels::PackedMatrix packed{};  // data is null: not packed
  // Set: rows are rows `first_row` and on of it, and dtype and data do not count; row_bytes is
  // their size in the file.
  const RowSource* source = nullptr;
  std::int64_t first_row = 0;
  // Where the packed columns are not the columns as they are: for each the one of x that it
  // multiplies, or -1 for none. Views that share an order point to the same one.
  std::span<const std::int32_t> input_order{};

  bool bound() const { return data != nullptr || source != nullptr; }
};

class QuantizedRows;

// x [T, K] that one or several linear() calls multiply, rows `stride` floats apart. Borrowed: x
// must stay as it is while the input is used. Quantized at most once for all of them.
struct LinearInput {
  const float* x = nullptr;
  std::int64_t stride = 0;
  std::int64_t num_rows = 0;
  std::int64_t cols = 0;
};

// y [T, N] = x w^T (+ bias [N] when not null), rows of y `y_stride` floats apart.
struct LinearTask {
  const WeightView* w = nullptr;
  const float* bias = nullptr;
  float* y = nullptr;
  std::int64_t y_stride = 0;
};

// What every operation needs besides its operands: the team and per-thread scratch memory.
class Context {
 public:
  explicit Context(ThreadTeam& team);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  ThreadTeam& team() const { return *team_; }

  // At least `bytes` bytes of scratch for each member; grows on first use, then stable. Contents
  // are lost.
  void reserve_scratch(std::size_t bytes);
  // Of one member, aligned to a cache line; valid until the next reserve_scratch().
  std::byte* scratch(int thread_idx);

  // `bytes` bytes that all members share, aligned to a cache line; valid until the next call.
  // Grows on first use, then stable. Contents are lost.
  std::byte* shared_scratch(std::size_t bytes);

  QuantizedRows& quantized_rows() { return *quantized_rows_; }

  // Of the one operation that is at work.
  TurnQueue& turns() { return turns_; }

 private:
  ThreadTeam* team_;
  TurnQueue turns_;
  std::unique_ptr<QuantizedRows> quantized_rows_;
  std::size_t scratch_bytes_ = 0;  // of each member
  std::vector<std::unique_ptr<std::byte[]>> scratch_;
  std::size_t shared_bytes_ = 0;
  std::unique_ptr<std::byte[]> shared_;
};

// Several products of one input, in one pass of the team.
void linear(Context& ctx, const LinearInput& input, std::span<const LinearTask> tasks);

// One product. x rows are `x_stride` floats apart, y rows `y_stride`.
void linear(Context& ctx, const WeightView& w, const float* bias, const float* x,
            std::int64_t x_stride, std::int64_t num_rows, float* y, std::int64_t y_stride);

// out[T, K] = rows `ids` of the table, as f32, each multiplied by `scale`. ids are in [0,
// table.rows).
void embed(Context& ctx, const WeightView& table, std::span<const std::int32_t> ids, float scale,
           float* out);

// y[t] = x[t] / sqrt(mean(x[t]^2) + eps) * (weight + weight_offset), per row of `dim`.
// weight_offset is 1 for Gemma's (1 + w) in HF checkpoints, else 0. y may be x. Rows are `stride`
// floats apart (both).
void rms_norm(Context& ctx, const float* x, const float* weight, float weight_offset, float eps,
              std::int64_t dim, std::int64_t num_rows, std::int64_t stride, float* y);

// x += y, elementwise.
void add(Context& ctx, float* x, const float* y, std::int64_t count);

// out = act(gate) * up, elementwise.
enum class Activation : std::uint8_t { kSilu, kGeluTanh, kGeluErf };
void gated_activation(Context& ctx, Activation act, const float* gate, const float* up,
                      std::int64_t count, float* out);

// Rotary embedding. cos/sin are [T, rotary_dim / 2], already multiplied by the attention factor
// where the scaling kind has one. kHalf rotates (i, i + rotary_dim/2) pairs (HF order),
// kInterleaved rotates (2i, 2i+1) (GGUF's llama order). x is [T, num_heads, head_dim] with rows
// `stride` floats apart; dims past rotary_dim stay as they are.
enum class RopeLayout : std::uint8_t { kHalf, kInterleaved };
void rope(Context& ctx, RopeLayout layout, float* x, std::int64_t stride, std::int64_t num_rows,
          std::int32_t num_heads, std::int32_t head_dim, std::int32_t rotary_dim, const float* cos,
          const float* sin);

// In-place softmax of each row: exp(x - max) / sum in one fixed order.
void softmax_rows(Context& ctx, float* x, std::int64_t num_rows, std::int64_t dim);

}  // namespace trine::ops
