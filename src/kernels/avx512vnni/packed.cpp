// The packed family on the lanes of avx512/, with the int8 dot instruction.
#define TRINE_VNNI
#define TRINE_LANES_HEADER "kernels/avx512/lanes.h"
#define TRINE_DOT_LANES_HEADER "kernels/avx512/dot_lanes.h"

#include "kernels/packed_inl.h"

namespace trine::kernels {

extern const PackedTable kPackedAvx512Vnni = {&quantize_row, &multiply_packed};

}  // namespace trine::kernels
