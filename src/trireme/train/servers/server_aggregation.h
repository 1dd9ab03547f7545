// Parameter servers in place of an all-reduce: gradients go to them, weights come back, and nobody else has moments.
//
// [Note: Trees on servers]
// Servers sum along one tree for all keys, with holes where nobody pushes. Its leaves are those of the step, filled up
// to a power of two, P, which changes no sum. A weight with two uses has two such trees under one node, as training
// without servers adds the uses only after each is summed; with a pipeline, two workers may push them:
//
//   2 P ─┬─ 0 … P − 1      first use; of all other weights, the whole sum
//        └─ P … 2 P − 1    second use
//
// In the synchronous mode weights, moments, norms and losses are bit-equal to those without servers. In the other modes
// a replica's gradient is the average over its own micro-batches and moves the weights by 1 / dp of the learning rate:
// a step of all replicas goes as far as a synchronous one. Compressed gradients are summed by each worker first, so
// their tree has a leaf for each replica.
//
// [Note: Weights on their way]
// A step ends when the servers know what to do. Weights are pulled while the next one computes: before a layer begins,
// its own have arrived, and those of the first layers are sent first. Where other workers wait for what one has pulled
// (tensor parallelism, a weight that is tied over two stages), all are waited for at once.
//
// [Note: Servers and GPUs]
// Servers work in the host's memory. A worker on a GPU has its masters there, too, in pinned memory: what is pulled
// goes to the GPU before its layer begins. Gradients are copied group by group in the GPU's own turn, while the
// backward pass goes on; each push begins when somebody looks after its copy has arrived, at the latest for the norm.
//
// Threads: one calls; servers and messages have threads of their own. Blocking: as the workers of servers, with their
// timeout. Fails with UsageError for servers that cannot be, with Error that names the server and who is missing.
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
  /// Servers begin with the weights of the part.
  explicit ServerAggregation(const UpdateContext& context);
  ~ServerAggregation() override;

  /// The rows of the step's tokens are there, where rows travel.
  void begin(const StepStart& start) override;
  bool needs_tokens() const override { return by_rows_.has_value(); }
  /// A group whose gradients are complete; in modes without rounds, after the norm.
  void push(int stage, int group) override;
  /// New weights are on their way, unless the step was skipped.
  void pull() override;
  double gradient_factor() const override;

  /// All weights are there, of the step that this worker has reached. Not collective.
  void finish_pulls() override;
  /// Takes what all workers have sent so far into the masters.
  void refresh() override;
  /// Takes the newest weights into the masters, too.
  std::vector<Optimizer::Kind> state() override;
  size_t state_bytes() const override { return 0; }
  /// New servers, with the masters and what was filled into state().
  void restart(int64_t step, int64_t updates) override;
  /// What compression has not sent yet.
  StatePieces pieces() const override { return codec_ ? codec_->save() : StatePieces(); }
  void load_pieces(const std::vector<StatePieces>& by_replica) override;
  uint64_t bytes_sent() const override { return worker_stats().bytes_sent; }
  const ServerAggregation* servers() const override { return this; }

  /// Parameters whose newest weights nobody has waited for yet.
  int num_on_their_way() const;
  /// Of the servers on this rank.
  std::vector<server::ServerStats> stats() const;
  server::WorkerStats worker_stats() const { return worker_->stats(); }

 protected:
  /// From a GPU to the host.
  void collect() override;
  /// Of each entry's summed gradient. In modes without rounds, dp times the mean of the replicas' own, which gives the
  /// norm of a typical one's average.
  std::vector<double> squares() override;
  /// The servers update, or do not.
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
  LeafRange leaves_;                                ///< of this worker, in the servers' tree
  std::vector<LeafRange> partials_;                 ///< of this worker, by slot, as branches of the servers' tree
  bool sums_own_ = false;                           ///< this worker's partial sums and uses are added before they leave
  int tree_ = 1;                                    ///< leaves of a use, filled up
  std::optional<size_t> by_rows_;                   ///< the parameter whose rows travel
  std::vector<int64_t> rows_;                       ///< of the step's tokens
  bool has_all_rows_ = true;                        ///< those of other tokens are the newest, too
  std::map<size_t, std::vector<size_t>> of_layer_;  ///< parameters
  bool waits_at_once_ = false;                      ///< for all pulls: [Note: Weights on their way]
  uint64_t clock_ = 0;                              ///< of the next step
  std::unique_ptr<GradientMirror> mirror_;          ///< null but for gradients on a GPU: [Note: Servers and GPUs]
  std::deque<std::pair<size_t, int>> on_their_way_;  ///< copies of groups: stage, group
  std::vector<int> missing_;                         ///< of each parameter: groups that are not there yet
  std::vector<server::Pending> pushes_, pulls_;
  std::unique_ptr<Optimizer> moments_;  ///< while somebody looks at them
  std::unique_ptr<PushCodec> codec_;    ///< null: gradients travel whole
  server::ServersOfJob servers_;
  std::unique_ptr<server::Worker> worker_;
};

}  // namespace trireme
