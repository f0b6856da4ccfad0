// The attention_i8 family on the lanes of avx512/, with the int8 dot instruction.
#define TRINE_VNNI
#define TRINE_LANES_HEADER "kernels/avx512/lanes.h"
#define TRINE_DOT_LANES_HEADER "kernels/avx512/dot_lanes.h"

#include "kernels/attention_i8_inl.h"

namespace trine::kernels {

extern const AttentionI8Table kAttentionI8Avx512Vnni = {&quantize_queries, &attention_i8_segment};

}  // namespace trine::kernels
