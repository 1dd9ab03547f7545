#include "trireme/program/schedules/play.h"

#include <algorithm>
#include <limits>

#include "trireme/base/index.h"
#include "trireme/base/units.h"

namespace trireme {
namespace {

class Play {
 public:
  Play(const std::vector<int>& rank_of_stage, int num_micro_batches, const StageTimes& times)
      : rank_of_stage_(rank_of_stage),
        times_(times),
        num_stages_(static_cast<int>(rank_of_stage.size())),
        count_(at(num_micro_batches)),
        done_(2 * rank_of_stage.size() * count_, kNever) {}

  /// When what a computation needs is there.
  double ready_at(const Instruction& i) {
    const bool forward = i.op == OpCode::kForward;
    if (!forward && !makes_input_gradient(i.op)) return 0;
    const int source = i.stage + (forward ? -1 : 1);
    if (source < 0 || source == num_stages_) return 0;
    const double message = rank_of_stage_[at(source)] == rank_of_stage_[at(i.stage)] ? 0 : times_.comm[at(source)];
    return done(forward, source, i.micro_batch) + message;
  }

  void finish(const Instruction& i, double now) {
    if (i.op == OpCode::kForward) done(true, i.stage, i.micro_batch) = now;
    if (makes_input_gradient(i.op)) done(false, i.stage, i.micro_batch) = now;
  }

 private:
  double& done(bool forward, int stage, int micro_batch) {
    return done_[(2 * at(stage) + (forward ? 0 : 1)) * count_ + at(micro_batch)];
  }

  const std::vector<int>& rank_of_stage_;
  const StageTimes& times_;
  const int num_stages_;
  const size_t count_;
  std::vector<double> done_;
};

}  // namespace

double time_of(const Instruction& instruction, const StageTimes& times) {
  const size_t stage = at(std::max(instruction.stage, 0));
  if (instruction.op == OpCode::kForward || instruction.op == OpCode::kRecompute) return times.forward[stage];
  return (makes_input_gradient(instruction.op) ? times.backward[stage] : 0) +
         (makes_weight_gradient(instruction.op) ? times.weight[stage] : 0);
}

PlayedOrders play_orders(const std::vector<std::vector<Instruction>>& orders, const std::vector<int>& rank_of_stage,
                         int num_micro_batches, const StageTimes& times) {
  Play play(rank_of_stage, num_micro_batches, times);
  PlayedOrders played;
  for (const std::vector<Instruction>& order : orders) played.end.emplace_back(order.size(), kNever);
  std::vector<size_t> next(orders.size());
  std::vector<double> now(orders.size()), first(orders.size());
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t rank = 0; rank < orders.size(); ++rank) {
      for (; next[rank] < orders[rank].size(); ++next[rank], moved = true) {
        const Instruction& instruction = orders[rank][next[rank]];
        const double start = std::max(now[rank], play.ready_at(instruction));
        if (start == kNever) break;
        if (next[rank] == 0) first[rank] = start;
        played.end[rank][next[rank]] = now[rank] = start + time_of(instruction, times);
        play.finish(instruction, now[rank]);
      }
    }
  }
  for (size_t rank = 0; rank < orders.size(); ++rank) {
    const double end = orders[rank].empty() ? 0 : played.end[rank].back();
    played.cost = std::max(played.cost, end - first[rank]);
  }
  return played;
}

}  // namespace trireme
