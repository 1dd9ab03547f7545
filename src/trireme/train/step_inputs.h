// The samples of a step as tensors on the training device.
//
// On the CPU they are views of the batch that was read. On a GPU they stay at fixed addresses, as a captured graph
// requires, and the next step's samples are copied from pinned memory while the current step computes. Owner: the
// engine. Threads: one. Blocking: next() and prefetch() wait for samples to be read, up to five minutes.
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

/// Inputs of the model for one micro-batch, and the targets of its loss. A part that is not read is empty.
struct Inputs {
  Tensors inputs, targets;
};

/// Views of the memory of `batch`, which they keep alive.
Inputs tensors_of(const std::shared_ptr<Batch>& batch, const SampleShape& shape);

/// Throws UsageError that names the first tensor whose dtype or sizes differ between two batches, or their numbers of
/// tensors.
void require_same_forms(const Inputs& given, const Inputs& before);

class StepInputs {
 public:
  StepInputs(torch::Device device, size_t num_micro_batches);

  /// Reads samples from this reader from now on, into the same memory as before.
  void read_from(const SampleShape& shape, std::unique_ptr<ReadAhead> reader);
  /// Makes the next step's samples the current ones. Returns the seconds spent waiting for data. Does nothing without a
  /// reader.
  double next();
  /// Starts to copy the samples of the next step to the GPU. Call it once the current step is running.
  void prefetch();
  /// Sets the samples of each micro-batch directly, instead of a reader. On a GPU, throws as require_same_forms().
  void give(const std::vector<Inputs>& micro_batches);
  const Inputs& at(size_t micro_batch) const { return current_[micro_batch]; }

 private:
  void read();

  const torch::Device device_;
  const size_t num_micro_batches_;
  SampleShape shape_;
  std::unique_ptr<ReadAhead> reader_;
  std::vector<Inputs> current_;
  // On a GPU: where samples arrive, and the pinned memory from which they are copied.
  std::vector<Inputs> arriving_, pinned_;
  std::optional<UploadLane> lane_;
  bool is_arriving_ = false;
};

}  // namespace trireme
