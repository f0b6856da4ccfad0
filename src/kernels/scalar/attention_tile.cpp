#include "kernels/attention_tile.h"

#include "kernels/scalar/lanes.h"

// After the lanes they are written on.
#include "kernels/linear_inl.h"
#include "kernels/math_inl.h"

#include "kernels/attention_tile_inl.h"

namespace trine::kernels {

extern const AttentionTileTable kAttentionTileScalar = {&attention_tile, &attention_finish};

}  // namespace trine::kernels
