// The limits family on the lanes of avx512/.
#define TRINE_DOT_LANES_HEADER "kernels/avx512/dot_lanes.h"

#include "kernels/limits_inl.h"

namespace trine::kernels {

extern const LimitsTable kLimitsAvx512 = {&read_memory, &dots_in_registers};

}  // namespace trine::kernels
