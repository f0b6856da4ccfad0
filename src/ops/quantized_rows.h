// The int8 forms of one linear() input, made when a scheme asks for them and shared by all matrices
// that it is multiplied with (q, k and v; gate and up).
//
// Contract of the codes: kernels/packed.h. Errors: none. Thread rule: the engine thread; get() uses
// the team. Allocates only while it grows.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/packed.h"
#include "ops/ops.h"

namespace trine::ops {

class QuantizedRows {
 public:
  // Forgets the forms of the input before.
  void start(const LinearInput& input);
  // The rows in the groups that matrices of this scheme need, their values in the given order
  // (WeightView::input_order; empty: as they are); valid until the next start().
  kernels::PackedRows get(Context& ctx, const kernels::PackedScheme& scheme,
                          std::span<const std::int32_t> order = {});

 private:
  struct Form {
    std::int64_t group = 0;
    std::int64_t sum_group = 0;
    std::span<const std::int32_t> order;
    std::int64_t cols = 0;
    std::vector<std::int8_t> storage;  // codes start at a multiple of 64 in it
    std::int8_t* codes = nullptr;
    std::vector<float> scales;
    std::vector<std::int32_t> sums;
    std::vector<float> scaled_sums;
    kernels::PackedRows view{};
  };

  void fill(Context& ctx, Form& form);

  LinearInput input_;
  std::size_t num_forms_ = 0;  // of this input
  std::array<Form, 4> forms_;
};

}  // namespace trine::ops
