// Stages of one device each, cut as planned, run by a Pipeline with replicas.
#include <algorithm>

#include "trireme/parallel/automatic/cut_module.h"
#include "trireme/parallel/automatic/form.h"
#include "trireme/parallel/automatic/operator_graph.h"
#include "trireme/parallel/data/broadcast.h"
#include "trireme/parallel/pipeline/pipeline.h"

namespace trireme {
namespace {

std::string one_each(size_t count) {
  std::string text = "1";
  for (size_t i = 1; i < count; ++i) text += ",1";
  return text;
}

class PipelineForm : public ParallelizedForm {
 public:
  PipelineForm(const FormContext& context, const torch::Tensor& input) : context_(context) {
    const GraphLayout& layout = context.plan.layout;
    const int64_t samples = input.size(0) / (int64_t{layout.replicas} * layout.micro_batches);
    const CapturedGraph captured =
        capture(context.module, {samples_like(input, samples)}, [&](const auto& in) { return context.forward(in[0]); });
    const OperatorGraph graph = operator_graph(captured, "captured");
    std::vector<int> firsts;
    const Partition& stages = context.plan.stages;
    for (size_t s = 0; s < stages.size(); ++s) {
      const auto& operators = context.plan.graph.operators;
      size_t op = 0;
      while (operators[op].layer < stages[s].first) ++op;
      // The planner's graph also has the loss; every stage begins before it.
      op = std::min(op, graph.call_of.size() - (stages.size() - s));
      // Right after the previous operator, so that the transpose of a stage's parameter belongs to the stage.
      firsts.push_back(op == 0 ? 0 : graph.call_of[op - 1] + 1);
    }
    pipeline_ = std::make_unique<Pipeline>(context.comm, cut_captured(captured, firsts),
                                           PipelineOptions{.schedule = context.options.schedule,
                                                           .num_micro_batches = layout.micro_batches,
                                                           .num_replicas = layout.replicas,
                                                           .split = one_each(firsts.size()),
                                                           .recompute = context.plan.recompute,
                                                           .seed = context.options.seed});
    const auto parameters = context.module.parameters();
    owners_ = torch::full({static_cast<int64_t>(parameters.size())}, -1, torch::kInt64);
    for (size_t i = 0; i < parameters.size(); ++i) {
      for (const torch::Tensor& own : pipeline_->parameters()) {
        if (own.is_same(parameters[i])) owners_[static_cast<int64_t>(i)] = context.comm.rank();
      }
    }
    all_reduce(context.comm, owners_, ReduceOp::kMax);
  }

  double step(const torch::Tensor& input, const torch::Tensor& target) override {
    const auto part = [&](const torch::Tensor& batch) {
      const int64_t size = batch.size(0) / context_.plan.layout.replicas;
      return batch.narrow(0, pipeline_->replica() * size, size);
    };
    const double loss = pipeline_->step(part(input), part(target), context_.loss);
    context_.optimizer.step();  // parameters of other stages have no gradient, and stay unchanged
    return loss;
  }

  void gather() override {
    const auto parameters = context_.module.parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      const int64_t from = owners_[static_cast<int64_t>(i)].item<int64_t>();
      if (from >= 0) broadcast(context_.comm, parameters[i].detach(), static_cast<int>(from));
    }
  }

 private:
  const FormContext context_;
  std::unique_ptr<Pipeline> pipeline_;
  torch::Tensor owners_;  ///< last rank that trains each parameter; -1: none
};

}  // namespace

std::unique_ptr<ParallelizedForm> make_pipeline_form(const FormContext& context, const torch::Tensor& input) {
  return std::make_unique<PipelineForm>(context, input);
}

}  // namespace trireme
