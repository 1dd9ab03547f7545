// The samples of a step as tensors on the training device.
//
// On the CPU they are views of what was read. On a GPU they lie at fixed places, as a captured graph wants it, and the
// next step's samples travel from pinned memory while this one computes. Owner: the trainer. Threads: one. Blocking:
// until samples are read, five minutes at most.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <optional>
#include <vector>

#include "trireme/data/dataset.h"
#include "trireme/data/read_ahead.h"
#include "trireme/tensor/device.h"
#include "trireme/tensor/tensors.h"

namespace trireme {

/// What a model is given of a micro-batch, and what its loss compares with. A part that is not read is empty.
struct Inputs {
  Tensors inputs, targets;
};

/// Tensors in the memory of `batch`, which they keep alive.
Inputs tensors_of(const std::shared_ptr<Batch>& batch, const SampleShape& shape);

class StepInputs {
 public:
  StepInputs(torch::Device device, size_t num_micro_batches);

  /// From now on the samples of this reader. They lie where earlier ones did.
  void read_from(const SampleShape& shape, std::unique_ptr<ReadAhead> reader);
  /// The next step's samples become the current ones. Returns the seconds that were spent waiting for data. Nothing
  /// happens without a reader.
  double next();
  /// Starts to bring the step after this one. Call it when this one is under way.
  void prefetch();
  /// In place of a reader's: of each micro-batch. Throws UsageError on a GPU where they change their shapes.
  void give(const std::vector<Inputs>& micro_batches);
  const Inputs& at(size_t micro_batch) const { return current_[micro_batch]; }

 private:
  void read();

  const torch::Device device_;
  const size_t num_micro_batches_;
  SampleShape shape_;
  std::unique_ptr<ReadAhead> reader_;
  std::vector<Inputs> current_;
  // On a GPU: where samples arrive, and the pinned memory that they come from.
  std::vector<Inputs> arriving_, pinned_;
  std::optional<UploadLane> lane_;
  bool is_arriving_ = false;
};

}  // namespace trireme
