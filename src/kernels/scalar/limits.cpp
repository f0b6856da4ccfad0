// The limits family on the lanes of scalar/.
#define TRINE_DOT_LANES_HEADER "kernels/scalar/dot_lanes.h"

#include "kernels/limits_inl.h"

namespace trine::kernels {

extern const LimitsTable kLimitsScalar = {&read_memory, &dots_in_registers};

}  // namespace trine::kernels
