// The linear family on the lanes of avx2/.
#define TRINE_LANES_HEADER "kernels/avx2/lanes.h"

#include "kernels/linear_inl.h"

namespace trine::kernels {

extern const LinearTable kLinearAvx2 = {&dot_rows};

}  // namespace trine::kernels
