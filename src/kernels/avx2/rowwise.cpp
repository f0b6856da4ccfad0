// The rowwise family on the lanes of avx2/.
#define TRINE_LANES_HEADER "kernels/avx2/lanes.h"

#include "kernels/rowwise_inl.h"

namespace trine::kernels {

extern const RowwiseTable kRowwiseAvx2 = {
    &rms_norm, &add, &scale, &gated, &unary, &rope_half, &rope_interleaved, &softmax};

}  // namespace trine::kernels
