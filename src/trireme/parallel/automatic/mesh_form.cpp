// Stages that are a mesh each: the recorded operators run again on mesh tensors, their inputs brought to where the plan
// has them; parcels go from mesh to mesh. One mesh of all ranks is one such stage.
#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/index.h"
#include "trireme/parallel/automatic/form.h"
#include "trireme/parallel/automatic/staged_graph.h"
#include "trireme/parallel/data/broadcast.h"
#include "trireme/program/pipeline.h"
#include "trireme/runtime/executor.h"
#include "trireme/runtime/mesh_messages.h"
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
    make_executor();
    scatter();
  }

  double step(const torch::Tensor& input, const torch::Tensor& target) override {
    if (!scattered_) scatter();
    inputs_ = {input, target};
    loss_ = torch::zeros({}, torch::kDouble);
    context_.optimizer.zero_grad();
    executor_->set_step(num_steps_);
    executor_->run([](int) {});
    inputs_.clear();
    finish_gradients();
    context_.optimizer.step();  // others' parameters have no gradient, and stay
    share_weights();
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
  /// A parameter or buffer that a later stage reads, too.
  struct SharedValue {
    int value = -1, reader = 0;
    ParcelRoute weights, gradients;
  };

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

  /// Numbers of a parcel have one type; integers and booleans go as those.
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
    for (const int v : module_values()) {
      const std::vector<int> readers = graph_.readers(v);
      const at::ScalarType type = captured().value(v).type;
      for (size_t i = 1; i < readers.size(); ++i) {
        if (captured().value(v).kind == Kind::kBuffer && graph_.is_written(readers[i], v)) {
          throw UsageError(
              fmt::format("{} is changed by stages {} and {}", captured().value(v).name, readers[0], readers[i]),
              "take a layout whose stages do not share it");
        }
        shared_.push_back({v, readers[i], route({v}, readers[0], readers[i], type, false),
                           route({v}, readers[i], readers[0], type, true)});
      }
    }
  }

  void make_executor() {
    const ParallelizeOptions& options = context_.options;
    PipelineShape shape{.schedule = make_schedule({.kind = schedule_kind(options.schedule),
                                                   .num_ranks = graph_.num_stages(),
                                                   .num_micro_batches = context_.plan.layout.micro_batches}),
                        .recompute = context_.plan.recompute};
    if (shape.schedule.num_stages() != graph_.num_stages() || !is_synchronous(schedule_kind(options.schedule))) {
      throw UsageError(fmt::format("parallelize() does not run the schedule {}", options.schedule),
                       "take a synchronous one with one stage a worker, such as 1f1b, gpipe or zb-h1");
    }
    Stage stage;
    stage.forward = [this](const torch::Tensor& x, int micro_batch, const torch::Tensor&) {
      return forward(x, micro_batch);
    };
    for (const int v : module_values()) {
      if (reads(v) && captured().value(v).kind == Kind::kBuffer) stage.buffers.push_back(captured().value(v).tensor);
    }
    executor_ =
        std::make_unique<Executor>(lower_pipeline(shape, stage_), std::map<int, Stage>{{stage_, std::move(stage)}},
                                   ExecutorOptions{.messages = messages_ ? &*messages_ : nullptr, .device = device_});
  }

  /// Parameters lie as the plan has them; those of other stages give their memory back.
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
    // The same whenever it is computed again.
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
      // State is changed in place, where it lies.
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

  /// Sums over the ranks that saw other samples end where the parameter lies; those of several stages at the first.
  void finish_gradients() {
    const torch::NoGradGuard no_grad;
    for (const CapturedValue& value : captured().values()) {
      if (value.kind != Kind::kParameter || !value.tensor.grad().defined()) continue;
      value.tensor.mutable_grad() = redistribute(value.tensor.grad(), placements_of(value.tensor));
    }
    for (size_t i = 0; i < shared_.size(); ++i) {
      const CapturedValue& value = captured().value(shared_[i].value);
      if (value.kind != Kind::kParameter || !value.tensor.requires_grad()) continue;
      torch::Tensor& gradient = torch::Tensor(value.tensor).mutable_grad();
      if (stage_ == shared_[i].reader) {
        const torch::Tensor& part = local_part(value.tensor);
        messages_->send_now(shared_[i].gradients,
                            (gradient.defined() ? local_part(gradient) : torch::zeros_like(part)).reshape({-1}),
                            static_cast<int>(i));
        gradient.reset();
      } else if (stage_ == owner_of(shared_[i].value)) {
        const torch::Tensor& part = local_part(value.tensor);
        const torch::Tensor more = messages_->receive_now(shared_[i].gradients, static_cast<int>(i)).view(part.sizes());
        const torch::Tensor other = from_local(more, mesh_, placements_of(value.tensor), value.sizes);
        gradient = gradient.defined() ? gradient + other : other;
      }
    }
  }

  /// The first reader's weights to the others.
  void share_weights() {
    const torch::NoGradGuard no_grad;
    for (size_t i = 0; i < shared_.size(); ++i) {
      const CapturedValue& value = captured().value(shared_[i].value);
      if (stage_ == owner_of(shared_[i].value)) {
        messages_->send_now(shared_[i].weights, local_part(value.tensor).reshape({-1}), static_cast<int>(i));
      } else if (stage_ == shared_[i].reader) {
        torch::Tensor part = local_part(value.tensor);
        part.copy_(messages_->receive_now(shared_[i].weights, static_cast<int>(i)).view(part.sizes()));
      }
    }
  }

  const FormContext context_;
  const torch::Device device_;
  const StagedGraph graph_;
  const int stage_;
  std::shared_ptr<DeviceMesh> mesh_;
  bool scattered_ = false;
  uint64_t num_steps_ = 0;
  std::vector<torch::Tensor> inputs_;  ///< of the step under way: the whole batch
  torch::Tensor loss_;
  std::vector<SharedValue> shared_;
  std::unique_ptr<Executor> executor_;
  std::optional<MeshMessages> messages_;
  std::unique_ptr<Communicator> messages_comm_;  ///< last, so that it ends first: messages may be under way
};

}  // namespace

std::unique_ptr<ParallelizedForm> make_mesh_form(const FormContext& context, CapturedGraph captured,
                                                 const torch::Device& device) {
  return std::make_unique<MeshForm>(context, std::move(captured), device);
}

}  // namespace trireme
