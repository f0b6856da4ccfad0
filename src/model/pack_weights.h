// Packing a model's matrices for the int8 kernels, once at load.
#pragma once

#include "base/error.h"
#include "format/checkpoint.h"
#include "model/weights.h"
#include "platform/thread_team.h"

namespace trine {

// Packs every matrix whose type has a packed scheme (quant/pack_gguf.h) and gives the file's pages
// back to the system; the token embedding is read from the file. Uses the whole team. Errors:
// exhausted when the packed weights do not fit the memory.
Status pack_weights(const Checkpoint& checkpoint, ThreadTeam& team, DecoderWeights& weights);

}  // namespace trine
