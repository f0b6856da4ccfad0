// The attention_i8 family on the lanes of scalar/.
#define TRINE_LANES_HEADER "kernels/scalar/lanes.h"
#define TRINE_DOT_LANES_HEADER "kernels/scalar/dot_lanes.h"

#include "kernels/attention_i8_inl.h"

namespace trine::kernels {

extern const AttentionI8Table kAttentionI8Scalar = {&quantize_queries, &attention_i8_segment};

}  // namespace trine::kernels
