#include "trireme/train/momentum_exchange.h"

#include "trireme/tensor/device.h"
#include "trireme/train/compression.h"

namespace trireme {

std::unique_ptr<MomentumExchange> MomentumExchange::make(const Config& config, Communicator* replicas,
                                                         ParameterStore& parameters, const Optimizer& optimizer) {
  if (config.compression.method != "onebit_adam" || replicas == nullptr) return nullptr;
  return std::make_unique<MomentumExchange>(config, *replicas, parameters, optimizer);
}

MomentumExchange::MomentumExchange(const Config& config, Communicator& replicas, ParameterStore& parameters,
                                   const Optimizer& optimizer)
    : config_(config),
      comm_(replicas),
      parameters_(parameters),
      optimizer_(optimizer),
      own_processor_(make_processor(parameters.device())),
      processor_(own_processor_ ? *own_processor_ : host_processor()) {
  settings_.beta1 = static_cast<float>(config.optimizer.beta1);
  settings_.beta2 = static_cast<float>(config.optimizer.beta2);
  settings_.eps = static_cast<float>(config.optimizer.eps);
  GroupLayout layout{"moves", 0, {}};
  for (const ParameterStore::Share& share : parameters.shares()) {
    const auto count = static_cast<size_t>(share.count);
    firsts_.push_back(layout.count);
    layout.parts.push_back({parameters.entries()[share.entry].name, layout.count, 1, count});
    layout.count += count;
  }
  moves_.emplace(processor_, layout.count);
  CompressionOptions options = compression_options(config);
  options.warmup_steps = 0;  // the trainer's own sums are the warm-up
  exchange_ = make_exchange(comm_, options, std::move(layout), 1, processor_);
}

MomentumExchange::Part MomentumExchange::part(size_t share) {
  const ParameterStore::Share& place = parameters_.shares()[share];
  const Optimizer::ShareState state = optimizer_.state_of(share);
  const auto count = static_cast<size_t>(place.count);
  return {.moves = moves_->span().subspan(firsts_[share], count),
          .weight = {place.master.data_ptr<float>(), count},
          .momentum = {state.first, count},
          .second = {state.second, count},
          .decays = config_.optimizer.decay == "all" || parameters_.entries()[place.entry].is_matrix};
}

void MomentumExchange::follow() const {
  const std::function<void()> wait = processor_.after(current_stream(parameters_.device()));
  if (wait) wait();
}

void MomentumExchange::exchange(const OfShare& gradient, double factor, int64_t step) {
  follow();
  const auto warmup = static_cast<uint64_t>(config_.compression.warmup_steps);
  const auto scale = static_cast<float>(factor);
  // Adam, unlike AdamW, adds the pull towards zero to the gradient.
  const double pull = config_.optimizer.kind == "adam" ? config_.optimizer.weight_decay / comm_.size() : 0;
  for (size_t i = 0; i < firsts_.size(); ++i) {
    const Part own = part(i);
    const auto decay = static_cast<float>(own.decays ? pull : 0);
    processor_.weigh(scale, {gradient(i).const_data_ptr<float>(), own.moves.size()}, decay, own.weight, own.moves);
    processor_.to_moves(settings_, warmup, comm_.size(), own.moves, own.momentum, own.second);
  }
  exchange_->sum(moves_->span(), static_cast<uint64_t>(step));
  for (size_t i = 0; i < firsts_.size(); ++i) {
    const Part own = part(i);
    processor_.to_momentum(settings_, warmup, own.moves, own.second, {gradient(i).data_ptr<float>(), own.moves.size()});
  }
  processor_.finish();
}

void MomentumExchange::update(double lr) {
  follow();
  settings_.lr = static_cast<float>(lr);
  const auto warmup = static_cast<uint64_t>(config_.compression.warmup_steps);
  for (size_t i = 0; i < firsts_.size(); ++i) {
    const Part own = part(i);
    const bool decays = own.decays && config_.optimizer.kind == "adamw";
    settings_.weight_decay = decays ? static_cast<float>(config_.optimizer.weight_decay) : 0;
    processor_.to_momentum(settings_, warmup, own.moves, own.second, own.momentum);
    processor_.frozen_adam_step(settings_, own.moves, own.second, own.weight);
  }
  processor_.finish();
  parameters_.publish();
}

StatePieces MomentumExchange::save() const {
  StatePieces pieces;
  exchange_->save(pieces);
  return pieces;
}

}  // namespace trireme
