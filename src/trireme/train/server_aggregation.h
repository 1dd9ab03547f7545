// Parameter servers in place of an all-reduce: gradients go to them, weights come back, and nobody else has moments.
//
// [Note: Trees on servers]
// Servers sum along one tree for all keys, with holes where nobody pushes. Its leaves are those of the step, filled up
// to a power of two, P, which changes no sum. A weight with two uses has two such trees under one node, as training
// without servers adds the uses only after each is summed:
//
//   2 P ─┬─ 0 … P − 1      first use; of all other weights, the whole sum
//        └─ P … 2 P − 1    second use
//
// In the synchronous mode weights, moments, norms and losses are bit-equal to those without servers. In the other modes
// a worker's gradient is the average over its own micro-batches and moves the weights by 1 / dp of the learning rate:
// a step of all workers goes as far as a synchronous one.
//
// Owner: the trainer. Threads: one calls; servers and messages have threads of their own. Collective: the constructor,
// restart(), state() and refresh(). Blocking: as the workers of servers, with their timeout. Fails with UsageError for
// servers that cannot be, with Error that names the server and who is missing.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <vector>

#include "trireme/comm/world.h"
#include "trireme/config/check.h"
#include "trireme/config/config.h"
#include "trireme/server/job.h"
#include "trireme/server/worker.h"
#include "trireme/train/model_part.h"
#include "trireme/train/optimizer.h"

namespace trireme {

class ServerAggregation {
 public:
  /// Servers begin with the weights of `part`, which must outlive this.
  ServerAggregation(World& world, const Config& config, const BatchPlan& plan, ModelPart& part);
  ~ServerAggregation();
  ServerAggregation(const ServerAggregation&) = delete;

  /// In the backward pass: all gradients of a group are there. Groups that nobody names are pushed with the norm.
  void push_group(int group);
  /// Σ g² of each entry's summed gradient. In modes without rounds, dp times the mean of the workers' own, which gives
  /// the norm of a typical worker's average.
  std::vector<double> squares();
  /// After squares(): the servers update, or do not where a step is skipped, and the new weights are in the masters.
  void update(double factor, double lr, bool applies);

  /// The optimizer's state, as Optimizer::state(), in memory that stays until the next step; and the newest weights in
  /// the masters.
  std::vector<Optimizer::Kind> state();
  /// Takes what all workers have sent so far into the masters.
  void refresh();
  /// New servers, with the masters and what was filled into state(), for step `step`.
  void restart(int64_t step);

  /// Of the servers on this rank.
  std::vector<server::ServerStats> stats() const;
  server::WorkerStats worker_stats() const { return worker_->stats(); }

 private:
  /// A parameter of the servers.
  struct Parameter {
    size_t share = 0;
    std::vector<size_t> sources;  ///< of the gradient store: one for each use
    bool pushed = false;
  };
  bool is_synchronous() const { return settings_.mode == server::Mode::kSynchronous; }
  void list_parameters();
  void give_weights(int64_t step);
  void push(size_t parameter, double factor, double lr);
  void push_rest(double factor, double lr);
  void forget_pushes();
  void pull_weights();
  std::span<float> master(size_t parameter) const;
  std::vector<double> own_squares() const;
  void leave(bool waits);

  World& world_;
  const Config& config_;
  const int num_workers_;
  const int own_;
  ModelPart& part_;
  server::Settings settings_;
  std::vector<server::Key> keys_;      ///< of the entries, in their order
  std::vector<Parameter> parameters_;  ///< the same
  std::vector<LeafRange> partials_;    ///< of this worker, by slot, as branches of the servers' tree
  int tree_ = 1;                       ///< leaves of a use, filled up
  uint64_t clock_ = 0;                 ///< of the next step
  std::vector<int> missing_;           ///< of each parameter: groups that are not there yet
  std::vector<server::Pending> pushes_;
  std::unique_ptr<Optimizer> moments_;  ///< while somebody looks at them
  server::ServersOfJob servers_;
  std::unique_ptr<server::Worker> worker_;
};

}  // namespace trireme
