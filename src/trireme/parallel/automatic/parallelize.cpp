#include "trireme/parallel/automatic/parallelize.h"

#include <fmt/format.h>

#include <optional>

#include "trireme/base/error.h"
#include "trireme/base/units.h"
#include "trireme/observe/table.h"
#include "trireme/parallel/automatic/cut_module.h"
#include "trireme/parallel/automatic/operator_graph.h"
#include "trireme/parallel/data/broadcast.h"
#include "trireme/parallel/data/same_on_all_ranks.h"
#include "trireme/parallel/pipeline/pipeline.h"
#include "trireme/tensor/random_scope.h"

namespace trireme {
namespace {

size_t at(int n) { return static_cast<size_t>(n); }

torch::Tensor samples_like(const torch::Tensor& batch, int64_t samples) {
  std::vector<int64_t> sizes = batch.sizes().vec();
  sizes[0] = samples;
  return torch::empty({1}, batch.options()).expand(sizes);  // only sizes and type are read
}

void check_batch(const torch::Tensor& input, const torch::Tensor& target) {
  if (!input.defined() || !target.defined() || input.dim() == 0 || target.dim() == 0 ||
      input.size(0) != target.size(0) || input.size(0) == 0) {
    throw UsageError("input and target of a step must have as many samples as each other, and at least one",
                     "give the whole batch, along the first dimension, on every rank");
  }
}

}  // namespace

/// How the plan is run.
class Parallelized::Form {
 public:
  virtual ~Form() = default;
  virtual double step(const torch::Tensor& input, const torch::Tensor& target) = 0;
  virtual void gather() = 0;
};

/// Every operator on a mesh of all ranks, its inputs brought to where the plan has them.
class Parallelized::MeshForm : public Form {
 public:
  MeshForm(Parallelized& owner, CapturedGraph captured)
      : owner_(owner),
        plan_(owner.report_.plan),
        captured_(std::move(captured)),
        graph_(operator_graph(captured_, "captured")) {
    std::vector<Axis> axes;
    for (const int size : plan_.layout.mesh.sizes) axes.push_back({fmt::format("axis{}", axes.size()), size});
    mesh_ = DeviceMesh::make(owner.comm_, Mesh(axes));
    homes_.resize(captured_.values().size());
    for (size_t v = 0; v < homes_.size(); ++v) homes_[v] = home_of(static_cast<int>(v));
    scatter();
  }

  double step(const torch::Tensor& input, const torch::Tensor& target) override {
    if (!scattered_) scatter();
    mesh_->seed(owner_.options_.seed + num_steps_++);
    const auto part = [&](size_t number, const torch::Tensor& batch) {
      return distribute(batch, mesh_, homes_[at(captured_.inputs()[number])]);
    };
    owner_.optimizer_.zero_grad();
    std::vector<at::Tensor> values = captured_.start({part(0, input), part(1, target)});
    captured_.run(0, captured_.num_calls(), values,
                  [&](int call, size_t tensor, const at::Tensor& value) { return place(call, tensor, value); });
    const torch::Tensor loss = full(values[at(captured_.output())]);
    values.clear();
    loss.backward();
    for (const CapturedValue& value : captured_.values()) {
      if (value.kind != CapturedValue::Kind::kParameter || !value.tensor.grad().defined()) continue;
      // Sums over the ranks that saw other samples end where the parameter lies.
      value.tensor.mutable_grad() = redistribute(value.tensor.grad(), placements_of(value.tensor));
    }
    owner_.optimizer_.step();
    return loss.item<double>();
  }

  void gather() override {
    if (!scattered_) return;
    const torch::NoGradGuard no_grad;
    for (const CapturedValue& value : captured_.values()) {
      if (!value.tensor.defined() || !is_mesh_tensor(value.tensor)) continue;
      torch::Tensor tensor = value.tensor;
      tensor.mutable_grad().reset();
      tensor.set_data(full(tensor).clone());
    }
    scattered_ = false;
  }

 private:
  void scatter() {
    const torch::NoGradGuard no_grad;
    for (size_t v = 0; v < homes_.size(); ++v) {
      torch::Tensor tensor = captured_.values()[v].tensor;
      const auto kind = captured_.values()[v].kind;
      if (kind != CapturedValue::Kind::kParameter && kind != CapturedValue::Kind::kBuffer) continue;
      tensor.mutable_grad().reset();
      tensor.set_data(distribute(tensor, mesh_, homes_[v]));
    }
    scattered_ = true;
  }

