#define TRINE_VECTOR_BYTES 16

#include "kernels/select_inl.h"

namespace trine::kernels {

extern const SelectTable kSelectScalar = {&largest, &first_above, &exp_sum, &first_entrant};

}  // namespace trine::kernels
