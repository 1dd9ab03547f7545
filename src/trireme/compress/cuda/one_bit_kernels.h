// The loops of one_bit_adam.h on a GPU, with the host's bits.
#pragma once

#include "trireme/compress/one_bit_adam.h"
#include "trireme/gpu/types.h"

namespace trireme::gpu {

/// `root` is root_factor() of the settings.
void to_moves(const OneBitAdamSettings& settings, float root, int num_ranks, float* values, const float* momentum,
              const float* second, size_t count, Stream stream);
void to_momentum(const OneBitAdamSettings& settings, float root, const float* moves, const float* second,
                 float* momentum, size_t count, Stream stream);
void frozen_adam_step(const OneBitAdamSettings& settings, const float* moves, const float* second, float* weight,
                      size_t count, Stream stream);

}  // namespace trireme::gpu
