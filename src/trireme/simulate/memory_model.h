// Memory of a rank by kind: weights, gradients, optimizer state, activations, buffers.
#pragma once

#include "trireme/simulate/step_lowering.h"

namespace trireme {

/// Bytes per parameter before sharding: 2 + 2 + 12 in half precision with Adam, or 20 in all with float32 gradients.
struct StateBytes {
  double weights = 0, gradients = 0, optimizer = 0;
  double sum() const { return weights + gradients + optimizer; }
};
StateBytes state_bytes(const Job& job);
/// The part of state_bytes() that a device holds: optimizer state may be offloaded to a file or held by servers.
StateBytes held_bytes(const Job& job);
/// Divides the state that ZeRO stage `zero` shards by `replicas`.
StateBytes sharded(const StateBytes& whole, int zero, double replicas);

struct RankMemory {
  double weights = 0, gradients = 0, optimizer = 0, activations = 0, buffers = 0;  ///< bytes
  double states() const { return weights + gradients + optimizer; }
  double sum() const { return states() + activations + buffers; }
};

/// Memory of the rank that holds these stages, without activations. `own_runtime`: as Trireme's runtime allocates it,
/// which does not shard vectors and gathers a tied embedding separately.
RankMemory static_memory(const Job& job, const std::vector<const StageCost*>& stages, bool own_runtime = false);
/// Bucket size in bytes: the layout's, or what the software derives for a model with `parameters` parameters.
double bucket_bytes_of(const Layout& layout, double parameters, bool own_runtime);

}  // namespace trireme
