// What an update does: one implementation for each way in which a step's gradients become new weights.
//
//   updates/host_update.h     all-reduced gradients: the host decides, and the optimizer updates
//   updates/enqueued.cpp      the same on a GPU, enqueued, maybe as a graph: the host waits once
//   updates/stages.cpp        each stage by itself, several times in a step (PipeDream)
//   updates/adasum.cpp        replicas' gradients are combined by Adasum
//   updates/local_steps.cpp   replicas update alone and meet now and then (local SGD, DiLoCo)
//   updates/one_bit_adam.cpp  after a warm-up replicas exchange signs of momenta
//   servers/                  parameter servers sum and update
//
// Owner: the engine. Threads: one. Blocking and failure: as the communicators. What is collective for one rank is for
// all: begin() to finish(), refresh(), state() and restart().
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "trireme/comm/world.h"
#include "trireme/config/check.h"
#include "trireme/config/config.h"
#include "trireme/runtime/executor.h"
#include "trireme/train/model_part.h"
#include "trireme/train/optimizer.h"
#include "trireme/train/rank_groups.h"
#include "trireme/train/step_end.h"

namespace trireme {

class ServerAggregation;

/// What is summed over the micro-batches of a step beside gradients: these numbers, then the statistics.
enum StepValue : int64_t { kLoss, kStop, kNumValues };

/// What an update works on. All of it outlives the policy.
struct UpdateContext {
  World& world;
  const Config& config;
  const Layout& layout;
  const RankGroups& groups;
  ModelPart& part;
  const Executor& executor;
  int64_t own_micro_batches = 1;  ///< of a step, that this rank computes
};

struct StepStart {
  int64_t step = 0;     ///< steps before this one
  int64_t updates = 0;  ///< of the weights, before this step
  double lr = 0;
  LossScale loss_scale;
  bool stop = false;                       ///< some worker of this model was asked to stop
  std::vector<torch::Tensor> tokens = {};  ///< of the micro-batches, where needs_tokens()
};

class UpdatePolicy {
 public:
  explicit UpdatePolicy(const UpdateContext& context);
  virtual ~UpdatePolicy() = default;
  UpdatePolicy(const UpdatePolicy&) = delete;

  // A step calls these from top to bottom.
  virtual void begin(const StepStart& start) { start_ = start; }
  /// What the program of this step does with gradients: what the config asks for, or at first something else.
  virtual GradientExchange exchange() const { return exchange_; }
  /// Runs the program of the step, whose instructions call the next six.
  virtual StepTimes launch(const std::function<StepTimes()>& program) { return program(); }
  virtual void push(int /*stage*/, int /*group*/) {}
  virtual void combine() {}
  virtual void norm() {}
  /// OptimizerStep. Returns the end of the step where that has been decided, else finish() does.
  virtual std::optional<StepEnd> update(int stage) = 0;
  virtual void pull() {}
  virtual void meet() {}
  virtual std::optional<StepEnd> finish() { return std::nullopt; }

  /// Tokens of the step are wanted by begin().
  virtual bool needs_tokens() const { return false; }
  /// On a GPU: the host's own work in the last step, before it waited.
  virtual double enqueue_s() const { return 0; }
  /// From what slot 0 holds after a step to averaged gradients. Throws Error where no worker has them.
  virtual double gradient_factor() const { return average_; }

  /// Waits for weights that are on their way.
  virtual void finish_pulls() {}
  /// Fetches the newest weights from all replicas.
  virtual void refresh() {}
  /// The optimizer's state, the same on all replicas, until the next step.
  virtual std::vector<Optimizer::Kind> state() = 0;
  virtual size_t state_bytes() const = 0;
  /// After a load, not at a fresh start: weights have been replaced, the same on all replicas; state() too, unless they
  /// came from checkpoint.start_from.
  virtual void restart(int64_t /*step*/, int64_t /*updates*/) {}
  /// What a worker keeps beside state(). load_pieces() comes after restart().
  virtual StatePieces pieces() const { return {}; }
  virtual void load_pieces(const std::vector<StatePieces>& /*by_replica*/) {}
  /// Bytes of gradients, weights and momenta that this policy has sent itself.
  virtual uint64_t bytes_sent() const { return 0; }
  virtual const ServerAggregation* servers() const { return nullptr; }

 protected:
  struct Totals {
    double norm = 0;  ///< of the gradients' sums
    double loss = 0;
  };
  /// Over the ranks of a model, in the order of its parameters wherever they are: from the squares of this rank's
  /// entries and the loss of the last stage's rank. Collective.
  Totals totals(const std::vector<double>& squares, double own_loss) const;
  /// Hold loss and stop flag, of this rank's last stage.
  torch::Tensor last_values() const { return executor_.values(part_.stages().back().number); }
  /// Moving averages of batch norms follow an update.
  void update_statistics() const;

  World& world_;
  const Config& config_;
  const RankGroups& groups_;
  ModelPart& part_;
  const Executor& executor_;
  const GradientExchange exchange_;  ///< of the program that the engine was made with
  StepRules rules_;
  double average_ = 1;  ///< factor from summed gradients to averages
  StepStart start_;     ///< of the step under way
};

/// By the config. Collective over replicas.
std::unique_ptr<UpdatePolicy> make_update_policy(const UpdateContext& context);

}  // namespace trireme
