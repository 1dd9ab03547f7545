// Parameter servers instead of an all-reduce: workers push gradients and pull weights; only servers hold moments.
//
// [Note: Trees on servers]
// Servers sum every key along the same tree, with holes where no worker pushes. Its leaves are those of the step,
// padded to a power of two, P; padding changes no sum. A weight with two uses has two such trees under one root,
// because training without servers also sums each use before it adds the two; in a pipeline, different workers may push
// them:
//
//   2 P ─┬─ 0 … P − 1      first use; for all other weights, the whole sum
//        └─ P … 2 P − 1    second use
//
// In synchronous mode weights, moments, norms and losses are bit-equal to those without servers. In the other modes a
// replica pushes the average gradient of its own micro-batches, applied with 1 / dp of the learning rate, so one step
// of all replicas moves the weights as far as one synchronous step. Compressed gradients are summed by each worker
// before they are packed, so their tree has one leaf per replica.
//
// [Note: Weights on their way]
// A step ends once the servers know how to update. Weights are pulled while the next step computes: each layer waits
// for its own weights before it begins, and those of the first layers are sent first. If other workers depend on what
// one worker pulls (tensor parallelism, a weight tied across two stages), all pulls are waited for at once.
//
// [Note: Servers and GPUs]
// Servers work in host memory. A worker on a GPU also keeps its master weights there, in pinned memory: pulled weights
// are copied to the GPU before their layer begins. Gradients are copied bucket by bucket in stream order, while the
// backward pass continues; a bucket is pushed the next time the worker checks after its copy has arrived, at the latest
// for the norm.
//
// Threads: one calls; servers and messages have their own threads. Blocking: as server::Worker, with its timeout.
// Failure: UsageError for settings that servers cannot run with; Error that names the server and the missing rank.
#pragma once

#include <torch/torch.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "trireme/server/job.h"
#include "trireme/server/worker.h"
#include "trireme/train/gradient_mirror.h"
#include "trireme/train/servers/push_codec.h"
#include "trireme/train/servers/served_model.h"
#include "trireme/train/updates/host_update.h"

namespace trireme {

class ServerAggregation : public HostDecision {
 public:
  /// Starts the servers with the weights of the part. Collective.
  explicit ServerAggregation(const UpdateContext& context);
  ~ServerAggregation() override;

  /// Also pulls the rows of the step's tokens, if weights are pulled by rows, and waits for them.
  void begin(const StepStart& start) override;
  bool needs_tokens() const override { return by_rows_.has_value(); }
  /// Pushes a bucket whose gradients are complete; in the asynchronous modes, called after the norm.
  void push(int stage, int group) override;
  /// Starts to pull the new weights, unless the step was skipped.
  void pull() override;
  double gradient_factor() const override;

  /// Waits for all weights of the step that this worker has reached. Not collective.
  void finish_pulls() override;
  /// Pulls into the masters everything that any worker has pushed so far.
  void refresh() override;
  /// Also pulls the newest weights into the masters.
  std::vector<Optimizer::Kind> state() override;
  size_t state_bytes() const override { return 0; }
  /// Starts new servers with the masters and the filled state().
  void restart(int64_t step, int64_t updates) override;
  /// The residual of compression.
  StatePieces pieces() const override { return codec_ ? codec_->save() : StatePieces(); }
  void load_pieces(const std::vector<StatePieces>& by_replica) override;
  uint64_t bytes_sent() const override { return worker_stats().bytes_sent; }
  const ServerAggregation* servers() const override { return this; }

  /// Number of parameters whose newest weights have not been waited for yet.
  int num_on_their_way() const;
  /// Statistics of the servers on this rank.
  std::vector<server::ServerStats> stats() const;
  server::WorkerStats worker_stats() const { return worker_->stats(); }

 protected:
  /// Copies gradients from a GPU to the host.
  void collect() override;
  /// Σ g² of each entry's summed gradient. In the asynchronous modes, dp times the mean of Σ g² over the replicas,
  /// which gives the norm of a typical replica's average.
  std::vector<double> squares() override;
  /// Tells the servers to update, or to skip.
  void apply(const StepEnd& end) override;

 private:
  bool is_synchronous() const { return settings_.mode == server::Mode::kSynchronous; }
  void plan_sums(const Layout& layout);
  void plan_layers();
  void give_weights(int64_t step, int64_t num_updates);
  bool pushes(const ServedParameter& parameter) const;
  bool pulls(const ServedParameter& parameter) const;
  void copy_all();
  void push_arrived(bool waits);
  void push_complete(size_t stage, int group);
  void push_parameter(size_t number);
  void push_rows(const ServedParameter& parameter, const server::PushOptions& options);
  void forget_pushes();
  void start_pulls();
  void finish_pull(size_t parameter);
  void pull_rows();
  void broadcast_replicated();
  void publish(const ServedParameter& parameter) const;
  std::span<float> master(const ServedParameter& parameter) const;
  torch::Tensor gradient(const ServedParameter::Use& use, size_t slot) const;
  std::vector<double> by_entry(const std::vector<double>& by_key) const;
  std::vector<double> own_squares() const;
  void leave(bool waits);

  server::Settings settings_;
  ServedModel served_;
  LeafRange leaves_;                 ///< this worker's leaves in the servers' tree
  std::vector<LeafRange> partials_;  ///< this worker's partial sums by slot, as branches of the servers' tree
  bool sums_own_ = false;            ///< this worker adds its partial sums and uses before it pushes
  int tree_ = 1;                     ///< leaves of one use, padded to a power of two
  std::optional<size_t> by_rows_;    ///< index of the parameter that is pushed and pulled by rows
  std::vector<int64_t> rows_;        ///< rows of the step's tokens, sorted
  bool has_all_rows_ = true;         ///< the rows of all other tokens are the newest, too
  std::map<size_t, std::vector<size_t>> of_layer_;   ///< indices of the parameters that each layer needs
  bool waits_at_once_ = false;                       ///< all pulls together: [Note: Weights on their way]
  uint64_t clock_ = 0;                               ///< clock of the next step
  std::unique_ptr<GradientMirror> mirror_;           ///< null unless gradients are on a GPU: [Note: Servers and GPUs]
  std::deque<std::pair<size_t, int>> on_their_way_;  ///< copies of buckets that were started: stage, bucket
  std::vector<int> missing_;  ///< number of uses of each parameter whose bucket is not complete yet
  std::vector<server::Pending> pushes_, pulls_;
  std::unique_ptr<Optimizer> moments_;  ///< set while the optimizer's state is being read or filled
  std::unique_ptr<PushCodec> codec_;    ///< null: gradients are sent uncompressed
  server::ServersOfJob servers_;
  std::unique_ptr<server::Worker> worker_;
};

}  // namespace trireme
