// The linear family on the lanes of avx2/.
#define TRINE_LANES_HEADER "kernels/avx2/lanes.h"

#include "kernels/linear_inl.h"

namespace trine::kernels {

extern const LinearTable kLinearAvx2 = {&dot_rows<float>, &dot_rows<StoredF16>,
                                        &dot_rows<StoredBF16>, &dot_rows<StoredF8E4M3>, kMaxTileX};

}  // namespace trine::kernels
