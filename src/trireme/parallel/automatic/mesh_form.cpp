// Stages that are each a mesh: the captured operators run again on mesh tensors, with inputs redistributed to the
// planned placements; parcels go from mesh to mesh. One mesh of all ranks is a single such stage.
#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/index.h"
#include "trireme/parallel/automatic/form.h"
#include "trireme/parallel/automatic/staged_graph.h"
#include "trireme/parallel/data/broadcast.h"
#include "trireme/runtime/mesh_messages.h"
#include "trireme/runtime/step_engine.h"
#include "trireme/tensor/device.h"
#include "trireme/tensor/mesh_tensor.h"

namespace trireme {
namespace {

using Kind = CapturedValue::Kind;

class MeshForm : public ParallelizedForm {
 public:
  MeshForm(const FormContext& context, CapturedGraph captured, const torch::Device& device)
      : context_(context),
        device_(device),
        graph_(std::move(captured), context.plan),
        stage_(graph_.stage_of_rank(context.comm.rank())) {
    make_mesh();
    make_routes();
    make_steps();
    scatter();
  }

  double step(const torch::Tensor& input, const torch::Tensor& target) override {
    if (!scattered_) scatter();
    inputs_ = {input, target};
    loss_ = torch::zeros({}, torch::kDouble);
    context_.optimizer.zero_grad();
    steps_->executor().set_step(num_steps_);
    steps_->step([this](const Instruction&) {
      finish_gradients();
      context_.optimizer.step();  // parameters of other stages have no gradient, and stay unchanged
    });
    inputs_.clear();
    ++num_steps_;
    if (graph_.num_stages() > 1) broadcast(context_.comm, loss_, graph_.stages().back().first_rank);
    return loss_.item<double>();
  }

  void gather() override {
    if (!scattered_) return;
    const torch::NoGradGuard no_grad;
    for (const int v : module_values()) {
      torch::Tensor tensor = captured().value(v).tensor;
      tensor.mutable_grad().reset();
      const torch::Tensor whole =
          is_mesh_tensor(tensor) ? full(tensor).clone() : torch::empty(tensor.sizes(), tensor.options());
      if (graph_.num_stages() > 1) broadcast(context_.comm, whole, graph_.stage(owner_of(v)).first_rank);
      tensor.set_data(whole);
    }
    scattered_ = false;
  }

 private:
  const CapturedGraph& captured() const { return graph_.captured(); }
  bool is_last() const { return stage_ + 1 == graph_.num_stages(); }
  int owner_of(int value) const { return graph_.readers(value).front(); }

  /// Parameters and buffers that some stage reads.
  std::vector<int> module_values() const {
    std::vector<int> values;
    for (int v = 0; v < static_cast<int>(captured().values().size()); ++v) {
      const Kind kind = captured().value(v).kind;
      if ((kind == Kind::kParameter || kind == Kind::kBuffer) && !graph_.readers(v).empty()) values.push_back(v);
    }
    return values;
  }
  bool reads(int value) const {
    const std::vector<int> readers = graph_.readers(value);
    return std::find(readers.begin(), readers.end(), stage_) != readers.end();
  }

  void make_mesh() {
    const GraphStage& own = graph_.stage(stage_);
    const auto of_stage = context_.comm.split(stage_, context_.comm.rank());
    std::vector<Axis> axes;
    for (const int size : own.mesh.sizes) axes.push_back({fmt::format("axis{}", axes.size()), size});
    mesh_ = DeviceMesh::make(*of_stage, Mesh(axes));
    for (int axis = 0; axis < mesh_->num_axes(); ++axis) attach_device(mesh_->axis(axis), device_);
  }

  MeshPlace place_of(int stage) const {
    const GraphStage& place = graph_.stage(stage);
    return {place.first_rank, place.mesh.sizes, stage == stage_ ? mesh_ : nullptr};
  }

  ParcelRoute route(const std::vector<int>& values, int from, int to, at::ScalarType type, bool is_gradient) const {
    std::vector<ParcelItem> items;
    for (const int v : values) {
      const CapturedValue& value = captured().value(v);
      items.push_back({value.sizes, graph_.lies(from, v), graph_.lies(to, v), value.is_floating() || !is_gradient});
    }
    return {std::move(items), place_of(from), place_of(to), torch::TensorOptions().dtype(type).device(device_)};
  }

  /// The dtype of a parcel's elements, to which integers and booleans are converted.
  at::ScalarType parcel_type(int stage) const {
    at::ScalarType type = at::ScalarType::Undefined;
    for (const int v : graph_.entering(stage)) {
      const CapturedValue& value = captured().value(v);
      if (!value.is_floating()) continue;
      if (type != at::ScalarType::Undefined && type != value.type) {
        throw UsageError(
            fmt::format("between stages {} and {}, behind the use of {}, {} and {} would go together", stage - 1, stage,
                        captured().near(value.producer + 1), c10::toString(type), c10::toString(value.type)),
            "let the module compute in one type, or take another layout");
      }
      type = value.type;
    }
    return type == at::ScalarType::Undefined ? at::kFloat : type;
  }

