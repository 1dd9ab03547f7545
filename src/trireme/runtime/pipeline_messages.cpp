#include "trireme/runtime/pipeline_messages.h"

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/tensor/device.h"
#include "trireme/tensor/shared_tensor.h"

namespace trireme {
namespace {

constexpr int64_t kFormLength = 16;

constexpr uint32_t kStageFormTag = 0xffff0000, kTensorTag = 0xffff0001;  // beyond those of programs

}  // namespace

torch::Tensor empty_form() { return torch::zeros({kFormLength}, torch::kInt64); }

torch::Tensor form_to_numbers(const TensorForm& form) {
  if (static_cast<int64_t>(form.sizes.size()) > kFormLength - 2) {
    throw UsageError(fmt::format("a tensor of {} dims is too much for a pipeline's message", form.sizes.size()));
  }
  torch::Tensor values = empty_form();
  auto* data = values.mutable_data_ptr<int64_t>();
  data[0] = static_cast<int64_t>(form.type);
  data[1] = static_cast<int64_t>(form.sizes.size());
  std::copy(form.sizes.begin(), form.sizes.end(), data + 2);
  return values;
}

TensorForm form_from_numbers(const torch::Tensor& numbers) {
  const auto* data = numbers.const_data_ptr<int64_t>();
  return {{data + 2, data + 2 + data[1]}, static_cast<torch::ScalarType>(data[0])};
}

void send_tensor(Communicator& comm, const torch::Tensor& tensor, int to) {
  const torch::Tensor contiguous = tensor.contiguous(), form = form_to_numbers(form_of(tensor));
  const CallOptions options = call_options(tensor.device());
  comm.start_send(data_of(form), to, kStageFormTag).wait();
  comm.start_send(data_of(contiguous), to, kTensorTag, options).wait_on(options.stream);
}

torch::Tensor receive_tensor(Communicator& comm, int from, const torch::Device& device) {
  const torch::Tensor form = empty_form();
  comm.start_recv(data_of(form), from, kStageFormTag).wait();
  const TensorForm known = form_from_numbers(form);
  torch::Tensor tensor = torch::empty(known.sizes, torch::TensorOptions().dtype(known.type).device(device));
  const CallOptions options = call_options(device);
  comm.start_recv(data_of(tensor), from, kTensorTag, options).wait_on(options.stream);
  return tensor;
}

std::string TensorForm::to_string() const {
  std::string text;
  for (const int64_t size : sizes) text += fmt::format("{}{}", text.empty() ? "" : ", ", size);
  return fmt::format("[{}] {}", text, c10::toString(type));
}

TensorForm form_of(const torch::Tensor& tensor) { return {tensor.sizes().vec(), tensor.scalar_type()}; }

PipelineMessages::PipelineMessages(Communicator& comm, int num_micro_batches, torch::Device device)
    : comm_(comm), num_micro_batches_(static_cast<uint32_t>(num_micro_batches)), device_(device) {}

uint32_t PipelineMessages::tag_of(const PipelineMessage& message, bool is_form) const {
  const uint32_t kind = is_form ? 2 : message.is_gradient ? 1 : 0;
  const auto stage = static_cast<uint32_t>(message.stage), micro_batch = static_cast<uint32_t>(message.micro_batch);
  return (stage * num_micro_batches_ + micro_batch) * 3 + kind;
}

void PipelineMessages::send(const PipelineMessage& message, int to, const torch::Tensor& tensor) {
  std::erase_if(sent_, [](Sent& sent) {
    if (!sent.handle.test()) return false;
    sent.handle.wait();  // throws what has gone wrong
    return true;
  });
  if (!message.is_gradient && !form_sent_[message.stage]) {
    const torch::Tensor form = form_to_numbers(form_of(tensor));
    sent_.push_back({comm_.start_send(data_of(form), to, tag_of({false, message.stage, 0}, true)), form});
    form_sent_[message.stage] = true;
  }
  const torch::Tensor contiguous = tensor.contiguous();
  sent_.push_back(
      {comm_.start_send(data_of(contiguous), to, tag_of(message), call_options(contiguous.device())), contiguous});
}

void PipelineMessages::post_receive(const PipelineMessage& message, int from) {
  if (!received_.emplace(message, Received(from)).second) {
    throw Error("a message is received that was not used yet");
  }
  if (!message.is_gradient && !known_form(message) && !awaited_.contains(message.stage)) {
    const torch::Tensor values = empty_form();
    const uint32_t tag = tag_of({false, message.stage, 0}, true);
    awaited_[message.stage] = {comm_.start_recv(data_of(values), from, tag), values};
  }
  lines_[from].push_back(message);
  post_line(from);
}

const TensorForm* PipelineMessages::known_form(const PipelineMessage& message) {
  const auto found = forms_.find({message.is_gradient, message.stage});
  return found == forms_.end() ? nullptr : &found->second;
}

/// As many as have a known form.
void PipelineMessages::post_line(int from) {
  std::deque<PipelineMessage>& line = lines_[from];
  while (!line.empty()) {
    const PipelineMessage message = line.front();
    const TensorForm* form = known_form(message);
    if (form == nullptr) return;
    Received& received = received_.at(message);
    received.tensor = lend(*form);
    received.handle = comm_.start_recv(data_of(received.tensor), from, tag_of(message), call_options(device_));
    received.posted = true;
    line.pop_front();
  }
}

void PipelineMessages::learn_form(int stage) {
  AwaitedForm& awaited = awaited_.at(stage);
  wait(awaited.handle);
  forms_[{false, stage}] = form_from_numbers(awaited.values);
  awaited_.erase(stage);
}

torch::Tensor PipelineMessages::take(const PipelineMessage& message) {
  const auto found = received_.find(message);
  if (found == received_.end()) throw Error("a message is used that was not posted");
  Received& received = found->second;
  // What stands before it in line was sent before it, so waiting for that cannot take longer.
  while (!received.posted) {
    const PipelineMessage first = lines_[received.from].front();
    if (!known_form(first)) {
      if (first.is_gradient) throw Error("a gradient comes before its activation was computed");
      learn_form(first.stage);
    }
    post_line(received.from);
  }
  wait(received.handle);
  torch::Tensor tensor = std::move(received.tensor);
  received_.erase(found);
  return tensor;
}

void PipelineMessages::set_gradient_form(int stage, TensorForm form) { forms_[{true, stage}] = std::move(form); }

/// A buffer is free when only this list refers to its memory. Views made the usual way would refer to each other.
torch::Tensor PipelineMessages::lend(const TensorForm& form) {
  for (const torch::Tensor& buffer : buffers_) {
    if (buffer.storage().use_count() == 1 && form_of(buffer) == form) return buffer.variable_data();
  }
  const int64_t count = c10::multiply_integers(form.sizes);
  const auto options = torch::TensorOptions().dtype(form.type).device(device_);
  buffers_.push_back(shared_zeros(&comm_, count, options).view(form.sizes).variable_data());
  return buffers_.back().variable_data();
}

void PipelineMessages::wait(Handle& handle) { handle.wait_on(current_stream(device_)); }

void PipelineMessages::finish() {
  for (Sent& sent : sent_) wait(sent.handle);
  sent_.clear();
}

}  // namespace trireme
