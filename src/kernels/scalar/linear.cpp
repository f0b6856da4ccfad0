// The linear family on the lanes of scalar/.
#define TRINE_LANES_HEADER "kernels/scalar/lanes.h"

#include "kernels/linear_inl.h"

namespace trine::kernels {

extern const LinearTable kLinearScalar = {&dot_rows};

}  // namespace trine::kernels
