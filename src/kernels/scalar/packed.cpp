// The packed family on the lanes of scalar/.
#define TRINE_LANES_HEADER "kernels/scalar/lanes.h"
#define TRINE_DOT_LANES_HEADER "kernels/scalar/dot_lanes.h"

#include "kernels/packed_inl.h"

namespace trine::kernels {

extern const PackedTable kPackedScalar = {&quantize_row, &multiply_packed};

}  // namespace trine::kernels
