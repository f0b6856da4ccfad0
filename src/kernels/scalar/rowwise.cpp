// The rowwise family on the lanes of scalar/.
#define TRINE_LANES_HEADER "kernels/scalar/lanes.h"

#include "kernels/rowwise_inl.h"

namespace trine::kernels {

extern const RowwiseTable kRowwiseScalar = {
    &rms_norm, &add, &scale, &gated, &unary, &rope_half, &rope_interleaved, &softmax};

}  // namespace trine::kernels
