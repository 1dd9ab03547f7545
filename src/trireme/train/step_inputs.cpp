#include "trireme/train/step_inputs.h"

#include "trireme/base/deadline.h"

namespace trireme {
namespace {

constexpr auto kDataTimeout = std::chrono::minutes(5);

Inputs like(const Inputs& inputs, const torch::TensorOptions& options) {
  const auto part = [&](const torch::Tensor& of) {
    return of.defined() ? torch::empty(of.sizes(), options.dtype(of.scalar_type())) : torch::Tensor();
  };
  return {part(inputs.input), part(inputs.target)};
}

void copy(const Inputs& from, const Inputs& to) {
  if (from.input.defined()) to.input.copy_(from.input);
  if (from.target.defined()) to.target.copy_(from.target);
}

}  // namespace

Inputs tensors_of(const std::shared_ptr<Batch>& batch, const SampleShape& shape) {
  const auto keep = [batch](void*) {};
  const auto whole = [&](bool is_read, auto& numbers, at::IntArrayRef sizes, torch::ScalarType type) {
    return is_read ? torch::from_blob(numbers.data(), sizes, keep, type) : torch::Tensor();
  };
  const auto [inputs, targets] = batch->parts;
  if (shape.is_language()) {
    return {whole(inputs, batch->tokens, {batch->count, shape.seq}, torch::kInt64),
            whole(targets, batch->targets, {batch->count, shape.seq}, torch::kInt64)};
  }
  return {whole(inputs, batch->images, {batch->count, shape.channels, shape.height, shape.width}, torch::kFloat32),
          whole(targets, batch->labels, {batch->count}, torch::kInt64)};
}

StepInputs::StepInputs(torch::Device device, SampleShape shape, int64_t num_micro_batches,
                       std::unique_ptr<ReadAhead> reader)
    : device_(device),
      shape_(shape),
      num_micro_batches_(static_cast<size_t>(num_micro_batches)),
      reader_(std::move(reader)),
      current_(num_micro_batches_) {
  if (device.is_cuda()) lane_.emplace(device);
}

void StepInputs::read_from(std::unique_ptr<ReadAhead> reader) {
  reader_ = std::move(reader);
  is_arriving_ = false;
}

double StepInputs::next() {
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
  if (!lane_) return;  // the reader's own thread is ahead
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
      pinned_.push_back(like(inputs, torch::TensorOptions().pinned_memory(true)));
    }
    copy(inputs, pinned_[i]);
    if (inputs.input.defined()) copies.push_back({arriving_[i].input, pinned_[i].input});
    if (inputs.target.defined()) copies.push_back({arriving_[i].target, pinned_[i].target});
  }
  if (lane_) lane_->upload(copies);
}

}  // namespace trireme
