#include "trireme/tensor/kernel_environment.h"

#include <cstdlib>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace trireme {
namespace {

[[maybe_unused]] const bool kIsSet = [] {
  setenv("MKL_CBWR", "AUTO,STRICT", 0);
  if (tiles_are_broken(read_tile_facts())) setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16", 0);
  return true;
}();

}  // namespace

TileFacts read_tile_facts() {
  TileFacts facts;
#if defined(__x86_64__)
  constexpr uint32_t kAmxTile = 1u << 24;
  uint32_t a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) facts.announced = (d & kAmxTile) != 0;
  if (__get_cpuid_count(0x1d, 0, &a, &b, &c, &d)) facts.palettes = a;
  if (__get_cpuid_count(0x1d, 1, &a, &b, &c, &d)) facts.num_tiles = b >> 16;
#endif
  return facts;
}

bool tiles_are_broken(const TileFacts& facts) {
  return facts.announced && (facts.palettes == 0 || facts.num_tiles == 0);
}

}  // namespace trireme
