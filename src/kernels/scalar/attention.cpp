// The attention family on the lanes of scalar/.
#define TRINE_LANES_HEADER "kernels/scalar/lanes.h"

#include "kernels/attention_inl.h"

namespace trine::kernels {

extern const AttentionTable kAttentionScalar = {
    {&attention_segment<ElementF32>, &attention_segment<ElementF16>,
     &attention_segment<ElementBF16>},
    &attention_merge,
    &attention_finish};

}  // namespace trine::kernels
