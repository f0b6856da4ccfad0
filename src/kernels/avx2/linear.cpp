#include "kernels/linear.h"

#include "kernels/avx2/lanes.h"

// After the lanes it is written on.
#include "kernels/linear_inl.h"

namespace trine::kernels {

extern const LinearTable kLinearAvx2 = {&dot_rows};

}  // namespace trine::kernels
