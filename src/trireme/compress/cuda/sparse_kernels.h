// Choice of elements on a GPU, as select.h makes it, straight into a message: [Note: Sparse format].
#pragma once

#include "trireme/gpu/types.h"

namespace trireme::gpu {

/// What the search for the k-th largest knows so far. Zeroed by whoever begins one.
struct SelectState {
  uint32_t least = 0;       ///< what is larger is taken; found from the upper bits down
  uint32_t equal = 0;       ///< so many with exactly this magnitude are taken, from the front
  uint32_t not_finite = 0;  ///< something that was taken is not finite
};

/// Bytes of scratch for arrays of `count`.
size_t select_scratch(size_t count);

/// Finds `least` and `equal` for the k largest of `values`, 0 < k <= count.
void find_largest(const float* values, size_t count, size_t k, SelectState* state, void* scratch, Stream stream);
/// Counts where each part of the array will put what is taken.
void count_taken(const float* values, size_t count, SelectState* state, void* scratch, Stream stream);
/// Writes the message of the `num_taken` = k that were counted and sets them to 0 in `values`, and in `also` unless
/// null; then, where something taken was not finite, all that is not.
void take_counted(float* values, float* also, size_t count, size_t num_taken, SelectState* state, void* scratch,
                  uint8_t* message, Stream stream);

/// out += what a message of `num_taken` elements holds. What it names outside the array is left out.
void add_sparse(const uint8_t* message, size_t num_taken, float* out, size_t count, Stream stream);

}  // namespace trireme::gpu
