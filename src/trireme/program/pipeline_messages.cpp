#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/index.h"
#include "trireme/program/pipeline_parts.h"
#include "trireme/program/schedules/play.h"

namespace trireme {
namespace {

constexpr size_t kNowhere = std::numeric_limits<size_t>::max();

std::vector<Instruction> with_peers(const Schedule& schedule, int rank) {
  std::vector<Instruction> list = schedule.ranks[at(rank)];
  for (Instruction& i : list) {
    if (!is_send(i.op) && !is_receive(i.op)) continue;
    const int other = i.stage + (i.op == OpCode::kSendActivation || i.op == OpCode::kRecvGradient ? 1 : -1);
    const int peer = other < 0 || other >= schedule.num_stages() ? rank : schedule.rank_of_stage[at(other)];
    if (peer == rank) {
      throw UsageError(fmt::format("rank {}, {}: there is nobody at the other end", rank, i.to_string()),
                       "stages of one rank, and the ends of the pipeline, exchange no messages");
    }
    i.peer = peer - rank;
  }
  return list;
}

}  // namespace

Messages::Messages(const Schedule& schedule)
    : schedule_(schedule), flows_(schedule.ranks.size(), schedule.rank_of_stage, schedule.num_micro_batches) {
  if (schedule.has_messages()) return;
  end_ = play_orders(schedule.ranks, schedule.rank_of_stage, schedule.num_micro_batches,
                     StageTimes::equal(schedule.num_stages(), 1, 1, 1, 0))
             .end;
  used_at_.resize(flows_.num_messages(), kNowhere);
  received_.resize(end_.size(), std::vector<std::vector<Receive>>(end_.size()));
  for (size_t rank = 0; rank < end_.size(); ++rank) {
    const std::vector<Instruction>& order = schedule.ranks[rank];
    for (size_t i = 0; i < order.size(); ++i) {
      const auto [input, output] = flows_.dataflow_of(order[i]);
      if (input) used_at_[input.number] = i;
      if (!output.travels) continue;
      const int to = schedule.rank_of_stage[at(output.to)];
      received_[at(to)][rank].push_back(
          {{.op = order[i].op == OpCode::kForward ? OpCode::kRecvActivation : OpCode::kRecvGradient,
            .stage = output.to,
            .micro_batch = order[i].micro_batch,
            .peer = static_cast<int>(rank) - to},
           output.number,
           end_[rank][i]});
    }
  }
}

std::vector<Instruction> Messages::of(int rank, int receive_ahead) const {
  if (end_.empty()) return with_peers(schedule_, rank);
  const std::vector<Instruction>& order = schedule_.ranks[at(rank)];
  const std::vector<double>& end = end_[at(rank)];
  const size_t ahead = at(std::max(receive_ahead, 1));
  std::vector<std::vector<Instruction>> posted_before(order.size());
  for (size_t sender = 0; sender < end_.size(); ++sender) {
    const std::vector<Receive>& receives = received_[at(rank)][sender];
    std::vector<size_t> use(receives.size());
    for (size_t i = 0; i < receives.size(); ++i) {
      use[i] = used_at_[receives[i].number];
      if (use[i] == kNowhere) {
        throw UsageError(fmt::format("rank {} computes nothing from what rank {} sends it: {}", rank, sender,
                                     receives[i].instruction.to_string()),
                         "each stage needs a forward and a backward pass of each micro-batch");
      }
    }
    // Latest post: before the first use of the message, or of a later one of the channel.
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
    const PassResult output = flows_.dataflow_of(order[i]).output;
    if (!output.travels) continue;
    list.push_back({.op = order[i].op == OpCode::kForward ? OpCode::kSendActivation : OpCode::kSendGradient,
                    .stage = order[i].stage,
                    .micro_batch = order[i].micro_batch,
                    .peer = schedule_.rank_of_stage[at(output.to)] - rank});
  }
  return list;
}

}  // namespace trireme
