#include "kernels/rowwise.h"

#include "kernels/scalar/lanes.h"

// After the lanes they are written on.
#include "kernels/math_inl.h"

#include "kernels/rowwise_inl.h"

namespace trine::kernels {

extern const RowwiseTable kRowwiseScalar = {&rms_norm,  &add,   &scale,
                                          &gated,     &unary, &rope_half,
                                          &rope_interleaved, &softmax};

}  // namespace trine::kernels
