// The attention_tile family on the lanes of scalar/.
#define TRINE_LANES_HEADER "kernels/scalar/lanes.h"

#include "kernels/attention_tile_inl.h"

namespace trine::kernels {

extern const AttentionTileTable kAttentionTileScalar = {&attention_tile, &attention_finish};

}  // namespace trine::kernels
