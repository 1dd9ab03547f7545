#include "trireme/train/device_update.h"

#include <cmath>
#include <cstring>

#include "trireme/gpu/kernels/optimizer.h"
#include "trireme/tensor/device.h"
#include "trireme/tensor/mesh_tensor.h"

namespace trireme {
namespace {

gpu::Type type_of(torch::ScalarType type) {
  return type == torch::kFloat32   ? gpu::Type::kFloat
         : type == torch::kFloat16 ? gpu::Type::kHalf
                                   : gpu::Type::kBFloat16;
}

gpu::OptimizerSettings settings_of(const OptimizerConfig& config, double clip) {
  gpu::OptimizerSettings settings;
  settings.kind = config.kind == "sgd"    ? gpu::OptimizerSettings::Kind::kSgd
                  : config.kind == "adam" ? gpu::OptimizerSettings::Kind::kAdam
                                          : gpu::OptimizerSettings::Kind::kAdamW;
  settings.beta1 = static_cast<float>(config.beta1);
  settings.beta2 = static_cast<float>(config.beta2);
  settings.eps = static_cast<float>(config.eps);
  settings.weight_decay = config.weight_decay;
  settings.momentum = static_cast<float>(config.momentum);
  settings.nesterov = config.nesterov;
  settings.clip = clip;
  return settings;
}

torch::Tensor bytes_for_values(const torch::TensorOptions& options) {
  return torch::zeros({sizeof(gpu::StepValues)}, options.dtype(torch::kUInt8));
}

}  // namespace

struct DeviceUpdate::Inside {
  Inside(const OptimizerConfig& config_, double clip, const torch::Device& device_)
      : config(config_),
        settings(settings_of(config_, clip)),
        device(device_),
        values(bytes_for_values(torch::TensorOptions().device(device_))),
        before(bytes_for_values(torch::TensorOptions().pinned_memory(true))),
        after(bytes_for_values(torch::TensorOptions().pinned_memory(true))) {}

  /// The norm of all gradients where this rank has parts of some: what others have too counts once.
  void norm_over_model() const {
    torch::Tensor squares = torch::zeros({2, 2}, torch::TensorOptions().device(device).dtype(torch::kFloat64));
    for (const Gradient& each : gradients) {
      squares[each.is_shared ? 0 : 1][each.is_part ? 0 : 1].add_(
          torch::linalg_vector_norm(each.values, 2, {}, false, torch::kFloat64).square());
    }
    sum_over_model(squares);
    const torch::Tensor doubles = values.view(torch::kFloat64);
    torch::Tensor norm = doubles[offsetof(gpu::StepValues, norm) / sizeof(double)];
    norm.copy_(squares.sum().sqrt() * doubles[offsetof(gpu::StepValues, factor) / sizeof(double)]);
    doubles[offsetof(gpu::StepValues, skipped) / sizeof(double)].copy_(norm.isfinite().logical_not());
  }

  gpu::StepValues* device_values() const { return reinterpret_cast<gpu::StepValues*>(values.data_ptr()); }
  gpu::Stream stream() const { return static_cast<gpu::Stream>(current_stream(device)); }

  const OptimizerConfig config;
  const gpu::OptimizerSettings settings;
  const torch::Device device;
  torch::Tensor values, before, after;  ///< StepValues: on the device, as written and as read by the host
  torch::Tensor step_values;            ///< of the executor, on the host
  std::unique_ptr<gpu::ParameterBlocks> blocks;
  struct Gradient {
    torch::Tensor values;  ///< where they lie
    bool is_part, is_shared;
  };
  std::vector<Gradient> gradients;
  SumOverModel sum_over_model;
};

DeviceUpdate::DeviceUpdate(const OptimizerConfig& config, double clip, ParameterStore& parameters, Optimizer& optimizer,
                           const std::function<torch::Tensor(size_t)>& gradient)
    : inside_(std::make_unique<Inside>(config, clip, parameters.device())) {
  std::vector<gpu::ParameterSpan> spans;
  const auto& shares = parameters.shares();
  torch::ScalarType gradient_type = torch::kFloat32;
  for (size_t i = 0; i < shares.size(); ++i) {
    const ParameterStore::Share& share = shares[i];
    const ParameterStore::Entry& entry = parameters.entries()[share.entry];
    gpu::ParameterSpan span;
    span.master = share.master.data_ptr<float>();
    if (share.compute.defined()) span.compute = share.compute.data_ptr();
    const torch::Tensor from = gradient(i);
    gradient_type = from.scalar_type();
    const MeshSpec* spec = mesh_spec(entry.parameter);
    inside_->gradients.push_back({from, spec && !spec->layout->is_replicated, entry.is_shared});
    span.gradient = from.const_data_ptr();
    const auto [first, second] = optimizer.state_of(i);
    span.first = first;
    span.second = second;
    span.count = share.count;
    span.decays = config.decay == "all" || entry.is_matrix;
    spans.push_back(span);
  }
  inside_->blocks =
      std::make_unique<gpu::ParameterBlocks>(spans, type_of(gradient_type), type_of(parameters.compute_type()));
}

DeviceUpdate::~DeviceUpdate() = default;

void DeviceUpdate::set_sum_over_model(SumOverModel sum_over_model) {
  inside_->sum_over_model = std::move(sum_over_model);
}

void DeviceUpdate::prepare(int64_t step, double lr, double factor) {
  const auto t = static_cast<double>(step + 1);
  gpu::StepValues values;
  values.factor = factor;
  values.lr = lr;
  values.correction1 = 1 - std::pow(inside_->config.beta1, t);
  values.correction2 = 1 - std::pow(inside_->config.beta2, t);
  std::memcpy(inside_->before.data_ptr(), &values, sizeof values);
  inside_->values.copy_(inside_->before, /*non_blocking=*/true);
}

void DeviceUpdate::enqueue(const torch::Tensor& values) {
  Inside& in = *inside_;
  if (!in.step_values.defined()) {
    in.step_values = torch::empty(values.sizes(), torch::TensorOptions().pinned_memory(true));
  }
  if (in.sum_over_model) {
    in.norm_over_model();
  } else {
    in.blocks->gradient_norm(in.device_values(), in.stream());
  }
  in.blocks->update(in.settings, in.device_values(), in.stream());
  in.after.copy_(in.values, /*non_blocking=*/true);
  in.step_values.copy_(values, /*non_blocking=*/true);
}

DeviceUpdate::Outcome DeviceUpdate::read() {
  synchronize(inside_->device);
  gpu::StepValues values;
  std::memcpy(&values, inside_->after.data_ptr(), sizeof values);
  return {values.norm, values.skipped != 0, inside_->step_values};
}

}  // namespace trireme
