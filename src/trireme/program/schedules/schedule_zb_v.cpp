// [Note: ZB-V]
// Rank r of k holds stages r and 2k-1-r. Rank 0 has both the input and the loss: it starts a micro-batch's backward
// pass right after the last forward pass. A rank holds at most 2k stage activations, each half of its part of a
// micro-batch: as much memory as 1F1B's k. Several orders are tried, and the cheapest one is kept.
//
// The authors' order is for equally long forward, backward and weight gradients, and has no bubble then. For other
// times, the pipeline is simulated greedily: a free rank takes the first ready computation in a list of preferences;
// weight gradients, which can always be delayed, fill the gaps. One place is reserved for the second stage, so that the
// oldest micro-batch never gets stuck.
#include <algorithm>
#include <array>
#include <limits>
#include <queue>

#include "trireme/base/units.h"
#include "trireme/program/schedules/play.h"
#include "trireme/program/schedules/schedule.h"

namespace trireme {
namespace {

enum Choice { kForwardDown, kForwardUp, kBackwardDown, kBackwardUp, kWeightDown, kWeightUp };
using Preferences = std::array<Choice, 6>;

constexpr Preferences kLists[] = {
    {kBackwardUp, kBackwardDown, kForwardUp, kForwardDown, kWeightUp, kWeightDown},
    {kBackwardDown, kBackwardUp, kForwardUp, kForwardDown, kWeightUp, kWeightDown},
    {kForwardUp, kBackwardUp, kBackwardDown, kForwardDown, kWeightDown, kWeightUp},
    {kForwardUp, kBackwardDown, kBackwardUp, kForwardDown, kWeightDown, kWeightUp},
};

class Greedy {
 public:
  Greedy(int num_ranks, int count, const StageTimes& times, const Preferences& preferences, bool reserve)
      : num_ranks_(num_ranks),
        num_stages_(2 * num_ranks),
        count_(count),
        times_(times),
        preferences_(preferences),
        reserve_(reserve),
        rank_of_stage_(place_in_v(num_ranks)),
        next_(static_cast<size_t>(num_stages_)),
        forward_end_(size_t(num_stages_), std::vector<double>(size_t(count), kNever)),
        backward_end_(forward_end_),
        free_at_(size_t(num_ranks)),
        live_(size_t(num_ranks)),
        promised_(size_t(num_ranks)),
        orders_(size_t(num_ranks)) {}

  std::vector<std::vector<Instruction>> run() {
    size_t left = static_cast<size_t>(num_stages_) * static_cast<size_t>(count_) * 3;
    std::priority_queue<double, std::vector<double>, std::greater<>> events;
    events.push(0);
    while (left > 0) {
      now_ = events.top();
      while (!events.empty() && events.top() == now_) events.pop();
      for (int rank = 0; rank < num_ranks_; ++rank) {
        if (free_at_[size_t(rank)] > now_ || !take(rank)) continue;
        --left;
        events.push(free_at_[size_t(rank)]);
        events.push(free_at_[size_t(rank)] + message_);
      }
    }
    return std::move(orders_);
  }

 private:
  struct Next {
    int forward = 0, backward = 0, weight = 0;
  };

  double message(int from, int to) const {
    return rank_of_stage_[size_t(from)] == rank_of_stage_[size_t(to)] ? 0 : times_.comm[size_t(from)];
  }

  bool forward_ready(int stage) const {
    const int m = next_[size_t(stage)].forward;
    if (m == count_) return false;
    const size_t rank = size_t(rank_of_stage_[size_t(stage)]);
    const int most = std::max(2 * num_ranks_, 3);
    const bool down = stage < num_ranks_;
    if (reserve_ ? down && live_[rank] + promised_[rank] + 2 > most : live_[rank] + 1 > most - (down ? 1 : 0)) {
      return false;
    }
    return stage == 0 || forward_end_[size_t(stage - 1)][size_t(m)] + message(stage - 1, stage) <= now_;
  }

  bool backward_ready(int stage) const {
    const int m = next_[size_t(stage)].backward;
    if (m == count_ || forward_end_[size_t(stage)][size_t(m)] > now_) return false;
    return stage == num_stages_ - 1 || backward_end_[size_t(stage + 1)][size_t(m)] + message(stage + 1, stage) <= now_;
  }

