// The packed family on the lanes of avx2/.
#define TRINE_LANES_HEADER "kernels/avx2/lanes.h"
#define TRINE_DOT_LANES_HEADER "kernels/avx2/dot_lanes.h"

#include "kernels/packed_inl.h"

namespace trine::kernels {

extern const PackedTable kPackedAvx2 = {&quantize_row, &multiply_packed};

}  // namespace trine::kernels
