#include "trireme/comm/algorithms/tuner.h"

#include <fmt/format.h>

#include <cstdlib>
#include <sstream>

#include "trireme/base/error.h"
#include "trireme/comm/algorithms/algorithms.h"
#include "trireme/comm/host/board.h"

namespace trireme {

Tuner::Tuner(const ClusterFile& cluster, std::string remote)
    : remote_(cluster.cost(remote, 2)), local_(cluster.cost("shared memory", 2)) {
  remote_.transport = std::move(remote);
  if (const char* name = std::getenv("TRIREME_ALGORITHM"); name != nullptr && *name != '\0') {
    forced_ = algorithm_named(name);
    if (forced_ == Algorithm::kAuto) forced_.reset();
  }
}

bool Tuner::possible(Algorithm algorithm, const Situation& situation) const {
  if (algorithm == Algorithm::kAuto) return false;
  if (algorithm == Algorithm::kInPlace && !situation.one_host) return false;
  if (!situation.ordered) return true;
  if (algorithm == Algorithm::kTwoLevel) return situation.hosts_aligned;
  return keeps_order(algorithm, situation.ranks);
}

bool Tuner::is_forced(const Situation& situation) const {
  if (!forced_ || !possible(*forced_, situation)) return false;
  // The groups of two levels are not taken apart once more, nor is a single host.
  return *forced_ != Algorithm::kTwoLevel || (!situation.one_host && situation.ranks_per_host > 1);
}

double Tuner::predict_us(Algorithm algorithm, size_t num_bytes, const Situation& situation) const {
  const TransportCost& cost = situation.one_host ? local_ : remote_;
  return trireme::predict_us(algorithm, situation.ranks, num_bytes, cost, &local_, situation.ranks_per_host);
}

Algorithm Tuner::choose_on_one_host(int ranks, bool ordered) const {
  if (!forced_) [[likely]]
    return Algorithm::kInPlace;
  const Situation situation{ranks, true, ranks, true, ordered};
  return is_forced(situation) ? *forced_ : Algorithm::kInPlace;
}

Algorithm Tuner::choose(size_t num_bytes, const Situation& situation) const {
  if (is_forced(situation)) return *forced_;
  if (situation.one_host) {
    // In place, every rank maps the memory of every other one: too much for very many ranks, unless the data fits on
    // the board.
    const bool few = situation.ranks <= 128 || num_bytes <= Board::stage_bytes(situation.ranks);
    return few ? Algorithm::kInPlace : Algorithm::kButterfly;
  }
  Algorithm best = Algorithm::kOrdered;
  double best_us = predict_us(best, num_bytes, situation);
  for (const Algorithm algorithm : all_algorithms()) {
    if (!possible(algorithm, situation)) continue;
    if (algorithm == Algorithm::kTwoLevel && situation.ranks_per_host < 2) continue;
    const double us = predict_us(algorithm, num_bytes, situation);
    if (us < best_us) {
      best = algorithm;
      best_us = us;
    }
  }
  return best;
}

std::string Tuner::serialize() const {
  std::string text;
  for (const TransportCost* cost : {&remote_, &local_}) {
    text += fmt::format("{} {} {} {} {} ", cost->link.latency_us, cost->link.us_per_byte, cost->reduce_us_per_byte,
                        cost->barrier_us, cost->copy_us_per_byte);
  }
  return text + fmt::format("{}", static_cast<int>(forced_.value_or(Algorithm::kAuto)));
}

Tuner Tuner::parse(const std::string& text) {
  Tuner tuner;
  std::istringstream in(text);
  for (TransportCost* cost : {&tuner.remote_, &tuner.local_}) {
    in >> cost->link.latency_us >> cost->link.us_per_byte >> cost->reduce_us_per_byte >> cost->barrier_us >>
        cost->copy_us_per_byte;
  }
  int forced = 0;
  in >> forced;
  if (in.fail() || forced < 0 || forced > static_cast<int>(Algorithm::kInPlace))
    throw Error("rank 0 sent a table of costs that cannot be read");
  tuner.forced_.reset();
  if (forced != 0) tuner.forced_ = static_cast<Algorithm>(forced);
  return tuner;
}

}  // namespace trireme
