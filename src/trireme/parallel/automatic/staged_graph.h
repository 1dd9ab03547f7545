// A captured module cut into the stages of its plan: the calls of each stage, its ranks, and the placements of values
// there.
//
// An immutable value, the same on all ranks; no tensors of the module are changed.
#pragma once

#include "trireme/parallel/automatic/operator_graph.h"
#include "trireme/plan/graph/graph_plan.h"
#include "trireme/tensor/capture.h"

namespace trireme {

struct GraphStage {
  int first_call = 0, last_call = 0;  ///< calls of the stage: [first_call, last_call)
  int first_rank = 0;
  StageMesh mesh;
};

class StagedGraph {
 public:
  /// `captured`: module and loss for one micro-batch. Throws Error if its operators are not the planned ones.
  StagedGraph(CapturedGraph captured, const GraphPlan& plan);

  const CapturedGraph& captured() const { return captured_; }
  const std::vector<GraphStage>& stages() const { return stages_; }
  int num_stages() const { return static_cast<int>(stages_.size()); }
  const GraphStage& stage(int index) const { return stages_[static_cast<size_t>(index)]; }
  int stage_of_rank(int rank) const;

  /// Results of earlier stages that this one or a later one reads. Inputs are not included: all ranks have the batch.
  std::vector<int> entering(int stage) const;
  /// Stages that read a value, in increasing order.
  std::vector<int> readers(int value) const;
  /// Whether a call of the stage changes the value in place.
  bool is_written(int stage, int value) const;

  /// Placements of a value in a stage that makes it, reads it or passes it on: those it is made with, else those of its
  /// first reader. Never partial.
  std::vector<Placement> lies(int stage, int value) const;
  /// Placements that a call wants for a tensor; null: any.
  const std::vector<Placement>* wanted(int call, size_t tensor) const;

 private:
  std::vector<Placement> made(int stage, int value) const;

  CapturedGraph captured_;
  OperatorGraph graph_;
  std::vector<OperatorStrategy> strategies_;
  std::vector<GraphStage> stages_;
};

}  // namespace trireme