  void make_routes() {
    if (graph_.num_stages() == 1) return;
    messages_.emplace(*(messages_comm_ = context_.comm.split(0, context_.comm.rank())),
                      context_.plan.layout.micro_batches, device_);
    attach_device(*messages_comm_, device_);
    for (int to = std::max(1, stage_); to <= std::min(stage_ + 1, graph_.num_stages() - 1); ++to) {
      const std::vector<int> values = graph_.entering(to);
      const at::ScalarType type = parcel_type(to);
      messages_->set_route(false, to, route(values, to - 1, to, type, false));
      messages_->set_route(true, to - 1, route(values, to, to - 1, type, true));
    }
    std::vector<TiedWeights::Tie> ties;
    for (const int v : module_values()) {
      const std::vector<int> readers = graph_.readers(v);
      const at::ScalarType type = captured().value(v).type;
      for (size_t i = 1; i < readers.size(); ++i) {
        if (captured().value(v).kind == Kind::kBuffer && graph_.is_written(readers[i], v)) {
          throw UsageError(
              fmt::format("{} is changed by stages {} and {}", captured().value(v).name, readers[0], readers[i]),
              "take a layout whose stages do not share it");
        }
        const CapturedValue& value = captured().value(v);
        tied_.push_back({readers[0], readers[i], value.kind == Kind::kParameter && value.tensor.requires_grad()});
        ties.push_back(tie(v, readers[0], readers[i], type));
      }
    }
    tied_weights_.emplace(std::move(ties), nullptr, &*messages_, device_);
  }

  /// The tie of a parameter or buffer that a later stage also reads.
  TiedWeights::Tie tie(int v, int owner, int reader, at::ScalarType type) {
    TiedWeights::Tie tie{owner, reader};
    if (stage_ == owner) {
      tie.owner = {[=, this](const torch::Tensor& sum) { add_gradient(v, sum); },
                   [=, this] { return local_part(captured().value(v).tensor).reshape({-1}); }};
    }
    if (stage_ == reader) {
      tie.use = {[=, this] { return take_gradient(v); },
                 [=, this](const torch::Tensor& weight) {
                   torch::Tensor part = local_part(captured().value(v).tensor);
                   part.copy_(weight.view(part.sizes()));
                 }};
    }
    tie.gradient_route = std::make_shared<ParcelRoute>(route({v}, reader, owner, type, true));
    tie.weight_route = std::make_shared<ParcelRoute>(route({v}, owner, reader, type, false));
    return tie;
  }

  /// Finishes the partial sum of a gradient over the ranks of the mesh.
  static void finish_gradient(const CapturedValue& value) {
    torch::Tensor& gradient = torch::Tensor(value.tensor).mutable_grad();
    if (gradient.defined()) gradient = redistribute(gradient, placements_of(value.tensor));
  }

  /// Takes a reader's gradient, and leaves none for the optimizer.
  torch::Tensor take_gradient(int v) const {
    const CapturedValue& value = captured().value(v);
    finish_gradient(value);
    const torch::Tensor gradient = std::exchange(torch::Tensor(value.tensor).mutable_grad(), torch::Tensor());
    const torch::Tensor part = local_part(gradient.defined() ? gradient : value.tensor);
    return (gradient.defined() ? part : torch::zeros_like(part)).reshape({-1});
  }

  void add_gradient(int v, const torch::Tensor& sum) const {
    const CapturedValue& value = captured().value(v);
    finish_gradient(value);
    const torch::Tensor more = sum.view(local_part(value.tensor).sizes());
    const torch::Tensor other = from_local(more, mesh_, placements_of(value.tensor), value.sizes);
    torch::Tensor& gradient = torch::Tensor(value.tensor).mutable_grad();
    gradient = gradient.defined() ? gradient + other : other;
  }

  void make_steps() {
    const ParallelizeOptions& options = context_.options;
    StepShape shape{.pipeline = {.schedule = make_schedule({.kind = schedule_kind(options.schedule),
                                                            .num_ranks = graph_.num_stages(),
                                                            .num_micro_batches = context_.plan.layout.micro_batches}),
                                 .recompute = context_.plan.recompute},
                    .update = {.tied = tied_}};
    if (shape.pipeline.schedule.num_stages() != graph_.num_stages() ||
        !is_synchronous(schedule_kind(options.schedule))) {
      throw UsageError(fmt::format("parallelize() does not run the schedule {}", options.schedule),
                       "take a synchronous one with one stage a worker, such as 1f1b, gpipe or zb-h1");
    }
    Stage stage;
    stage.forward = [this](const Tensors& x, int micro_batch, const torch::Tensor&) {
      return Tensors{forward(x.empty() ? torch::Tensor() : x[0], micro_batch)};
    };
    for (const int v : module_values()) {
      if (reads(v) && captured().value(v).kind == Kind::kBuffer) stage.buffers.push_back(captured().value(v).tensor);
    }
    StepPlace place{.pipeline_rank = stage_};
    // Autograd keeps the gradients: every stage counts as one group.
    place.sum_over_stages = [](std::vector<int32_t>& groups) {
      std::fill(groups.begin(), groups.begin() + std::ssize(groups) / 2, 1);
    };
    steps_ = std::make_unique<StepEngine>(shape, place, std::map<int, Stage>{{stage_, std::move(stage)}},
                                          ExecutorOptions{.messages = messages_ ? &*messages_ : nullptr,
                                                          .tied = tied_weights_ ? &*tied_weights_ : nullptr,
                                                          .device = device_});
  }

