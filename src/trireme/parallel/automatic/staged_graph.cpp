#include "trireme/parallel/automatic/staged_graph.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/index.h"
#include "trireme/layout/resharding.h"

namespace trireme {
namespace {

bool has(const std::vector<int>& list, int value) { return std::find(list.begin(), list.end(), value) != list.end(); }

std::vector<Placement> turned(std::vector<Placement> placements) {
  for (Placement& p : placements) {
    if (p.is_shard()) p = p.with_dim(1 - p.dim);
  }
  return placements;
}

/// Finishes partial sums: reduce-scattered along a dim that can be cut evenly, else on every rank.
std::vector<Placement> finished(std::vector<Placement> placements, const std::vector<int>& axis_sizes,
                                const std::vector<int64_t>& sizes) {
  for (size_t axis = 0; axis < placements.size(); ++axis) {
    if (!placements[axis].is_partial()) continue;
    placements[axis] = Placement::replicate();
    const auto cut = [&](const Placement& p) { return p.is_shard(); };
    if (std::any_of(placements.begin(), placements.end(), cut)) continue;
    for (size_t dim = 0; dim < sizes.size(); ++dim) {
      if (sizes[dim] % axis_sizes[axis] != 0) continue;
      placements[axis] = Placement::shard(static_cast<int>(dim));
      break;
    }
  }
  return placements;
}

}  // namespace

StagedGraph::StagedGraph(CapturedGraph captured, const GraphPlan& plan)
    : captured_(std::move(captured)),
      graph_(operator_graph(captured_, "captured")),
      strategies_(plan.operators.strategies) {
  const std::vector<GraphOperator>& operators = plan.graph.operators;
  if (operators.size() != graph_.graph.operators.size()) {
    throw Error(fmt::format("the module computes with {} operators, and was planned with {}",
                            graph_.graph.operators.size(), operators.size()),
                "let forward() compute the same whenever it is called with the same sizes");
  }
  int rank = 0;
  for (int s = 0; s < plan.layout.num_stages(); ++s) {
    size_t op = 0;
    while (operators[op].layer < plan.stages[at(s)].first) ++op;
    // Right after the previous operator, so that the transpose of a stage's parameter belongs to the stage.
    const int first = op == 0 ? 0 : graph_.call_of[op - 1] + 1;
    if (s > 0) stages_.back().last_call = first;
    stages_.push_back({first, captured_.num_calls(), rank, plan.layout.meshes[at(s)]});
    rank += stages_.back().mesh.num_devices();
  }
}

int StagedGraph::stage_of_rank(int rank) const {
  int stage = num_stages() - 1;
  while (stages_[at(stage)].first_rank > rank) --stage;
  return stage;
}

std::vector<int> StagedGraph::entering(int stage) const {
  const int first = stages_[at(stage)].first_call;
  std::vector<int> values;
  for (int v = 0; v < static_cast<int>(captured_.values().size()); ++v) {
    const int producer = captured_.value(v).producer;
    if (producer >= 0 && producer < first && captured_.last_use(v) >= first) values.push_back(v);
  }
  return values;
}

std::vector<int> StagedGraph::readers(int value) const {
  std::vector<int> stages;
  for (int s = 0; s < num_stages(); ++s) {
    for (int call = stage(s).first_call; call < stage(s).last_call; ++call) {
      if (!has(captured_.call(call).inputs, value)) continue;
      stages.push_back(s);
      break;
    }
  }
  return stages;
}

bool StagedGraph::is_written(int stage, int value) const {
  for (int call = stages_[at(stage)].first_call; call < stages_[at(stage)].last_call; ++call) {
    if (has(captured_.call(call).written, value)) return true;
  }
  return false;
}

std::vector<Placement> StagedGraph::made(int stage, int value) const {
  const int call = captured_.value(value).producer, op = graph_.operator_of[at(call)];
  const std::vector<int>& outputs = captured_.call(call).outputs;
  if (op < 0) return turned(lies(stage, captured_.call(call).inputs[0]));
  size_t place = 0;  // among the outputs that are tensors
  for (const int output : outputs) {
    if (output == value) break;
    if (output >= 0) ++place;
  }
  return strategies_[at(op)].outputs[place];
}

std::vector<Placement> StagedGraph::lies(int stage, int value) const {
  const GraphStage& here = stages_[at(stage)];
  const CapturedValue& known = captured_.value(value);
  if (known.producer >= here.first_call && known.producer < here.last_call) {
    return finished(made(stage, value), here.mesh.sizes, known.sizes);
  }
  const std::vector<Placement> whole(here.mesh.sizes.size());
  for (int call = here.first_call; call < here.last_call; ++call) {
    const std::vector<int>& inputs = captured_.call(call).inputs;
    const auto found = std::find(inputs.begin(), inputs.end(), value);
    if (found == inputs.end()) continue;
    const int op = graph_.operator_of[at(call)];
    if (op < 0) {  // placed as its transpose is read
      const int result = captured_.call(call).outputs[0];
      for (int reader = call + 1; reader < here.last_call; ++reader) {
        const std::vector<int>& read = captured_.call(reader).inputs;
        const auto place = std::find(read.begin(), read.end(), result);
        if (place == read.end()) continue;
        auto placements = *wanted(reader, static_cast<size_t>(place - read.begin()));
        for (Placement& p : placements) {
          if (p.is_partial()) p = Placement::replicate();
        }
        return turned(placements);
      }
      return whole;
    }
    std::vector<Placement> placements = strategies_[at(op)].inputs[static_cast<size_t>(found - inputs.begin())];
    for (Placement& p : placements) {
      if (p.is_partial()) p = Placement::replicate();
    }
    return placements;
  }
  return spread({here.mesh.sizes, whole}, known.sizes);  // only passed on
}

const std::vector<Placement>* StagedGraph::wanted(int call, size_t tensor) const {
  const int op = graph_.operator_of[at(call)];
  return op < 0 ? nullptr : &strategies_[at(op)].inputs[tensor];
}

}  // namespace trireme
