// The attention_tile family on the lanes of avx2/.
#define TRINE_LANES_HEADER "kernels/avx2/lanes.h"

#include "kernels/attention_tile_inl.h"

namespace trine::kernels {

extern const AttentionTileTable kAttentionTileAvx2 = {&attention_tile, &attention_finish};

}  // namespace trine::kernels
