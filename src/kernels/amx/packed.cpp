// The packed family on the AMX int8 unit; one row at a time as avx512vnni/.
#define TRINE_VNNI
#define TRINE_AMX
#define TRINE_LANES_HEADER "kernels/avx512/lanes.h"
#define TRINE_DOT_LANES_HEADER "kernels/avx512/dot_lanes.h"

#include "kernels/packed_inl.h"

namespace trine::kernels {

extern const PackedTable kPackedAmx = {&quantize_row, &multiply_packed};

}  // namespace trine::kernels