  /// Where a value lies that no call makes: as its first user reads it.
  std::vector<Placement> home_of(int value) const {
    std::vector<Placement> home(plan_.layout.mesh.sizes.size());
    for (int call = 0; call < captured_.num_calls(); ++call) {
      const std::vector<int>& inputs = captured_.call(call).inputs;
      const auto found = std::find(inputs.begin(), inputs.end(), value);
      if (found == inputs.end()) continue;
      const int op = graph_.operator_of[at(call)];
      if (op < 0) {  // turned: it lies as the turned one is read
        home = home_of(captured_.call(call).outputs[0]);
        for (Placement& p : home) {
          if (p.is_shard()) p = p.with_dim(1 - p.dim);
        }
        return home;
      }
      home = plan_.operators.strategies[at(op)].inputs[static_cast<size_t>(found - inputs.begin())];
      break;
    }
    for (Placement& p : home) {
      if (p.is_partial()) p = Placement::replicate();
    }
    return home;
  }

  at::Tensor place(int call, size_t tensor, const at::Tensor& value) const {
    const int op = graph_.operator_of[at(call)];
    if (op < 0 || !is_mesh_tensor(value)) return value;
    const CapturedCall& captured = captured_.call(call);
    const CapturedValue& known = captured_.value(captured.inputs[tensor]);
    const bool is_state = known.kind == CapturedValue::Kind::kBuffer;  // which is changed in place, where it lies
    return is_state ? value : redistribute(value, plan_.operators.strategies[at(op)].inputs[tensor]);
  }

  Parallelized& owner_;
  const GraphPlan& plan_;
  const CapturedGraph captured_;
  const OperatorGraph graph_;
  std::shared_ptr<DeviceMesh> mesh_;
  std::vector<std::vector<Placement>> homes_;  ///< of each value that enters
  bool scattered_ = false;
  uint64_t num_steps_ = 0;
};

/// Stages of layers, cut as planned; a replica is one Pipeline.
class Parallelized::PipelineForm : public Form {
 public:
  PipelineForm(Parallelized& owner, const torch::Tensor& input) : owner_(owner), layout_(owner.report_.plan.layout) {
    const int64_t samples = input.size(0) / (int64_t{layout_.replicas} * layout_.micro_batches);
    const CapturedGraph captured =
        capture(*owner.module_, {samples_like(input, samples)}, [&](const auto& in) { return owner.forward_(in[0]); });
    const OperatorGraph graph = operator_graph(captured, "captured");
    std::vector<int> firsts;
    const std::vector<LayerRange>& stages = owner.report_.plan.stages;
    for (size_t s = 0; s < stages.size(); ++s) {
      const auto& operators = owner.report_.plan.graph.operators;
      size_t op = 0;
      while (operators[op].layer < stages[s].first) ++op;
      // The planner's graph goes on with the loss; every stage begins before it.
      op = std::min(op, graph.call_of.size() - (stages.size() - s));
      // Behind the operator before, so that a turned parameter of the stage is turned in it.
      firsts.push_back(op == 0 ? 0 : graph.call_of[op - 1] + 1);
    }
    pipeline_ = std::make_unique<Pipeline>(owner.comm_, cut_captured(captured, firsts),
                                           PipelineOptions{.schedule = owner.options_.schedule,
                                                           .num_micro_batches = layout_.micro_batches,
                                                           .num_replicas = layout_.replicas,
                                                           .split = one_each(firsts.size()),
                                                           .seed = owner.options_.seed});
    owners_ = torch::full({static_cast<int64_t>(owner.module_->parameters().size())}, -1, torch::kInt64);
    const auto parameters = owner.module_->parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      for (const torch::Tensor& own : pipeline_->parameters()) {
        if (own.is_same(parameters[i])) owners_[static_cast<int64_t>(i)] = owner.comm_.rank();
      }
    }
    all_reduce(owner.comm_, owners_, ReduceOp::kMax);
  }

  double step(const torch::Tensor& input, const torch::Tensor& target) override {
    const auto part = [&](const torch::Tensor& batch) {
      const int64_t size = batch.size(0) / layout_.replicas;
      return batch.narrow(0, pipeline_->replica() * size, size);
    };
    const double loss = pipeline_->step(part(input), part(target), owner_.loss_);
    owner_.optimizer_.step();  // others' parameters have no gradient, and stay
    return loss;
  }

