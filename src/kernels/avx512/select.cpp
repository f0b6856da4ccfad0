#define TRINE_VECTOR_BYTES 64

#include "kernels/select_inl.h"

namespace trine::kernels {

extern const SelectTable kSelectAvx512 = {&largest, &first_above, &exp_sum, &first_entrant};

}  // namespace trine::kernels
