// A captured module cut into the stages of its plan: which calls each runs, on which ranks, and how values lie there.
//
// A value, the same on all ranks; nobody's tensors are touched.
#pragma once

#include "trireme/parallel/automatic/operator_graph.h"
#include "trireme/plan/graph/graph_plan.h"
#include "trireme/tensor/capture.h"

namespace trireme {

struct GraphStage {
  int first_call = 0, last_call = 0;  ///< the latter is the next one's first
  int first_rank = 0;
  StageMesh mesh;
};

class StagedGraph {
 public:
  /// `captured`: module and loss, of a micro-batch, as it was planned. Throws Error where it is another one.
  StagedGraph(CapturedGraph captured, const GraphPlan& plan);

  const CapturedGraph& captured() const { return captured_; }
  const std::vector<GraphStage>& stages() const { return stages_; }
  int num_stages() const { return static_cast<int>(stages_.size()); }
  const GraphStage& stage(int index) const { return stages_[static_cast<size_t>(index)]; }
  int stage_of_rank(int rank) const;

  /// Results of earlier stages that this one or a later one reads. Inputs are not among them: all ranks have the batch.
  std::vector<int> entering(int stage) const;
  /// Stages that read a value.
  std::vector<int> readers(int value) const;
  /// Whether a call of the stage changes the value in place.
  bool is_written(int stage, int value) const;

  /// How a value lies in a stage that makes or reads it, or hands it on: as it is made there, else as it is read first.
  /// No sums are left to finish.
  std::vector<Placement> lies(int stage, int value) const;
  /// How a call wants a tensor. None: as it is.
  const std::vector<Placement>* wanted(int call, size_t tensor) const;

 private:
  std::vector<Placement> made(int stage, int value) const;

  CapturedGraph captured_;
  OperatorGraph graph_;
  std::vector<OperatorStrategy> strategies_;
  std::vector<GraphStage> stages_;
};

}  // namespace trireme
