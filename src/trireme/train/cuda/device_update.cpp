#include "trireme/train/device_update.h"

#include <cmath>
#include <cstring>

#include "trireme/gpu/kernels/optimizer.h"
#include "trireme/tensor/device.h"

namespace trireme {
namespace {

gpu::Type type_of(torch::ScalarType type) {
  return type == torch::kFloat32   ? gpu::Type::kFloat
         : type == torch::kFloat16 ? gpu::Type::kHalf
                                   : gpu::Type::kBFloat16;
}

gpu::OptimizerSettings settings_of(const OptimizerConfig& config, double clip) {
  gpu::OptimizerSettings settings;
  using Kind = gpu::OptimizerSettings::Kind;
  settings.kind = config.kind == OptimizerKind::kSgd    ? Kind::kSgd
                  : config.kind == OptimizerKind::kAdam ? Kind::kAdam
                                                        : Kind::kAdamW;
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
        after(bytes_for_values(torch::TensorOptions().pinned_memory(true))) {}

  /// Enqueues a copy to the device, from new pinned memory each time, since several copies may be in flight.
  void write(const gpu::StepValues& wanted) {
    const torch::Tensor bytes = bytes_for_values(torch::TensorOptions().pinned_memory(true));
    std::memcpy(bytes.data_ptr(), &wanted, sizeof wanted);
    values.copy_(bytes, /*non_blocking=*/true);
  }

  gpu::StepValues* device_values() const { return reinterpret_cast<gpu::StepValues*>(values.data_ptr()); }
  gpu::Stream stream() const { return static_cast<gpu::Stream>(current_stream(device)); }

  const OptimizerConfig config;
  const gpu::OptimizerSettings settings;
  const torch::Device device;
  gpu::StepValues prepared;
  torch::Tensor values, after;  ///< StepValues: on the device, and as copied back to the host
  torch::Tensor step_values;    ///< the executor's values of the step, on the host
  std::unique_ptr<gpu::ParameterBlocks> blocks;
};

DeviceUpdate::DeviceUpdate(const Config& config, ModelPart& part)
    : WeightUpdate(config, part),
      inside_(std::make_unique<Inside>(config.optimizer, config.train.clip, part.parameters().device())) {
  const ParameterStore& parameters = part.parameters();
  std::vector<gpu::ParameterSpan> spans;
  const auto& shards = parameters.shards();
  torch::ScalarType gradient_type = torch::kFloat32;
  for (size_t i = 0; i < shards.size(); ++i) {
    const ParameterStore::Shard& shard = shards[i];
    const ParameterStore::Entry& entry = parameters.entries()[shard.entry];
    gpu::ParameterSpan span;
    span.master = shard.master.data_ptr<float>();
    if (shard.compute.defined()) span.compute = shard.compute.data_ptr();
    const torch::Tensor from = part.gradient(i);
    gradient_type = from.scalar_type();
    span.gradient = from.const_data_ptr();
    const auto [first, second] = optimizer_.state_of(i);
    span.first = first;
    span.second = second;
    span.count = shard.count;
    span.decays = config.optimizer.decay == Decay::kAll || entry.is_matrix;
    spans.push_back(span);
  }
  inside_->blocks =
      std::make_unique<gpu::ParameterBlocks>(spans, type_of(gradient_type), type_of(parameters.compute_type()));
}

DeviceUpdate::~DeviceUpdate() = default;

void DeviceUpdate::prepare(int64_t update, double lr, double factor) {
  const auto t = static_cast<double>(update + 1);
  gpu::StepValues values;
  values.factor = factor;
  values.lr = lr;
  values.correction1 = 1 - std::pow(inside_->config.beta1, t);
  values.correction2 = 1 - std::pow(inside_->config.beta2, t);
  inside_->prepared = values;
  inside_->write(values);
}

std::vector<double> DeviceUpdate::block_squares() {
  Inside& in = *inside_;
  const auto doubles = torch::TensorOptions().dtype(torch::kFloat64).pinned_memory(true);
  const torch::Tensor sums = torch::empty({in.blocks->num_blocks()}, doubles);
  in.blocks->block_squares(sums.data_ptr<double>(), in.stream());
  synchronize(in.device);
  const double* first = sums.const_data_ptr<double>();
  return {first, first + sums.numel()};
}

void DeviceUpdate::enqueue(const torch::Tensor& values, std::optional<double> norm) {
  Inside& in = *inside_;
  if (!in.step_values.defined()) {
    in.step_values = torch::empty(values.sizes(), torch::TensorOptions().pinned_memory(true));
  }
  if (norm) {
    gpu::StepValues wanted = in.prepared;
    wanted.norm = *norm * wanted.factor;
    wanted.skipped = std::isfinite(wanted.norm) ? 0 : 1;
    in.write(wanted);
  } else {
    in.blocks->gradient_norm(in.device_values(), in.stream());
  }
  in.blocks->update(in.settings, in.device_values(), in.stream());
  in.after.copy_(in.values, /*non_blocking=*/true);
  in.step_values.copy_(values, /*non_blocking=*/true);
}

void DeviceUpdate::apply(int64_t update, double lr, double factor) {
  prepare(update, lr, factor);
  inside_->blocks->update(inside_->settings, inside_->device_values(), inside_->stream());
}

DeviceUpdate::Outcome DeviceUpdate::read() {
  synchronize(inside_->device);
  gpu::StepValues values;
  std::memcpy(&values, inside_->after.data_ptr(), sizeof values);
  return {values.norm, inside_->step_values};
}

}  // namespace trireme
