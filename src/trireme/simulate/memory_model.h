// Where a rank's memory goes: weights, gradients, optimizer state, activations, buffers.
#pragma once

#include "trireme/simulate/step_lowering.h"

namespace trireme {

/// Bytes a parameter, whole: 2 + 2 + 12 in half precision with Adam, or 20 with float32 gradients kept beside them.
struct StateBytes {
  double weights = 0, gradients = 0, optimizer = 0;
  double sum() const { return weights + gradients + optimizer; }
};
StateBytes state_bytes(const Job& job);
/// Of those, what a device holds: the optimizer's part may lie elsewhere, in a file or on servers.
StateBytes held_bytes(const Job& job);
/// What is left of them on each of `replicas` ranks at a ZeRO stage.
StateBytes sharded(const StateBytes& whole, int zero, double replicas);

struct RankMemory {
  double weights = 0, gradients = 0, optimizer = 0, activations = 0, buffers = 0;  ///< bytes
  double states() const { return weights + gradients + optimizer; }
  double sum() const { return states() + activations + buffers; }
};

/// All but activations, of the rank that holds these stages. `own_runtime`: as the runtime of this project has it,
/// which shards no vectors, and takes a tied embedding for itself.
RankMemory static_memory(const Job& job, const std::vector<const StageCost*>& stages, bool own_runtime = false);
/// Gradients that are reduced together: what the layout asks for, or what the software derives for a model of so many
/// parameters.
double bucket_bytes_of(const Layout& layout, double parameters, bool own_runtime);

}  // namespace trireme
