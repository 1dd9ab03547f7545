// Makes an ordinary libtorch training loop data parallel: gradients are averaged over all ranks during backward().
//
//   DataParallel ddp(world.comm(), *model);          // all ranks now have rank 0's weights
//   for (…) {
//     optimizer.zero_grad();
//     loss.backward();                               // buckets are reduced as soon as they are full
//     ddp.synchronize();                             // every `.grad` is a view of its averaged bucket
//     optimizer.step();
//   }
//
// If ranks may run out of data at different times, or have batches of different sizes, begin each step with agree():
//
//   while (ddp.agree(batch ? batch->size() : 0) > 0) {   // 0: no rank has samples left
//     optimizer.zero_grad();
//     if (batch) loss_of(*batch).backward();             // a rank without a batch contributes nothing …
//     ddp.synchronize();                                 // … but takes part, and makes the same step as others
//     optimizer.step();
//   }
//
// Owner: the caller, who destroys it before the world and while no backward pass is running; gradients that it has
// given out then become copies. Threads: the one that runs backward(). Blocking: the constructor, agree(),
// synchronize() and average_buffers(), which all ranks call in the same order, each with the communicator's timeout.
// Fails with UsageError or CommError. docs/data_parallelism.md says more.
#pragma once

#include <torch/torch.h>

#include <optional>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/runtime/group_reducer.h"
#include "trireme/runtime/stage_set.h"

namespace trireme {

/// Must be equal on all ranks, except `overlap` and `unused_is_error`; the constructor checks it.
struct DataParallelOptions {
  bool average = true;         ///< false: gradients are summed over ranks, not averaged
  double bucket_mb = 4;        ///< MiB of gradients that are reduced at once
  double first_bucket_mb = 1;  ///< the same for the first bucket: short, so that communication begins early
  torch::ScalarType travel_type = torch::kFloat32;  ///< kBFloat16, kFloat16: send float32 gradients in half the bytes
  bool overlap = true;           ///< false: synchronize() starts the reductions, after one or more backward passes
  bool ordered = true;           ///< false: sums may use any order that is faster, instead of a fixed tree
  bool unused_is_error = false;  ///< true: parameters without a gradient are an error that names them, instead of zero
};

class DataParallel {
 public:
  /// Throws UsageError on all ranks if models or options differ. All parameters that require gradients must have one
  /// dtype.
  DataParallel(Communicator& comm, const torch::nn::Module& module, const DataParallelOptions& options = {});
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;

  /// Call after backward(): waits until all gradients are reduced, and sets every `.grad`, which is undefined until
  /// then.
  void synchronize();

  /// While it exists, backward passes only accumulate on this rank; the next one without it reduces their sum.
  class [[nodiscard]] NoSync {
   public:
    NoSync(NoSync&& other) noexcept : owner_(std::exchange(other.owner_, nullptr)) {}
    ~NoSync();

   private:
    friend class DataParallel;
    explicit NoSync(DataParallel* owner) : owner_(owner) {}
    DataParallel* owner_;
  };
  NoSync no_sync();

  /// Begins a step in which batches may differ in size: `num_samples` is this rank's, 0 without a batch. Returns the
  /// sum over all ranks. With `average`, the step's gradients are the mean over all these samples, provided that each
  /// rank's loss is the mean over its own. Without agree(), every rank has equal weight.
  int64_t agree(int64_t num_samples);

  /// Replaces the all-reduce of a bucket; call it on all ranks. Values are already scaled for the average: a hook only
  /// sums.
  void set_hook(ReduceHook hook);

  /// Averages floating-point buffers over ranks and broadcasts others from rank 0. Call it before evaluating or saving
  /// a model whose BatchNorm layers have seen different batches.
  void average_buffers();

  int num_buckets() const { return store_.num_groups(); }
  /// Bytes of gradients handed to the communicator so far; not what a hook sends.
  size_t bytes_reduced() const { return reducer_.bytes_reduced(); }

 private:
  DataParallel(Communicator& comm, std::vector<GradientSource> sources, std::vector<torch::Tensor> buffers,
               const DataParallelOptions& options);
  void begin(bool add);
  void start(int bucket);
  void note_gradient(size_t source);
  void go_on();

  Communicator& comm_;
  const DataParallelOptions options_;
  std::vector<torch::Tensor> buffers_;
  std::vector<bool> has_gradient_;  ///< whether each source has a gradient in the current step
  StageSet held_;
  GradientStore& store_;  ///< gradients of the only stage of held_
  GroupReducer reducer_;
  bool has_hook_ = false;

  // State of the current step.
  int num_started_ = 0;                ///< number of buckets whose reduction has started
  int num_guards_ = 0;                 ///< number of NoSync guards alive
  bool has_local_sum_ = false;         ///< whether slot 0 holds the sum of earlier backward passes
  std::optional<double> agreed_part_;  ///< this rank's fraction of all samples
};

}  // namespace trireme
