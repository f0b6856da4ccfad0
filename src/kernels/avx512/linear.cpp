#include "kernels/linear.h"

#include "kernels/avx512/lanes.h"

// After the lanes it is written on.
#include "kernels/linear_inl.h"

namespace trine::kernels {

extern const LinearTable kLinearAvx512 = {&dot_rows};

}  // namespace trine::kernels