  /// Distributes parameters and buffers as planned; those of other stages release their memory.
  void scatter() {
    const torch::NoGradGuard no_grad;
    for (const int v : module_values()) {
      torch::Tensor tensor = captured().value(v).tensor;
      tensor.mutable_grad().reset();
      tensor.set_data(reads(v) ? distribute(tensor, mesh_, graph_.lies(stage_, v))
                               : torch::zeros({}, tensor.options()).expand(tensor.sizes()));
    }
    scattered_ = true;
  }

  torch::Tensor forward(const torch::Tensor& x, int micro_batch) {
    // The same seed whenever this is recomputed.
    mesh_->seed(((context_.options.seed * 1000003 + num_steps_) * 1000003 + at(micro_batch)) * 1000003 + at(stage_));
    std::vector<at::Tensor> entering;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const int v = captured().inputs()[i];
      const int64_t size = captured().value(v).sizes[0];
      entering.push_back(reads(v)
                             ? distribute(inputs_[i].narrow(0, micro_batch * size, size), mesh_, graph_.lies(stage_, v))
                             : torch::Tensor());
    }
    std::vector<at::Tensor> values = captured().start(entering);
    if (stage_ > 0) unpack(x, values);
    const GraphStage& own = graph_.stage(stage_);
    captured().run(own.first_call, own.last_call, values, [&](int call, size_t tensor, const at::Tensor& value) {
      const std::vector<Placement>* wanted = graph_.wanted(call, tensor);
      const bool is_state = captured().value(captured().call(call).inputs[tensor]).kind == Kind::kBuffer;
      // Buffers are changed in place, so they stay where they are.
      return !wanted || is_state || !is_mesh_tensor(value) ? value : redistribute(value, *wanted);
    });
    if (!is_last()) return pack(values);
    const torch::Tensor loss = full(values[at(captured().output())]) / context_.plan.layout.micro_batches;
    if (torch::GradMode::is_enabled()) loss_ += loss.detach().to(torch::kDouble).cpu();
    return loss;
  }

  torch::Tensor pack(const std::vector<at::Tensor>& values) const {
    const at::ScalarType type = parcel_type(stage_ + 1);
    std::vector<torch::Tensor> parts;
    for (const int v : graph_.entering(stage_ + 1)) {
      const std::vector<Placement> lies = graph_.lies(stage_, v);
      const at::Tensor& value = values[at(v)];
      const at::Tensor here = is_mesh_tensor(value) ? redistribute(value, lies) : distribute(value, mesh_, lies);
      parts.push_back(local(here).reshape({-1}).to(type));
    }
    return parts.size() == 1 ? parts[0] : torch::cat(parts);
  }

  void unpack(const torch::Tensor& parcel, std::vector<at::Tensor>& values) const {
    int64_t first = 0;
    for (const int v : graph_.entering(stage_)) {
      const CapturedValue& value = captured().value(v);
      const std::vector<Placement> lies = graph_.lies(stage_, v);
      const auto sizes = local_sizes(value.sizes, lies, mesh_->axis_sizes(), mesh_->coordinates());
      const int64_t count = c10::multiply_integers(sizes);
      const torch::Tensor part = parcel.narrow(0, first, count).view(sizes).to(value.type);
      values[at(v)] = from_local(part, mesh_, lies, value.sizes);
      if (graph_.is_written(stage_, v)) values[at(v)] = values[at(v)].clone();
      first += count;
    }
  }

  void finish_gradients() const {
    const torch::NoGradGuard no_grad;
    for (const CapturedValue& value : captured().values()) {
      if (value.kind == Kind::kParameter) finish_gradient(value);
    }
  }

  const FormContext context_;
  const torch::Device device_;
  const StagedGraph graph_;
  const int stage_;
  std::shared_ptr<DeviceMesh> mesh_;
  bool scattered_ = false;
  uint64_t num_steps_ = 0;
  std::vector<torch::Tensor> inputs_;  ///< whole batch of the current step: input, target
  torch::Tensor loss_;
  std::vector<TiedWeight> tied_;  ///< ties of parameters and buffers that several stages read
  std::unique_ptr<StepEngine> steps_;
  std::optional<MeshMessages> messages_;
  std::optional<TiedWeights> tied_weights_;
  std::unique_ptr<Communicator> messages_comm_;  ///< last, so that it is destroyed first: messages may be in flight
};

}  // namespace

std::unique_ptr<ParallelizedForm> make_mesh_form(const FormContext& context, CapturedGraph captured,
                                                 const torch::Device& device) {
  return std::make_unique<MeshForm>(context, std::move(captured), device);
}

}  // namespace trireme
