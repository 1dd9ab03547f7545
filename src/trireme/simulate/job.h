// What is simulated: a model's shape, how it is cut, and whose software runs it.
#pragma once

#include <optional>

#include "trireme/shape/layout.h"
#include "trireme/shape/model_shape.h"
#include "trireme/simulate/cluster.h"

namespace trireme {

/// Whose software runs a training. The three count gradients, sums and updates in ways of their own: behaviour_of().
enum class Software {
  kPublished,  ///< the systems of the papers that a preset's constants were chosen by
  kTrireme,    ///< Trireme's trainer, on such constants
  kMeasured,   ///< Trireme's trainer, on constants that were measured with it: they have its ways in them
};
/// How Trireme's trainer is counted on a cluster.
Software trireme_on(const Cluster& cluster);

struct Job {
  ModelShape model;
  Layout layout;
  Software software = Software::kPublished;
  std::optional<bool> overlap = {};  ///< of gradient sums; unset: as the cluster's stack does
  std::optional<bool> flash = {};    ///< fused attention; unset: as the stack has it
  /// Throws UsageError for what cannot be cut that way.
  void check() const;
  /// With the layout of one stage.
  Job of_stage(size_t stage) const;
  bool operator==(const Job&) const = default;
};

/// What the software of a job does on a cluster, where systems differ: decided here, and nowhere else.
struct Behaviour {
  bool flash_attention = false;     ///< keeps no matrix
  bool eager_sharding = false;      ///< weights are shared by PyTorch's FSDP: [Note: Eager sharding]
  bool has_own_runtime = false;     ///< groups, sums and memory are those of Trireme's runtime, as its constants are
  bool fuses_update = false;        ///< one pass over a tensor's state instead of one for each operator
  bool updates_all_in_one = false;  ///< and one operator for all tensors
  bool overlaps_gradients = false;
  bool overlaps_messages = false;
};
Behaviour behaviour_of(const Job& job, const Cluster& cluster);

}  // namespace trireme
