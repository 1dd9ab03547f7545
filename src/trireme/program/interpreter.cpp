#include "trireme/program/interpreter.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/text.h"

namespace trireme {

ProgramPlaces::ProgramPlaces(const Program& any)
    : num_ranks_(at(any.num_pipeline_ranks)), num_replicas_(at(any.num_ranks)) {
  if (any.replicas_of_rank.empty()) return;
  first_of_rank_ = {0};
  for (const int replicas : any.replicas_of_rank) first_of_rank_.push_back(first_of_rank_.back() + at(replicas));
}

size_t ProgramPlaces::count() const {
  return first_of_rank_.empty() ? num_ranks_ * num_replicas_ : first_of_rank_.back();
}

int ProgramPlaces::rank_of(size_t number) const {
  if (first_of_rank_.empty()) return static_cast<int>(number % num_ranks_);
  return static_cast<int>(std::ranges::upper_bound(first_of_rank_, number) - first_of_rank_.begin()) - 1;
}

int ProgramPlaces::replica_of(size_t number) const {
  return static_cast<int>(first_of_rank_.empty() ? number / num_ranks_ : number - first_of_rank_[at(rank_of(number))]);
}

size_t ProgramPlaces::number_of(int rank, int replica) const {
  return first_of_rank_.empty() ? at(replica) * num_ranks_ + at(rank) : first_of_rank_[at(rank)] + at(replica);
}

Interpreter::Interpreter(const std::vector<Program>& programs, const WaitRules& rules)
    : programs_(programs),
      rank_of_stage_(programs.front().rank_of_stage),
      num_micro_batches_(at(programs.front().num_micro_batches)),
      rules_(rules),
      sends_at_once_(false),
      has_replicas_(programs.size() > at(programs.front().num_pipeline_ranks)),
      ranks_(programs.size()),
      replicas_of_(at(programs.front().num_pipeline_ranks)),
      there_(2 * rank_of_stage_.size() * num_micro_batches_) {
  for (const Program& program : programs) ++replicas_of_[at(program.pipeline_rank)].count;
}

Interpreter::Interpreter(size_t num_ranks, const std::vector<int>& rank_of_stage, int num_micro_batches)
    : rank_of_stage_(rank_of_stage),
      num_micro_batches_(at(num_micro_batches)),
      sends_at_once_(true),
      has_replicas_(false),
      ranks_(num_ranks),
      there_(2 * rank_of_stage.size() * num_micro_batches_) {}

size_t Interpreter::other_end(size_t rank, const Instruction& message) const {
  const Program& program = programs_[rank];
  if (program.replicas_of_rank.empty()) return at(static_cast<int>(rank) + message.peer);
  const int other = program.pipeline_rank + message.peer;
  return ProgramPlaces(program).number_of(other, program.replica_with(message.micro_batch, other));
}

bool Interpreter::is_channel_full(size_t rank, const Instruction& send) const {
  const auto channel = unreceived_.find({rank, other_end(rank, send)});
  return (channel == unreceived_.end() ? 0 : channel->second) >= *rules_.sends_under_way;
}

void Interpreter::come_to_collective(size_t rank) {
  Rank& own = ranks_[rank];
  std::vector<size_t>& came = replicas_of_[at(programs_[rank].pipeline_rank)].came;
  if (came.size() == own.collectives) came.push_back(0);
  came[own.collectives] += !std::exchange(own.has_come, true);
}

bool Interpreter::waits_at_collective(size_t rank) {
  const Replicas& replicas = replicas_of_[at(programs_[rank].pipeline_rank)];
  come_to_collective(rank);
  return replicas.came[ranks_[rank].collectives] < replicas.count;
}

bool Interpreter::waits_for_sums(size_t rank) const {
  const size_t started = ranks_[rank].collectives;
  const Replicas& replicas = replicas_of_[at(programs_[rank].pipeline_rank)];
  return started > 0 && replicas.came[started - 1] < replicas.count;
}

bool Interpreter::waits_for_tied(size_t rank, const Instruction& receive) const {
  if (receive.peer == 0) return false;
  const OpCode send = receive.op == OpCode::kAddTiedGradient ? OpCode::kSendTiedGradient : OpCode::kSendTiedWeight;
  const auto sent = tied_sent_.find({send, receive.tied});
  const int other = programs_[rank].pipeline_rank + receive.peer;
  if (other < 0 || at(other) >= replicas_of_.size()) return false;  // for the checker to report
  const size_t replicas = replicas_of_[at(other)].count;
  return (sent == tied_sent_.end() ? 0 : sent->second) < replicas;
}

/// If stages differ in their replicas, all ranks form one model.
bool Interpreter::waits_for_norm(size_t rank) {
  const Program& program = programs_[rank];
  const bool alike = program.replicas_of_rank.empty();
  const int model = alike ? ProgramPlaces(program).replica_of(rank) : 0;
  size_t& came = at_norm_[model];
  came += !std::exchange(ranks_[rank].at_norm, true);
  return came < (alike ? at(program.num_pipeline_ranks) : programs_.size());
}

std::string Interpreter::reason(size_t rank) const {
  const Instruction& i = *ranks_[rank].stands_at;
  if (receives_tied(i.op)) {
    return fmt::format("tied weight {}, which rank {} of the pipeline has not sent", i.tied,
                       programs_[rank].pipeline_rank + i.peer);
  }
  if (i.op == OpCode::kNorm) return "the other ranks of the model to come to their norm";
  if (is_send(i.op)) return fmt::format("rank {} to receive what was sent before it", other_end(rank, i));
  const PassResult input = dataflow_of(i).input;
  if (!is_compute(i.op) || !input) return "the sums of the other replicas";
  Instruction receive = i;
  receive.peer = rank_of_stage_[at(input.from)] - programs_[rank].pipeline_rank;
  return fmt::format("{}, which rank {} has not sent",
                     PipelineMessage{input.from > input.to, i.stage, i.micro_batch}.to_string(),
                     other_end(rank, receive));
}

void Interpreter::require_ends() const {
  std::vector<std::string> waiting;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    const Instruction* instruction = ranks_[rank].stands_at;
    if (instruction == nullptr) continue;
    waiting.push_back(fmt::format("rank {} waits at instruction {}, {}, for {}", rank,
                                  instruction - programs_[rank].instructions.data(), instruction->to_string(),
                                  reason(rank)));
  }
  if (!waiting.empty()) throw Error(fmt::format("the program would hang: {}", join(waiting, "\n  ")));
}

}  // namespace trireme
