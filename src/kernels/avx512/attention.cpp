// The attention family on the lanes of avx512/.
#define TRINE_LANES_HEADER "kernels/avx512/lanes.h"

#include "kernels/attention_inl.h"

namespace trine::kernels {

extern const AttentionTable kAttentionAvx512 = {
    {&attention_segment<ElementF32>, &attention_segment<ElementF16>,
     &attention_segment<ElementBF16>},
    &attention_merge,
    &attention_finish};

}  // namespace trine::kernels
