// The limits family on the lanes of avx512/, with the int8 dot instruction.
#define TRINE_VNNI
#define TRINE_DOT_LANES_HEADER "kernels/avx512/dot_lanes.h"

#include "kernels/limits_inl.h"

namespace trine::kernels {

extern const LimitsTable kLimitsAvx512Vnni = {&read_memory, &dots_in_registers};

}  // namespace trine::kernels
