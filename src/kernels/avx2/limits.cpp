// The limits family on the lanes of avx2/.
#define TRINE_DOT_LANES_HEADER "kernels/avx2/dot_lanes.h"

#include "kernels/limits_inl.h"

namespace trine::kernels {

extern const LimitsTable kLimitsAvx2 = {&read_memory, &dots_in_registers};

}  // namespace trine::kernels
