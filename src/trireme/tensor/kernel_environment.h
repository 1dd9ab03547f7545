// Environment variables of libtorch's libraries, set when this library is loaded: before their first call, and before
// there are threads. Values that the user has set are kept.
//
// MKL_CBWR=AUTO,STRICT: matmuls with one row then give the same bits whatever the addresses of their operands.
//
// ONEDNN_MAX_CPU_ISA: some virtual machines announce matrix tiles (AMX) but hide the CPUID leaf that describes them.
// oneDNN, which computes bfloat16 matmuls, then configures tiles of size zero, and the process dies of an illegal
// instruction. On such machines oneDNN is told not to use tiles.
#pragma once

#include <cstdint>

namespace trireme {

/// What CPUID reports about tiles; 0 where it reports nothing.
struct TileFacts {
  bool announced = false;  ///< leaf 7: AMX-TILE
  uint32_t palettes = 0;   ///< leaf 0x1d: the highest palette number
  uint32_t num_tiles = 0;  ///< tiles of palette 1
};

TileFacts read_tile_facts();
/// Whether tiles are announced but not described.
bool tiles_are_broken(const TileFacts& facts);

}  // namespace trireme
