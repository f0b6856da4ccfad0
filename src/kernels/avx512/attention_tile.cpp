// The attention_tile family on the lanes of avx512/.
#define TRINE_LANES_HEADER "kernels/avx512/lanes.h"

#include "kernels/attention_tile_inl.h"

namespace trine::kernels {

extern const AttentionTileTable kAttentionTileAvx512 = {&attention_tile, &attention_finish};

}  // namespace trine::kernels