  void gather() override {
    const auto parameters = owner_.module_->parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      const int64_t from = owners_[static_cast<int64_t>(i)].item<int64_t>();
      if (from >= 0) broadcast(owner_.comm_, parameters[i].detach(), static_cast<int>(from));
    }
  }

 private:
  static std::string one_each(size_t count) {
    std::string text = "1";
    for (size_t i = 1; i < count; ++i) text += ",1";
    return text;
  }

  Parallelized& owner_;
  const GraphLayout layout_;
  std::unique_ptr<Pipeline> pipeline_;
  torch::Tensor owners_;  ///< of each parameter: the last rank that trains it
};

Parallelized::Parallelized(Communicator& comm, std::shared_ptr<torch::nn::Module> module, Forward forward, Loss loss,
                           torch::optim::Optimizer& optimizer, ParallelizeOptions options)
    : comm_(comm),
      module_(std::move(module)),
      forward_(std::move(forward)),
      loss_(std::move(loss)),
      optimizer_(optimizer),
      options_(std::move(options)) {
  if (options_.plan != "auto") graph_layout_from(options_.plan, comm.size());
  for (const auto& item : module_->named_parameters()) {
    if (!is_mesh_tensor(item.value())) continue;
    throw UsageError(fmt::format("{} lies on a mesh already", item.key()),
                     "parallelize a module once, or gather() what has laid it out");
  }
  broadcast_parameters(comm_, *module_);
}

Parallelized::~Parallelized() = default;

void Parallelized::prepare(const torch::Tensor& input, const torch::Tensor& target) {
  std::vector<std::string> lines = {
      trireme::describe("the input", input), trireme::describe("the target", target),
      fmt::format("plan {}, schedule {}, seed {}", options_.plan, options_.schedule, options_.seed)};
  check_same_on_all_ranks(comm_, "the step", lines, "give every rank the whole batch, and the same options");
  std::optional<CapturedGraph> whole;  // of the batch, which a mesh runs as it was planned
  const auto graph_of = [&](int64_t samples) {
    CapturedGraph captured = capture(*module_, {samples_like(input, samples), samples_like(target, samples)},
                                     [&](const auto& in) { return loss_(forward_(in[0]), in[1]); });
    Graph graph = operator_graph(captured, "the module").graph;
    if (samples == input.size(0)) whole = std::move(captured);
    return graph;
  };
  const Cluster cluster = options_.cluster.empty() ? cluster_at_hand(input.is_cuda() ? "h100-80gb" : "laptop")
                                                   : find_cluster(options_.cluster);
  report_ = plan_graph(graph_of, input.size(0), cluster, comm_.size(),
                       {.layout = options_.plan, .limit_bytes = options_.limit_bytes});
  if (plan().layout.is_pipeline()) {
    form_ = std::make_unique<PipelineForm>(*this, input);
  } else {
    form_ = std::make_unique<MeshForm>(*this, std::move(*whole));
  }
}

double Parallelized::step(const torch::Tensor& input, const torch::Tensor& target) {
  check_batch(input, target);
  if (!form_) prepare(input, target);
  return form_->step(input, target);
}

void Parallelized::gather() {
  if (form_) form_->gather();
}

std::string Parallelized::describe() const {
  if (!form_) return "nothing is planned before the first step\n";
  const GraphPlan& plan = report_.plan;
  std::string text =
      fmt::format("{}: {} a step predicted, {} a worker; {} operators, {} parameters\n", plan.layout.to_string(),
                  format_duration(plan.seconds), format_bytes(static_cast<uint64_t>(plan.bytes)),
                  plan.graph.operators.size(), static_cast<int64_t>(plan.graph.num_parameters()));
  if (plan.layout.is_pipeline()) {
    text += fmt::format("stages: layers {} of {}\n", partition_to_text(plan.stages), plan.graph.num_layers);
  } else {
    Table table({"parameter", "lies"});
    for (const auto& [name, placement] : placements_of(plan.graph, plan.operators, {0, plan.graph.num_layers})) {
      table.add_row({name, placement});
    }
    text += table.to_text({.indent = 2});
  }
  for (size_t i = 0; i < report_.others.size() && i < 3; ++i) {
    text += fmt::format("instead: {}, {} a step\n", report_.others[i].layout.to_string(),
                        format_duration(report_.others[i].seconds));
  }
  return text;
}

}  // namespace trireme
