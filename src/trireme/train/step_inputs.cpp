#include "trireme/train/step_inputs.h"

#include <fmt/format.h>

#include "trireme/base/deadline.h"
#include "trireme/base/error.h"
#include "trireme/runtime/pipeline_messages.h"

namespace trireme {
namespace {

constexpr auto kDataTimeout = std::chrono::minutes(5);

Tensors like(const Tensors& tensors, const torch::TensorOptions& options) {
  Tensors made;
  for (const torch::Tensor& each : tensors)
    made.push_back(torch::empty(each.sizes(), options.dtype(each.scalar_type())));
  return made;
}

Inputs like(const Inputs& inputs, const torch::TensorOptions& options) {
  return {like(inputs.inputs, options), like(inputs.targets, options)};
}

template <typename Call>
void for_each_pair(const Inputs& from, const Inputs& to, Call call) {
  for (size_t i = 0; i < from.inputs.size(); ++i) call(from.inputs[i], to.inputs[i]);
  for (size_t i = 0; i < from.targets.size(); ++i) call(from.targets[i], to.targets[i]);
}

void copy(const Inputs& from, const Inputs& to) {
  for_each_pair(from, to, [](const torch::Tensor& source, torch::Tensor target) { target.copy_(source); });
}

}  // namespace

Inputs tensors_of(const std::shared_ptr<Batch>& batch, const SampleShape& shape) {
  const auto tensors = [&](const std::vector<Field>& fields, std::vector<FieldValues>& values) {
    Tensors all;
    for (size_t i = 0; i < fields.size(); ++i) {
      std::vector<int64_t> sizes{batch->count};
      sizes.insert(sizes.end(), fields[i].sizes.begin(), fields[i].sizes.end());
      const auto type = fields[i].type == Field::Type::kInt64 ? torch::kInt64 : torch::kFloat32;
      std::visit(
          [&](auto& numbers) {
            all.push_back(torch::from_blob(
                numbers.data(), sizes, [batch](void*) {}, type));
          },
          values.at(i));
    }
    return all;
  };
  return {batch->parts.inputs ? tensors(shape.inputs, batch->inputs) : Tensors(),
          batch->parts.targets ? tensors(shape.targets, batch->targets) : Tensors()};
}

void require_same_forms(const Inputs& given, const Inputs& before) {
  const auto compare = [](const char* kind, const Tensors& now, const Tensors& then) {
    constexpr const char* kCure = "give all batches the same shapes";
    if (now.size() != then.size()) {
      throw UsageError(fmt::format("a batch has {} {}s, and the first had {}", now.size(), kind, then.size()), kCure);
    }
    for (size_t i = 0; i < now.size(); ++i) {
      const TensorForm form = form_of(now[i]), first = form_of(then[i]);
      if (form == first) continue;
      throw UsageError(fmt::format("{} {} of a micro-batch is {}, and was {} in the first batch", kind, i,
                                   form.to_string(), first.to_string()),
                       kCure);
    }
  };
  compare("input", given.inputs, before.inputs);
  compare("target", given.targets, before.targets);
}

StepInputs::StepInputs(torch::Device device, size_t num_micro_batches)
    : device_(device), num_micro_batches_(num_micro_batches), current_(num_micro_batches_) {
  if (device.is_cuda()) lane_.emplace(device);
}

void StepInputs::read_from(const SampleShape& shape, std::unique_ptr<ReadAhead> reader) {
  shape_ = shape;
  reader_ = std::move(reader);
  is_arriving_ = false;
}

void StepInputs::give(const std::vector<Inputs>& micro_batches) {
  for (size_t i = 0; i < num_micro_batches_; ++i) {
    if (!lane_) {
      current_[i] = micro_batches[i];
      continue;
    }
    if (current_[i].inputs.empty() && current_[i].targets.empty()) {
      current_[i] = like(micro_batches[i], torch::TensorOptions().device(device_));
    }
    require_same_forms(micro_batches[i], current_[i]);
    copy(micro_batches[i], current_[i]);
  }
}

double StepInputs::next() {
  if (!reader_) return 0;
  const auto start = Clock::now();
  if (!is_arriving_) read();
  is_arriving_ = false;
  if (lane_) {
    lane_->take();
    for (size_t i = 0; i < num_micro_batches_; ++i) copy(arriving_[i], current_[i]);
    lane_->done_with();
  }
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void StepInputs::prefetch() {
  if (!lane_ || !reader_) return;  // the reader's own thread is ahead
  read();
  is_arriving_ = true;
}

void StepInputs::read() {
  std::vector<UploadLane::Copy> copies;
  if (lane_) lane_->wait();
  for (size_t i = 0; i < num_micro_batches_; ++i) {
    const auto batch = std::make_shared<Batch>(reader_->next(Deadline::after(kDataTimeout)));
    const Inputs inputs = tensors_of(batch, shape_);
    if (!lane_) {
      current_[i] = inputs;
      continue;
    }
    if (arriving_.size() == i) {
      current_[i] = like(inputs, torch::TensorOptions().device(device_));
      arriving_.push_back(like(inputs, torch::TensorOptions().device(device_)));
      lane_->done_with();  // with what this memory was until now
      pinned_.push_back(like(inputs, torch::TensorOptions().pinned_memory(true)));
    }
    copy(inputs, pinned_[i]);
    for_each_pair(pinned_[i], arriving_[i], [&](const torch::Tensor& from, const torch::Tensor& to) {
      copies.push_back({to, from});
    });
  }
  if (lane_) lane_->upload(copies);
}

}  // namespace trireme
