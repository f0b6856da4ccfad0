// Included before every file of llama.cpp's kernels that is compiled for AMX (setup.sh).
//
// The tile intrinsics of g++ 12 tell the compiler of only 8 of the 64 bytes that a configuration
// has, and of none of the bytes that a tile load reads. So it drops the stores that fill them, and
// llama.cpp ends with an illegal instruction at its first tile. These say that memory is read and
// written; the instructions are the same.
#pragma once

#if defined(__AMX_TILE__) && defined(__GNUC__) && !defined(__clang__)

#include <immintrin.h>

#undef _tile_loadd
#undef _tile_stream_loadd
#undef _tile_stored

// Two steps, so that a tile may be named by a macro.
#define _tile_loadconfig(config) __asm__ volatile("ldtilecfg (%0)" : : "r"(config) : "memory")
#define _tile_loadd(tile, base, stride) TRINE_TILE_LOAD("tileloadd", tile, base, stride)
#define _tile_stream_loadd(tile, base, stride) TRINE_TILE_LOAD("tileloaddt1", tile, base, stride)
#define _tile_stored(tile, base, stride) TRINE_TILE_STORE(tile, base, stride)

#define TRINE_TILE_LOAD(name, tile, base, stride)                                        \
  __asm__ volatile(name " (%0,%1,1), %%tmm" #tile                                        \
                   :                                                                     \
                   : "r"(static_cast<const void*>(base)), "r"(static_cast<long>(stride)) \
                   : "memory")
#define TRINE_TILE_STORE(tile, base, stride)                                       \
  __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)"                          \
                   :                                                               \
                   : "r"(static_cast<void*>(base)), "r"(static_cast<long>(stride)) \
                   : "memory")

#endif
