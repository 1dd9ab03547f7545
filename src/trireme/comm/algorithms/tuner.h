// Chooses the all-reduce algorithm for a size and a world, from what the cluster file says about costs.
#pragma once

#include <optional>
#include <string>

#include "trireme/comm/algorithms/algorithm.h"
#include "trireme/comm/algorithms/cost_model.h"

namespace trireme {

/// A value. All ranks must hold the same one: rank 0's travels to the others when they join.
class Tuner {
 public:
  struct Situation {
    int ranks = 1;
    bool one_host = true;       ///< all ranks share memory
    int ranks_per_host = 1;     ///< of the fullest host
    bool hosts_aligned = true;  ///< two-level keeps the order
    bool ordered = true;
  };

  Tuner() : Tuner(ClusterFile::defaults(), "tcp") {}
  /// `remote` is the transport between hosts.
  Tuner(const ClusterFile& cluster, std::string remote);

  /// The cheapest algorithm that keeps the order where that is asked for; TRIREME_ALGORITHM overrides.
  Algorithm choose(size_t num_bytes, const Situation& situation) const;
  /// The same for ranks that share memory, where the size does not matter: quick enough for every call.
  Algorithm choose_on_one_host(int ranks, bool ordered) const;
  double predict_us(Algorithm algorithm, size_t num_bytes, const Situation& situation) const;
  bool possible(Algorithm algorithm, const Situation& situation) const;

  std::string serialize() const;
  /// Throws Error when the text is not from serialize().
  static Tuner parse(const std::string& text);

 private:
  bool is_forced(const Situation& situation) const;

  TransportCost remote_, local_;
  std::optional<Algorithm> forced_;
};

}  // namespace trireme
