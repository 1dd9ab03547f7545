// The update at the end of a step: one implementation for each way to turn a step's gradients into new weights.
//
//   updates/host_update.h     all-reduced gradients: the host decides, and the optimizer updates
//   updates/enqueued.cpp      the same, enqueued on a GPU, possibly as a graph: the host waits once
//   updates/stages.cpp        each stage on its own, several times per step (PipeDream)
//   updates/adasum.cpp        replicas combine their gradients with Adasum
//   updates/local_steps.cpp   replicas update alone and meet from time to time (local SGD, DiLoCo)
//   updates/one_bit_adam.cpp  after a warm-up, replicas exchange signs of momenta
//   servers/                  parameter servers sum and update
//
// Owner: the engine. Threads: one. Blocking and failure: as for communicators. If a function is collective for one
// rank, it is for all: begin() to finish(), refresh(), state() and restart().
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

/// Values that are summed over the micro-batches of a step along with the gradients: these, then the statistics.
enum StepValue : int64_t { kLoss, kStop, kNumValues };

/// What an update works on. All of it outlives the policy.
struct UpdateContext {
  World& world;
  const Config& config;
  const Layout& layout;
  const RankGroups& groups;
  ModelPart& part;
  const Executor& executor;
  int64_t own_micro_batches = 1;  ///< micro-batches of a step that this rank computes
};

struct StepStart {
  int64_t step = 0;     ///< steps before this one
  int64_t updates = 0;  ///< updates of the weights before this step
  double lr = 0;
  LossScale loss_scale;
  bool stop = false;                       ///< some worker of this model was asked to stop
  std::vector<torch::Tensor> tokens = {};  ///< tokens of this rank's micro-batches, if needs_tokens()
};

class UpdatePolicy {
 public:
  explicit UpdatePolicy(const UpdateContext& context);
  virtual ~UpdatePolicy() = default;
  UpdatePolicy(const UpdatePolicy&) = delete;

  // A step calls these from top to bottom.
  virtual void begin(const StepStart& start) { start_ = start; }
  /// What this step's program does with gradients: as the config asks, or a plain sum during a warm-up.
  virtual GradientExchange exchange() const { return exchange_; }
  /// Runs the step's program, whose instructions call push() to meet().
  virtual StepTimes launch(const std::function<StepTimes()>& program) { return program(); }
  virtual void push(int /*stage*/, int /*group*/) {}
  virtual void combine() {}
  virtual void norm() {}
  /// Performs OptimizerStep. Returns the end of the step if it is already decided; otherwise finish() returns it.
  virtual std::optional<StepEnd> update(int stage) = 0;
  virtual void pull() {}
  virtual void meet() {}
  virtual std::optional<StepEnd> finish() { return std::nullopt; }

  /// Whether begin() needs the tokens of the step.
  virtual bool needs_tokens() const { return false; }
  /// On a GPU: host time of the last step until it waited for the device.
  virtual double enqueue_s() const { return 0; }
  /// Factor from what slot 0 holds after a step to averaged gradients. Throws Error if no worker has the sums.
  virtual double gradient_factor() const { return average_; }

  /// Waits for weights that are still being pulled.
  virtual void finish_pulls() {}
  /// Fetches the newest weights from all replicas.
  virtual void refresh() {}
  /// The optimizer's state, the same on all replicas; valid until the next step.
  virtual std::vector<Optimizer::Kind> state() = 0;
  virtual size_t state_bytes() const = 0;
  /// Called after a load, not at a fresh start: the weights have been replaced, with the same values on all replicas;
  /// so has state(), unless the weights came from checkpoint.start_from.
  virtual void restart(int64_t /*step*/, int64_t /*updates*/) {}
  /// State that a worker keeps in addition to state(). load_pieces() is called after restart().
  virtual StatePieces pieces() const { return {}; }
  virtual void load_pieces(const std::vector<StatePieces>& /*by_replica*/) {}
  /// Bytes of gradients, weights and momenta that this policy itself has sent.
  virtual uint64_t bytes_sent() const { return 0; }
  virtual const ServerAggregation* servers() const { return nullptr; }

 protected:
  struct Totals {
    double norm = 0;  ///< norm of the gradient sums
    double loss = 0;
  };
  /// Norm and loss of the whole model, added in the order of its parameters whichever rank holds them, from the squares
  /// of this rank's entries and the loss on the last stage's rank. Collective.
  Totals totals(const std::vector<double>& squares, double own_loss) const;
  /// Loss and stop flag on this rank's last stage.
  torch::Tensor last_values() const { return executor_.values(part_.stages().back().number); }
  /// Moves the running averages of batch norms after an update.
  void update_statistics() const;

  World& world_;
  const Config& config_;
  const RankGroups& groups_;
  ModelPart& part_;
  const Executor& executor_;
  const GradientExchange exchange_;  ///< as in the program that the engine was built with
  StepRules rules_;
  double average_ = 1;  ///< factor from summed gradients to averages
  StepStart start_;     ///< start of the current step
};

/// Makes the policy that the config asks for. Collective over replicas.
std::unique_ptr<UpdatePolicy> make_update_policy(const UpdateContext& context);

}  // namespace trireme
