// The packed family on the lanes of avx512/.
#define TRINE_LANES_HEADER "kernels/avx512/lanes.h"
#define TRINE_DOT_LANES_HEADER "kernels/avx512/dot_lanes.h"

#include "kernels/packed_inl.h"

namespace trine::kernels {

extern const PackedTable kPackedAvx512 = {&quantize_row, &multiply_packed};

}  // namespace trine::kernels
