// Makes an ordinary libtorch training loop data parallel: gradients are averaged over all ranks during backward().
//
//   DataParallel ddp(world.comm(), *model);          // all ranks now have rank 0's weights
//   for (…) {
//     optimizer.zero_grad();
//     loss.backward();                               // buckets travel as soon as they are full
//     ddp.synchronize();                             // every `.grad` is a view of its averaged bucket
//     optimizer.step();
//   }
//
// Where ranks may run out of data at different times, or have batches of different sizes, agree() begins each step:
//
//   while (ddp.agree(batch ? batch->size() : 0) > 0) {   // 0: no rank has samples left
//     optimizer.zero_grad();
//     if (batch) loss_of(*batch).backward();             // without a batch a rank contributes nothing …
//     ddp.synchronize();                                 // … but takes part, and makes the same step as the others
//     optimizer.step();
//   }
//
// Owner: the caller; it must be destroyed before the world, and while no backward pass is under way. Gradients that it
// has given out then become copies. Threads: the one that runs backward(). Blocking: the constructor, agree(),
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

/// Equal on all ranks; the constructor checks it.
struct DataParallelOptions {
  bool average = true;         ///< false: the sum over ranks
  double bucket_mb = 4;        ///< MiB of gradients that travel together
  double first_bucket_mb = 1;  ///< the bucket that is full first: short, so that communication begins early
  torch::ScalarType travel_type = torch::kFloat32;  ///< kBFloat16 and kFloat16 halve the bytes of float32 gradients
  bool overlap = true;  ///< false: nothing travels before synchronize(), which then takes several backward passes
  bool ordered = true;  ///< sums follow a fixed tree; false: any order that is faster
  bool unused_is_error = false;  ///< parameters without gradient: an error that names them, instead of zero
};

class DataParallel {
 public:
  /// Throws UsageError on all ranks where models or options differ. The parameters that need gradients have one type.
  DataParallel(Communicator& comm, const torch::nn::Module& module, const DataParallelOptions& options = {});
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;

  /// After backward(): waits until all gradients have arrived. Until then no `.grad` is there.
  void synchronize();

  /// Backward passes during its life add up on this rank; the next one without it reduces their sum.
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

  /// Begins a step whose batches may differ: `num_samples` is this rank's, 0 without a batch. Returns those of all
  /// ranks together. With `average`, the step's gradients are the mean over all these samples, given that each rank's
  /// loss is the mean over its own. Without agree() every rank counts the same.
  int64_t agree(int64_t num_samples);

  /// Replaces the all-reduce of a bucket, on all ranks. The values have been scaled for the average: a hook only sums.
  void set_hook(ReduceHook hook);

  /// Buffers of floating type become their means over ranks, others those of rank 0: before evaluating or saving a
  /// model whose BatchNorm layers have seen different batches.
  void average_buffers();

  int num_buckets() const { return store_.num_groups(); }
  /// Bytes of gradients that were handed to the communicator so far; those of a hook are not known.
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
  std::vector<bool> has_gradient_;  ///< by source, in the step under way
  StageSet held_;
  GradientStore& store_;  ///< of its one stage
  GroupReducer reducer_;
  bool has_hook_ = false;

  // Of the step under way.
  int num_started_ = 0;                ///< buckets that travel
  int num_guards_ = 0;                 ///< of no_sync()
  bool has_local_sum_ = false;         ///< slot 0 holds the sum of earlier backward passes
  std::optional<double> agreed_part_;  ///< this rank's part of all samples
};

}  // namespace trireme
