// 1-bit Adam in training: after a warm-up, replicas exchange signs of their momenta instead of gradients.
//
// The warm-up is plain training, to the bit. Then gradients are not summed between replicas: each adds its own to the
// momentum, and what travels is the part of the weights' next moves that is its own ([Note: Moves]), in one sum.
//
// All of it happens where the weights lie, on the host or on a GPU, with the same bits for the same gradients.
//
// Owner: the trainer. Threads: one. Blocking and failure: as the communicator.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "trireme/compress/exchange.h"
#include "trireme/compress/one_bit_adam.h"
#include "trireme/config/config.h"
#include "trireme/runtime/parameter_store.h"
#include "trireme/train/optimizer.h"

namespace trireme {

class MomentumExchange {
 public:
  /// The arguments must outlive it. Null where the config asks for something else, or there is one replica.
  static std::unique_ptr<MomentumExchange> make(const Config& config, Communicator* replicas,
                                                ParameterStore& parameters, const Optimizer& optimizer);
  MomentumExchange(const Config& config, Communicator& replicas, ParameterStore& parameters,
                   const Optimizer& optimizer);

  /// Whether the warm-up is over after so many updates: the second moment has its correction for exactly those.
  bool is_due(int64_t updates) const { return updates >= config_.compression.warmup_steps; }
  /// `gradient(i)` holds this replica's sum of share i, of which `factor` times the sum over replicas is the average.
  /// Leaves the next momentum there, the same on all replicas. Collective.
  using OfShare = std::function<torch::Tensor(size_t share)>;
  void exchange(const OfShare& gradient, double factor, int64_t step);
  /// After exchange(): takes momentum and weights there.
  void update(double lr);

  StatePieces save() const;
  void load(std::span<const StatePieces> by_replica) { exchange_->load(by_replica); }
  uint64_t bytes_sent() const { return exchange_->bytes_sent(); }

 private:
  struct Part {
    std::span<float> moves, weight;
    std::span<float> momentum, second;
    bool decays = false;
  };
  Part part(size_t share);
  /// The processor begins after what was started for the device so far.
  void follow() const;

  const Config& config_;
  Communicator& comm_;
  ParameterStore& parameters_;
  const Optimizer& optimizer_;
  OneBitAdamSettings settings_;
  std::unique_ptr<Processor> own_processor_;  ///< null: the host's
  Processor& processor_;                      ///< where weights and moments lie
  std::unique_ptr<Exchange> exchange_;
  std::optional<Array<float>> moves_;  ///< of all shares, one behind the other
  std::vector<size_t> firsts_;         ///< where those of each begin
};

}  // namespace trireme
