// The linear family on the lanes of avx512/.
#define TRINE_LANES_HEADER "kernels/avx512/lanes.h"

#include "kernels/linear_inl.h"

namespace trine::kernels {

extern const LinearTable kLinearAvx512 = {&dot_rows};

}  // namespace trine::kernels
