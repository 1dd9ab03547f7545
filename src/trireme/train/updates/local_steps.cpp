// Replicas that update alone and meet from time to time: local SGD and DiLoCo.
//
// [Note: Meetings]
// Between meetings each replica updates its weights with its own gradients; losses are still averaged over all
// replicas. At a meeting replicas average their weights, or take an outer step (DiLoCo). Each replica keeps its own
// optimizer moments. Visible state, above all a checkpoint, must be the same on all replicas: so before it is read, and
// at the end of training, replicas settle: they meet, and average their moments too. Weights on GPUs are exchanged
// through host memory, where DiLoCo keeps its state between meetings.
#include <algorithm>
#include <optional>
#include <span>

#include "trireme/compress/exchange.h"
#include "trireme/compress/local_sgd.h"
#include "trireme/train/updates/host_update.h"
#include "trireme/train/updates/policies.h"

namespace trireme {
namespace {

class LocalSteps : public HostUpdate {
 public:
  /// All replicas start with the same weights.
  LocalSteps(const UpdateContext& context, std::shared_ptr<WeightUpdate> weights)
      : HostUpdate(context, std::move(weights)),
        comm_(*groups_.replicas()),
        parameters_(part_.parameters()),
        plan_{static_cast<uint64_t>(config_.local.every), static_cast<uint64_t>(config_.local.after)} {
    average_ = 1.0 / static_cast<double>(context.own_micro_batches);
    LocalSteps::restart(0, 0);
  }

  /// Replicas meet when the plan says so, and settle when training ends.
  void meet() override {
    last_step_ = start_.step;
    weights_differ_ = moments_differ_ = true;
    if (plan_.meets_after(static_cast<uint64_t>(last_step_))) meet_after(last_step_);
    if (end_.stop || last_step_ + 1 == config_.train.steps) settle();
  }

  std::vector<Optimizer::Kind> state() override {
    settle();
    return HostUpdate::state();
  }

  void restart(int64_t, int64_t) override {
    weights_differ_ = moments_differ_ = false;
    if (config_.local.method != LocalMethod::kDiloco) return;
    take([this](size_t shard) { return parameters_.shards()[shard].master; });
    DiLoCoOptions options;
    options.plan = {1, 0};  // meets at every call: `plan_` and settle() decide when
    options.lr = static_cast<float>(config_.local.outer_lr);
    options.momentum = static_cast<float>(config_.local.outer_momentum);
    options.format = block_format(config_.local.format);
    options.seed = static_cast<uint64_t>(config_.train.seed);
    diloco_.emplace(comm_, options, layout_of_shards("weights"), flat_);
  }

  /// DiLoCo's state.
  StatePieces pieces() const override { return diloco_ ? diloco_->save() : StatePieces(); }

  void load_pieces(const std::vector<StatePieces>& by_replica) override {
    const bool has_some = std::any_of(by_replica.begin(), by_replica.end(), [](const StatePieces& pieces) {
      return std::any_of(pieces.begin(), pieces.end(),
                         [](const StatePiece& piece) { return piece.name.starts_with("diloco/"); });
    });
    if (diloco_ && has_some) diloco_->load(by_replica);  // otherwise the checkpoint is of another update method
  }

  uint64_t bytes_sent() const override { return bytes_sent_ + (diloco_ ? diloco_->bytes_sent() : 0); }

 private:
  using OfShard = std::function<torch::Tensor(size_t shard)>;

  void take(const OfShard& of_shard) {
    flat_.clear();
    for (size_t i = 0; i < parameters_.shards().size(); ++i) {
      const torch::Tensor from = of_shard(i).cpu();
      const float* values = from.const_data_ptr<float>();
      flat_.insert(flat_.end(), values, values + from.numel());
    }
  }

  void give(const OfShard& of_shard) const {
    const torch::NoGradGuard no_grad;
    const float* from = flat_.data();
    for (size_t i = 0; i < parameters_.shards().size(); ++i) {
      torch::Tensor to = of_shard(i);
      to.copy_(torch::from_blob(const_cast<float*>(from), to.sizes(), torch::kFloat32));
      from += to.numel();
    }
  }

  void average(std::span<float> values) {
    comm_.all_reduce(values, ReduceOp::kAverage);
    bytes_sent_ += dense_sum_bytes(values.size_bytes(), comm_.size());
  }

  void meet_after(int64_t step) {
    const OfShard masters = [this](size_t shard) { return parameters_.shards()[shard].master; };
    take(masters);
    if (diloco_) {
      diloco_->after_step(static_cast<uint64_t>(step), flat_);
    } else {
      average(flat_);
    }
    give(masters);
    parameters_.publish();
    weights_differ_ = false;
  }

  /// [Note: Meetings]. Does nothing if no step was taken since.
  void settle() {
    if (weights_differ_) meet_after(last_step_);
    if (!moments_differ_) return;
    for (const Optimizer::Kind& kind : weights_->optimizer().state()) {
      take(kind.of_shard);
      average(flat_);
      give(kind.of_shard);
    }
    moments_differ_ = false;
  }

  Communicator& comm_;
  ParameterStore& parameters_;
  const MeetingPlan plan_;
  std::optional<DiLoCo> diloco_;
  std::vector<float> flat_;  ///< values of all shards, one shard after another
  int64_t last_step_ = 0;
  bool weights_differ_ = false, moments_differ_ = false;
  uint64_t bytes_sent_ = 0;
};

}  // namespace

std::unique_ptr<UpdatePolicy> make_local_steps(const UpdateContext& context, std::shared_ptr<WeightUpdate> weights) {
  return std::make_unique<LocalSteps>(context, std::move(weights));
}

}  // namespace trireme
