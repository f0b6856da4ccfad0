#include "kernels/linear.h"

#include "kernels/scalar/lanes.h"

// After the lanes it is written on.
#include "kernels/linear_inl.h"

namespace trine::kernels {

extern const LinearTable kLinearScalar = {&dot_rows};

}  // namespace trine::kernels
