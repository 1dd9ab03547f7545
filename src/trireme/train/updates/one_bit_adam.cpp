// 1-bit Adam: after a warm-up, replicas exchange signs of their momenta instead of gradients.
//
// The warm-up is plain training, bit for bit. After it, gradients are not summed between replicas: each replica adds
// its own to the momentum, and one sum exchanges its contribution to the weights' next moves ([Note: Moves]).
//
// All of this runs where the weights are, on the host or on a GPU, with the same bits for the same gradients.
#include "trireme/compress/one_bit_adam.h"

#include <optional>
#include <span>

#include "trireme/compress/exchange.h"
#include "trireme/config/compression.h"
#include "trireme/tensor/device.h"
#include "trireme/train/updates/host_update.h"
#include "trireme/train/updates/policies.h"

namespace trireme {
namespace {

class OneBitAdam : public HostUpdate {
 public:
  OneBitAdam(const UpdateContext& context, std::shared_ptr<WeightUpdate> weights, std::unique_ptr<UpdatePolicy> warmup)
      : HostUpdate(context, std::move(weights)),
        warmup_(std::move(warmup)),
        comm_(*groups_.replicas()),
        parameters_(part_.parameters()),
        own_processor_(make_processor(parameters_.device())),
        processor_(own_processor_ ? *own_processor_ : host_processor()) {
    settings_.beta1 = static_cast<float>(config_.optimizer.beta1);
    settings_.beta2 = static_cast<float>(config_.optimizer.beta2);
    settings_.eps = static_cast<float>(config_.optimizer.eps);
    GroupLayout layout = layout_of_shards("moves");
    for (const TensorPart& part : layout.parts) firsts_.push_back(part.offset);
    moves_.emplace(processor_, layout.count);
    CompressionOptions options = compression_options(config_);
    options.warmup_steps = 0;  // the trainer's own sums are the warm-up
    sums_ = make_exchange(comm_, options, std::move(layout), 1, processor_);
  }

  void begin(const StepStart& start) override {
    HostUpdate::begin(start);
    // The bias correction of the second moment assumes exactly this many updates.
    is_due_ = start.updates >= config_.compression.warmup_steps;
    if (!is_due_) warmup_->begin(start);
  }

  GradientExchange exchange() const override { return is_due_ ? GradientExchange::kMomenta : GradientExchange::kSum; }

  StepTimes launch(const std::function<StepTimes()>& program) override {
    return is_due_ ? HostUpdate::launch(program) : warmup_->launch(program);
  }

  /// Replaces the gradients in slot 0 by the next momentum, the same on all replicas.
  void combine() override {
    follow();
    const auto warmup = static_cast<uint64_t>(config_.compression.warmup_steps);
    const auto scale = static_cast<float>(average_);
    // Adam, unlike AdamW, adds weight decay to the gradient.
    const double pull =
        config_.optimizer.kind == OptimizerKind::kAdam ? config_.optimizer.weight_decay / comm_.size() : 0;
    for (size_t i = 0; i < firsts_.size(); ++i) {
      const Part own = part(i);
      const auto decay = static_cast<float>(own.decays ? pull : 0);
      processor_.weigh(scale, {part_.gradient(i).const_data_ptr<float>(), own.moves.size()}, decay, own.weight,
                       own.moves);
      processor_.to_moves(settings_, warmup, comm_.size(), own.moves, own.momentum, own.second);
    }
    sums_->sum(moves_->span(), static_cast<uint64_t>(start_.step));
    for (size_t i = 0; i < firsts_.size(); ++i) {
      const Part own = part(i);
      processor_.to_momentum(settings_, warmup, own.moves, own.second,
                             {part_.gradient(i).data_ptr<float>(), own.moves.size()});
    }
    processor_.finish();
  }

  void norm() override { is_due_ ? HostUpdate::norm() : warmup_->norm(); }

  std::optional<StepEnd> update(int stage) override {
    return is_due_ ? HostUpdate::update(stage) : warmup_->update(stage);
  }

  std::optional<StepEnd> finish() override { return is_due_ ? HostUpdate::finish() : warmup_->finish(); }
  double enqueue_s() const override { return is_due_ ? 0 : warmup_->enqueue_s(); }
  /// After the warm-up slot 0 holds the momentum.
  double gradient_factor() const override { return is_due_ ? 1 : average_; }

  StatePieces pieces() const override {
    StatePieces pieces;
    sums_->save(pieces);
    return pieces;
  }

  void load_pieces(const std::vector<StatePieces>& by_replica) override { sums_->load(by_replica); }
  uint64_t bytes_sent() const override { return sums_->bytes_sent(); }

 private:
  struct Part {
    std::span<float> moves, weight;
    std::span<float> momentum, second;
    bool decays = false;
  };

  Part part(size_t shard) {
    const ParameterStore::Shard& place = parameters_.shards()[shard];
    const Optimizer::ShardState state = weights_->optimizer().state_of(shard);
    const auto count = static_cast<size_t>(place.count);
    return {.moves = moves_->span().subspan(firsts_[shard], count),
            .weight = {place.master.data_ptr<float>(), count},
            .momentum = {state.first, count},
            .second = {state.second, count},
            .decays = config_.optimizer.decay == Decay::kAll || parameters_.entries()[place.entry].is_matrix};
  }

  /// Makes the processor wait for work enqueued on the device so far.
  void follow() const {
    const std::function<void()> wait = processor_.after(current_stream(parameters_.device()));
    if (wait) wait();
  }

  void collect() override {}

  double factor() const override { return 1; }

  /// Moves momentum and weights to the exchanged values.
  void apply(const StepEnd& end) override {
    if (!end.updates()) return;
    follow();
    settings_.lr = static_cast<float>(start_.lr);
    const auto warmup = static_cast<uint64_t>(config_.compression.warmup_steps);
    for (size_t i = 0; i < firsts_.size(); ++i) {
      const Part own = part(i);
      const bool decays = own.decays && config_.optimizer.kind == OptimizerKind::kAdamW;
      settings_.weight_decay = decays ? static_cast<float>(config_.optimizer.weight_decay) : 0;
      processor_.to_momentum(settings_, warmup, own.moves, own.second, own.momentum);
      processor_.frozen_adam_step(settings_, own.moves, own.second, own.weight);
    }
    processor_.finish();
    parameters_.publish();
  }

  const std::unique_ptr<UpdatePolicy> warmup_;
  bool is_due_ = false;  ///< the warm-up is over in this step
  Communicator& comm_;
  ParameterStore& parameters_;
  OneBitAdamSettings settings_;
  std::unique_ptr<Processor> own_processor_;  ///< null: the host's
  Processor& processor_;                      ///< runs on the device that holds weights and moments
  std::unique_ptr<Exchange> sums_;
  std::optional<Array<float>> moves_;  ///< moves of all shards, one after another
  std::vector<size_t> firsts_;         ///< offset of each shard's moves
};

}  // namespace

std::unique_ptr<UpdatePolicy> make_one_bit_adam(const UpdateContext& context, std::shared_ptr<WeightUpdate> weights,
                                                std::unique_ptr<UpdatePolicy> warmup) {
  return std::make_unique<OneBitAdam>(context, std::move(weights), std::move(warmup));
}

}  // namespace trireme