  /// Starts the next computation of a free rank; returns false if none is ready.
  bool take(int rank) {
    for (const Choice choice : preferences_) {
      const bool down = choice == kForwardDown || choice == kBackwardDown || choice == kWeightDown;
      const int stage = down ? rank : num_stages_ - 1 - rank;
      Next& next = next_[size_t(stage)];
      if (choice == kForwardDown || choice == kForwardUp) {
        if (!forward_ready(stage)) continue;
        ++live_[size_t(rank)];
        promised_[size_t(rank)] += down ? 1 : -1;
        start(OpCode::kForward, rank, stage, next.forward, times_.forward, &forward_end_);
        return true;
      }
      if (choice == kBackwardDown || choice == kBackwardUp) {
        if (!backward_ready(stage)) continue;
        start(OpCode::kBackwardInput, rank, stage, next.backward, times_.backward, &backward_end_);
        return true;
      }
      if (next.weight == next.backward) continue;
      --live_[size_t(rank)];
      start(OpCode::kWeightGrad, rank, stage, next.weight, times_.weight, nullptr);
      return true;
    }
    return false;
  }

  void start(OpCode op, int rank, int stage, int& number, const std::vector<double>& times,
             std::vector<std::vector<double>>* ends) {
    const double time = std::max(times[size_t(stage)], 1e-9);  // keeps time advancing if a time is 0
    free_at_[size_t(rank)] = now_ + time;
    message_ = times_.comm[size_t(stage)];
    if (ends != nullptr) (*ends)[size_t(stage)][size_t(number)] = now_ + time;
    orders_[size_t(rank)].push_back({.op = op, .stage = stage, .micro_batch = number++});
  }

  const int num_ranks_, num_stages_, count_;
  const StageTimes& times_;
  const Preferences& preferences_;
  const bool reserve_;  ///< reserve a place for the second stage at each first forward pass: slower, but never stuck
  const std::vector<int> rank_of_stage_;
  std::vector<Next> next_;  ///< per stage: next micro-batch
  std::vector<std::vector<double>> forward_end_, backward_end_;
  std::vector<double> free_at_;
  std::vector<int> live_, promised_;
  std::vector<std::vector<Instruction>> orders_;
  double now_ = 0, message_ = 0;
};

/// The authors' order. It needs at least 2k-1 micro-batches; with fewer, the missing ones are left out.
class PublishedOrder {
 public:
  PublishedOrder(int rank, int num_ranks, int count)
      : down_{.stage = rank}, up_{.stage = 2 * num_ranks - 1 - rank}, count_(count) {
    const int planned = std::max(count, 2 * num_ranks - 1), to_come = num_ranks - rank;
    for (int i = 0; i < 2 * to_come - 1; ++i) forward(down_);
    for (int i = 0; i < rank; ++i) {
      forward(up_);
      forward(down_);
    }
    for (int i = 0; i < to_come; ++i) {
      forward(up_);
      backward(up_);
      weight(up_);
    }
    while (up_.forward < planned) {
      if (down_.forward < planned) forward(down_);
      backward(down_);
      weight(down_);
      forward(up_);
      backward(up_);
      weight(up_);
    }
    for (int i = 0; i < rank; ++i) {
      backward(down_);
      backward(up_);
    }
    for (int i = 0; i < to_come; ++i) {
      backward(down_);
      weight(down_);
    }
    while (up_.weight < planned) weight(up_);
    while (down_.weight < planned) weight(down_);
  }

  std::vector<Instruction> order;

 private:
  struct Stage {
    int stage = 0, forward = 0, backward = 0, weight = 0;
  };
  void forward(Stage& stage) { put(OpCode::kForward, stage.stage, stage.forward++); }
  void backward(Stage& stage) { put(OpCode::kBackwardInput, stage.stage, stage.backward++); }
  void weight(Stage& stage) { put(OpCode::kWeightGrad, stage.stage, stage.weight++); }
  void put(OpCode op, int stage, int micro_batch) {
    if (micro_batch < count_) order.push_back({.op = op, .stage = stage, .micro_batch = micro_batch});
  }

  Stage down_, up_;
  const int count_;
};

}  // namespace

std::vector<std::vector<Instruction>> orders_zero_bubble_v(int num_ranks, int num_micro_batches,
                                                           const StageTimes& times) {
  double best = std::numeric_limits<double>::infinity();
  std::vector<std::vector<Instruction>> orders;
  const auto consider = [&](std::vector<std::vector<Instruction>> found) {
    const double cost = play_orders(found, place_in_v(num_ranks), num_micro_batches, times).cost;
    if (cost >= best) return;
    best = cost;
    orders = std::move(found);
  };
  std::vector<std::vector<Instruction>> published;
  for (int rank = 0; rank < num_ranks; ++rank) {
    published.push_back(PublishedOrder(rank, num_ranks, num_micro_batches).order);
  }
  consider(std::move(published));
  for (const Preferences& preferences : kLists) {
    for (const bool reserve : {false, true}) {
      consider(Greedy(num_ranks, num_micro_batches, times, preferences, reserve).run());
    }
  }
  return orders;
}

}  // namespace trireme
