#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/index.h"
#include "trireme/program/pipeline_parts.h"
#include "trireme/program/play.h"

namespace trireme {
namespace {

/// The rank that holds a stage; -1 beyond the ends of the pipeline.
int owner(const Schedule& schedule, int stage) {
  return stage < 0 || stage >= schedule.num_stages() ? -1 : schedule.rank_of_stage[at(stage)];
}

/// The rank that a computation on `rank` sends to; -1 where nobody else needs its result.
int goes_to(const Schedule& schedule, const Instruction& compute, int rank) {
  int to = -1;
  if (compute.op == OpCode::kForward) to = owner(schedule, compute.stage + 1);
  if (makes_input_gradient(compute.op)) to = owner(schedule, compute.stage - 1);
  return to == rank ? -1 : to;
}

std::vector<Instruction> with_peers(const Schedule& schedule, int rank) {
  std::vector<Instruction> list = schedule.ranks[at(rank)];
  for (Instruction& i : list) {
    if (!is_send(i.op) && !is_receive(i.op)) continue;
    const bool next = i.op == OpCode::kSendActivation || i.op == OpCode::kRecvGradient;
    const int peer = owner(schedule, i.stage + (next ? 1 : -1));
    if (peer < 0 || peer == rank) {
      throw UsageError(fmt::format("rank {}, {}: there is nobody at the other end", rank, i.to_string()),
                       "stages of one rank, and the ends of the pipeline, exchange no messages");
    }
    i.peer = peer - rank;
  }
  return list;
}

/// Where in a rank's order each input is used.
class Uses {
 public:
  Uses(const Schedule& schedule, int rank)
      : count_(at(schedule.num_micro_batches)), where_(2 * at(schedule.num_stages()) * count_, kNowhere) {
    const std::vector<Instruction>& list = schedule.ranks[at(rank)];
    for (size_t i = 0; i < list.size(); ++i) {
      if (list[i].op == OpCode::kForward) find(true, list[i].stage, list[i].micro_batch) = i;
      if (makes_input_gradient(list[i].op)) find(false, list[i].stage, list[i].micro_batch) = i;
    }
  }
  static constexpr size_t kNowhere = std::numeric_limits<size_t>::max();
  size_t& find(bool forward, int stage, int micro_batch) {
    return where_[(2 * at(stage) + (forward ? 0 : 1)) * count_ + at(micro_batch)];
  }

 private:
  size_t count_;
  std::vector<size_t> where_;
};

/// A message of one sender, as its receive, and when it would be sent.
struct Receive {
  Instruction instruction;
  double sent = 0;
};

/// In the order in which they are sent.
std::vector<Receive> received_from(const Schedule& schedule, int sender, int rank, const std::vector<double>& end) {
  std::vector<Receive> receives;
  const std::vector<Instruction>& order = schedule.ranks[at(sender)];
  for (size_t i = 0; i < order.size(); ++i) {
    if (goes_to(schedule, order[i], sender) != rank) continue;
    const bool forward = order[i].op == OpCode::kForward;
    receives.push_back({{.op = forward ? OpCode::kRecvActivation : OpCode::kRecvGradient,
                         .stage = order[i].stage + (forward ? 1 : -1),
                         .micro_batch = order[i].micro_batch,
                         .peer = sender - rank},
                        end[i]});
  }
  return receives;
}

}  // namespace

Messages::Messages(const Schedule& schedule) : schedule_(schedule) {
  if (schedule.has_messages()) return;
  end_ = play_orders(schedule.ranks, schedule.rank_of_stage, schedule.num_micro_batches,
                     StageTimes::equal(schedule.num_stages(), 1, 1, 1, 0))
             .end;
}

std::vector<Instruction> Messages::of(int rank, int receive_ahead) const {
  if (end_.empty()) return with_peers(schedule_, rank);
  const std::vector<Instruction>& order = schedule_.ranks[at(rank)];
  const std::vector<double>& end = end_[at(rank)];
  const size_t ahead = at(std::max(receive_ahead, 1));
  Uses uses(schedule_, rank);
  std::vector<std::vector<Instruction>> posted_before(order.size());
  for (int sender = 0; sender < schedule_.num_ranks; ++sender) {
    if (sender == rank) continue;
    const std::vector<Receive> receives = received_from(schedule_, sender, rank, end_[at(sender)]);
    std::vector<size_t> use(receives.size());
    for (size_t i = 0; i < receives.size(); ++i) {
      const Instruction& receive = receives[i].instruction;
      use[i] = uses.find(receive.op == OpCode::kRecvActivation, receive.stage, receive.micro_batch);
      if (use[i] == Uses::kNowhere) {
        throw UsageError(
            fmt::format("rank {} computes nothing from what rank {} sends it: {}", rank, sender, receive.to_string()),
            "each stage needs a forward and a backward pass of each micro-batch");
      }
    }
    // No later than the first use of it or of one that is sent after it.
    std::vector<size_t> latest = use;
    for (size_t i = latest.size(); i-- > 1;) latest[i - 1] = std::min(latest[i - 1], latest[i]);
    size_t before = 0;
    for (size_t i = 0; i < receives.size(); ++i) {
      const size_t soon_used = i < ahead ? 0 : use[i - ahead] + 1;
      const auto sent = static_cast<size_t>(std::lower_bound(end.begin(), end.end(), receives[i].sent) - end.begin());
      before = std::max(before, std::min({soon_used, sent, latest[i]}));
      posted_before[before].push_back(receives[i].instruction);
    }
  }
  std::vector<Instruction> list;
  for (size_t i = 0; i < order.size(); ++i) {
    list.insert(list.end(), posted_before[i].begin(), posted_before[i].end());
    list.push_back(order[i]);
    const int to = goes_to(schedule_, order[i], rank);
    if (to < 0) continue;
    list.push_back({.op = order[i].op == OpCode::kForward ? OpCode::kSendActivation : OpCode::kSendGradient,
                    .stage = order[i].stage,
                    .micro_batch = order[i].micro_batch,
                    .peer = to - rank});
  }
  return list;
}

}  // namespace trireme
