// The simulator's input: a model's shape, its layout, and the software that trains it.
#pragma once

#include <optional>

#include "trireme/shape/layout.h"
#include "trireme/shape/model_shape.h"
#include "trireme/simulate/cluster.h"

namespace trireme {

/// The software that runs a training. The three differ in how they store gradients, reduce them and update:
/// behaviour_of().
enum class Software {
  kPublished,  ///< the systems of the papers that a preset's constants were fitted to
  kTrireme,    ///< Trireme's trainer, with a preset's constants
  kMeasured,   ///< Trireme's trainer, with constants measured with it, which include its overheads
};
/// Which of the two stands for Trireme's trainer on this cluster.
Software trireme_on(const Cluster& cluster);

struct Job {
  ModelShape model;
  Layout layout;
  Software software = Software::kPublished;
  /// Gradients are reduced during the backward pass; unset: as the cluster's stack does.
  std::optional<bool> overlap = {};
  std::optional<bool> flash = {};  ///< fused attention; unset: as the cluster's stack does
  /// Throws UsageError if the model cannot be split by this layout.
  void check() const;
  /// Returns the job with the layout of one stage.
  Job of_stage(size_t stage) const;
  bool operator==(const Job&) const = default;
};

/// What a job's software does on a cluster where systems differ. behaviour_of() is the only place that decides it.
struct Behaviour {
  bool flash_attention = false;  ///< fused attention: the score matrix is not kept
  bool eager_sharding = false;   ///< weights are sharded by PyTorch's FSDP: [Note: Eager sharding]
  /// Buckets, sums and memory are those of Trireme's runtime, which the constants were measured with.
  bool has_own_runtime = false;
  bool fuses_update = false;        ///< the optimizer makes one pass over a tensor's state instead of one per operator
  bool updates_all_in_one = false;  ///< the optimizer launches one operator for all tensors of a block
  bool overlaps_gradients = false;
  bool overlaps_messages = false;
};
Behaviour behaviour_of(const Job& job, const Cluster& cluster);

}  // namespace trireme
