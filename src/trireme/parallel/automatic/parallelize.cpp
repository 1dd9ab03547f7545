#include "trireme/parallel/automatic/parallelize.h"

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/units.h"
#include "trireme/observe/append_file.h"
#include "trireme/observe/table.h"
#include "trireme/parallel/automatic/form.h"
#include "trireme/parallel/automatic/operator_graph.h"
#include "trireme/parallel/data/broadcast.h"
#include "trireme/parallel/data/same_on_all_ranks.h"
#include "trireme/tensor/mesh_tensor.h"

namespace trireme {
namespace {

constexpr uint64_t kMostPlanBytes = uint64_t{1} << 30;

void check_batch(const torch::Tensor& input, const torch::Tensor& target) {
  if (!input.defined() || !target.defined() || input.dim() == 0 || target.dim() == 0 ||
      input.size(0) != target.size(0) || input.size(0) == 0) {
    throw UsageError("input and target of a step must have as many samples as each other, and at least one",
                     "give the whole batch, along the first dimension, on every rank");
  }
}

/// Runs `work` on rank 0 and returns its result on all ranks. If it throws Error, all throw UsageError: `what`, then
/// its message.
std::string from_first_rank(Communicator& comm, const std::function<std::string()>& work, const std::string& what,
                            const std::string& cure) {
  std::string text, problem;
  if (comm.rank() == 0) {
    try {
      text = work();
    } catch (const Error& error) {
      problem = error.what();
    }
  }
  std::vector<int64_t> sizes = {static_cast<int64_t>(text.size()), static_cast<int64_t>(problem.size())};
  comm.broadcast(sizes, 0);
  for (std::string* each : {&text, &problem}) {
    each->resize(static_cast<size_t>(sizes[each == &problem]));
    if (!each->empty()) comm.broadcast(Data(each->data(), each->size(), DataType::kUInt8), 0);
  }
  if (!problem.empty()) throw UsageError(fmt::format("{}: {}", what, problem), cure);
  return text;
}

}  // namespace

torch::Tensor samples_like(const torch::Tensor& batch, int64_t samples) {
  std::vector<int64_t> sizes = batch.sizes().vec();
  sizes[0] = samples;
  return torch::empty({}, batch.options()).expand(sizes);  // only sizes and dtype are read
}

Parallelized::Parallelized(Communicator& comm, std::shared_ptr<torch::nn::Module> module, Forward forward, Loss loss,
                           torch::optim::Optimizer& optimizer, ParallelizeOptions options)
    : comm_(comm),
      module_(std::move(module)),
      forward_(std::move(forward)),
      loss_(std::move(loss)),
      optimizer_(optimizer),
      options_(std::move(options)) {
  if (options_.plan.ends_with(".json")) {
    const auto read = [&] { return read_whole_file(options_.plan, kMostPlanBytes); };
    file_ = graph_plan_from_json(from_first_rank(comm, read, "the plan cannot be read",
                                                 "parallelize() writes one with .write_plan; \"auto\" plans anew"),
                                 options_.plan);
    check_world(*file_, comm.size());
  } else if (options_.plan != "auto") {
    graph_layout_from(options_.plan, comm.size());
  }
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
      fmt::format("plan {}, written to \"{}\", limit {}, schedule {}, seed {}", options_.plan, options_.write_plan,
                  options_.limit_bytes, options_.schedule, options_.seed)};
  check_same_on_all_ranks(comm_, "the step", lines, "give every rank the whole batch, and the same options");
  const auto capture_of = [&](int64_t samples) {
    return capture(*module_, {samples_like(input, samples), samples_like(target, samples)},
                   [&](const auto& in) { return loss_(forward_(in[0]), in[1]); });
  };
  const auto graph_of = [&](int64_t samples) { return operator_graph(capture_of(samples), "the module").graph; };
  const Cluster cluster = options_.cluster.empty() ? cluster_at_hand(input.is_cuda() ? "h100-80gb" : "laptop")
                                                   : find_cluster(options_.cluster);
  if (file_) {
    report_.plan = graph_plan_of(*file_, graph_of, input.size(0));
  } else {
    report_ = plan_graph(graph_of, input.size(0), cluster, comm_.size(),
                         {.layout = options_.plan, .limit_bytes = options_.limit_bytes});
  }
  if (!options_.write_plan.empty()) {
    const auto write = [&] {
      replace_file(options_.write_plan, graph_plan_to_json(plan(), input.size(0), cluster.name));
      return std::string();
    };
    from_first_rank(comm_, write, "the plan cannot be written", "give .write_plan a file in a folder that is there");
  }
  const FormContext context{comm_, *module_, optimizer_, forward_, loss_, options_, report_.plan};
  const GraphLayout& layout = plan().layout;
  if (layout.is_pipeline() && layout.has_plain_stages()) {
    form_ = make_pipeline_form(context, input);
  } else {
    form_ = make_mesh_form(context, capture_of(input.size(0) / layout.micro_batches), input.device());
  }
}

double Parallelized::step(const torch::Tensor& input, const torch::Tensor& target) {
  check_batch(input, target);
  if (!form_) {
    prepare(input, target);
    planned_for_ = {trireme::describe("input", input), trireme::describe("target", target)};
  } else if (trireme::describe("input", input) != planned_for_[0] ||
             trireme::describe("target", target) != planned_for_[1]) {
    throw UsageError(
        fmt::format("a step of {} and {} was planned as {} and {}: sizes are fixed", trireme::describe("input", input),
                    trireme::describe("target", target), planned_for_[0], planned_for_[1]),
        "give every step a batch of the same sizes, or parallelize the module anew for others");
  }
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
  const bool has_meshes = !plan.layout.has_plain_stages() || !plan.layout.is_pipeline();
  if (plan.layout.is_pipeline()) {
    Table table({"stage", "layers", "workers", "mesh", "memory", "activations"});
    int first = 0;
    for (size_t s = 0; s < plan.stages.size(); ++s) {
      const int last = first + plan.layout.meshes[s].num_devices() - 1;
      const std::string workers = last > first ? fmt::format("{}-{}", first, last) : std::to_string(first);
      table.add_row({std::to_string(s), partition_to_text({plan.stages[s]}), workers, to_string(plan.layout.meshes[s]),
                     format_bytes(static_cast<uint64_t>(plan.stage_bytes[s])),
                     plan.recompute[s] ? "computed again" : "kept"});
      first = last + 1;
    }
    text += table.to_text({.indent = 2});
  }
  if (has_meshes) {
    Table table({"parameter", "lies"});
    for (const LayerRange& layers : plan.stages) {
      for (const auto& [name, placement] : placements_of(plan.graph, plan.operators, layers)) {
        table.add_row({name, placement});
      }
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
