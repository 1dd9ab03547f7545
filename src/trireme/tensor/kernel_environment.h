// What libtorch's libraries read from the environment, set as this library is loaded: before their first call, and
// before there are threads. What somebody has set stays.
//
// MKL_CBWR=AUTO,STRICT: products with one row then have the same bits wherever their operands lie.
//
// ONEDNN_MAX_CPU_ISA: some virtual machines announce matrix tiles (AMX) and hide CPUID's page that describes them.
// oneDNN, which computes products of bfloat16, then configures tiles of no size, and the process dies of an illegal
// instruction. There it is told to do without tiles.
#pragma once

#include <cstdint>

namespace trireme {

/// What CPUID says of tiles; 0 where it says nothing.
struct TileFacts {
  bool announced = false;  ///< leaf 7: AMX-TILE
  uint32_t palettes = 0;   ///< leaf 0x1d: the largest number of a palette
  uint32_t num_tiles = 0;  ///< of palette 1
};

TileFacts read_tile_facts();
/// Announced, but not described.
bool tiles_are_broken(const TileFacts& facts);

}  // namespace trireme
