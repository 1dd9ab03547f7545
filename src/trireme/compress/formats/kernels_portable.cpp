// Compression kernels for any processor: vectors of 16 bytes.
#include "trireme/compress/formats/kernels.h"

#define TRIREME_TARGET

namespace trireme::compress_kernels {
namespace {

struct Isa : VectorsOf<16> {
  static Wide multiply_even(Bits a, Bits b) { return Wide{uint64_t{a[0]} * b[0], uint64_t{a[2]} * b[2]}; }
};

}  // namespace
}  // namespace trireme::compress_kernels

#include "trireme/compress/formats/kernels_blocks.inc"
#include "trireme/compress/formats/kernels_low_rank.inc"
#include "trireme/compress/formats/kernels_table.inc"

namespace trireme::compress_kernels {

const Kernels* portable() {
  static constexpr Kernels kKernels = make_kernels("portable");
  return &kKernels;
}

}  // namespace trireme::compress_kernels
