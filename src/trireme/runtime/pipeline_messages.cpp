#include "trireme/runtime/pipeline_messages.h"

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/tensor/device.h"
#include "trireme/tensor/host_shared_tensor.h"

namespace trireme {
namespace {

constexpr int64_t kFormLength = 16;  // dtype, number of dims, sizes

constexpr uint32_t kFormsTag = 0xffff0000, kFirstTensorTag = 0xffff0001;  // above the tags of programs

}  // namespace

torch::Tensor empty_forms() {
  return torch::zeros({1 + static_cast<int64_t>(kMostTensors) * kFormLength}, torch::kInt64);
}

torch::Tensor forms_to_numbers(const TensorForms& forms) {
  if (forms.size() > kMostTensors) {
    throw UsageError(fmt::format("{} tensors are too many for a pipeline's message", forms.size()),
                     fmt::format("let at most {} cross a cut", kMostTensors));
  }
  torch::Tensor values = empty_forms();
  auto* data = values.mutable_data_ptr<int64_t>();
  *data++ = static_cast<int64_t>(forms.size());
  for (const TensorForm& form : forms) {
    if (static_cast<int64_t>(form.sizes.size()) > kFormLength - 2) {
      throw UsageError(fmt::format("a tensor of {} dims is too much for a pipeline's message", form.sizes.size()));
    }
    data[0] = static_cast<int64_t>(form.type);
    data[1] = static_cast<int64_t>(form.sizes.size());
    std::copy(form.sizes.begin(), form.sizes.end(), data + 2);
    data += kFormLength;
  }
  return values;
}

TensorForms forms_from_numbers(const torch::Tensor& numbers) {
  const auto* data = numbers.const_data_ptr<int64_t>();
  TensorForms forms(static_cast<size_t>(*data++));
  for (TensorForm& form : forms) {
    form = {{data + 2, data + 2 + data[1]}, static_cast<torch::ScalarType>(data[0])};
    data += kFormLength;
  }
  return forms;
}

/// Waits if the receiver is too far behind, since memory is limited.
void AnyShapeMessages::send(const PipelineMessage&, int to, const Tensors& tensors) {
  wait_until(kMostAhead);
  auto& sent = sent_.emplace_back();
  const auto start = [&](const torch::Tensor& tensor, uint32_t tag) {
    sent.emplace_back(comm_.start_send(data_of(tensor), to, tag, call_options(tensor.device())), tensor);
  };
  start(forms_to_numbers(forms_of(tensors)), kFormsTag);
  for (size_t i = 0; i < tensors.size(); ++i) {
    start(tensors[i].contiguous(), kFirstTensorTag + static_cast<uint32_t>(i));
  }
}

void AnyShapeMessages::wait_until(size_t under_way) {
  for (; sent_.size() > under_way; sent_.pop_front()) {
    for (auto& [handle, tensor] : sent_.front()) handle.wait_on(current_stream(device_));
  }
}

void send_tensor(Communicator& comm, const torch::Tensor& tensor, int to) {
  AnyShapeMessages messages(comm, tensor.device());
  messages.send({}, to, {tensor});
  messages.finish();
}

Tensors receive_tensors(Communicator& comm, int from, const torch::Device& device) {
  const torch::Tensor numbers = empty_forms();
  comm.start_recv(data_of(numbers), from, kFormsTag).wait();
  const CallOptions options = call_options(device);
  Tensors tensors;
  for (const TensorForm& form : forms_from_numbers(numbers)) {
    const auto tag = kFirstTensorTag + static_cast<uint32_t>(tensors.size());
    tensors.push_back(torch::empty(form.sizes, torch::TensorOptions().dtype(form.type).device(device)));
    comm.start_recv(data_of(tensors.back()), from, tag, options).wait_on(options.stream);
  }
  return tensors;
}

std::string TensorForm::to_string() const {
  std::string text;
  for (const int64_t size : sizes) text += fmt::format("{}{}", text.empty() ? "" : ", ", size);
  return fmt::format("[{}] {}", text, c10::toString(type));
}

TensorForm form_of(const torch::Tensor& tensor) { return {tensor.sizes().vec(), tensor.scalar_type()}; }

TensorForms forms_of(const Tensors& tensors) {
  TensorForms forms;
  for (const torch::Tensor& tensor : tensors) forms.push_back(form_of(tensor));
  return forms;
}

std::string to_string(const TensorForms& forms) {
  std::string text;
  for (const TensorForm& form : forms) text += fmt::format("{}{}", text.empty() ? "" : ", ", form.to_string());
  return text;
}

/// Tags repeat every kMicroBatches micro-batches; far fewer are in flight at a time, however long a stream is.
uint32_t PipelineMessages::tag_of(const PipelineMessage& message, size_t tensor, bool is_form) const {
  constexpr uint32_t kMicroBatches = 4096;
  const uint32_t kind = is_form ? 2 : message.is_gradient ? 1 : 0;
  const auto stage = static_cast<uint32_t>(message.stage), micro_batch = static_cast<uint32_t>(message.micro_batch);
  return ((stage * kMicroBatches + micro_batch % kMicroBatches) * 3 + kind) * static_cast<uint32_t>(kMostTensors) +
         static_cast<uint32_t>(tensor);
}

void PipelineMessages::start_send(const torch::Tensor& tensor, int to, uint32_t tag) {
  sent_.push_back({comm_.start_send(data_of(tensor), to, tag, call_options(tensor.device())), tensor});
}

void PipelineMessages::send(const PipelineMessage& message, int to, const Tensors& tensors) {
  std::erase_if(sent_, [](Sent& sent) {
    if (!sent.handle.test()) return false;
    sent.handle.wait();  // throws if the send failed
    return true;
  });
  if (!message.is_gradient && !std::exchange(forms_sent_[message.stage], true)) {
    start_send(forms_to_numbers(forms_of(tensors)), to, tag_of({false, message.stage, 0}, 0, true));
  }
  for (size_t i = 0; i < tensors.size(); ++i) start_send(tensors[i].contiguous(), to, tag_of(message, i));
}

void PipelineMessages::post_receive(const PipelineMessage& message, int from) {
  if (!received_.emplace(message, Received(from)).second) {
    throw Error("a message is received that was not used yet");
  }
  if (!message.is_gradient && !known_forms(message) && !awaited_.contains(message.stage)) {
    const torch::Tensor values = empty_forms();
    const uint32_t tag = tag_of({false, message.stage, 0}, 0, true);
    awaited_[message.stage] = {comm_.start_recv(data_of(values), from, tag), values};
  }
  lines_[from].push_back(message);
  post_line(from);
}

const TensorForms* PipelineMessages::known_forms(const PipelineMessage& message) {
  const auto found = forms_.find({message.is_gradient, message.stage});
  return found == forms_.end() ? nullptr : &found->second;
}

/// Posts receives from the head of the line, up to the first one whose forms are unknown.
void PipelineMessages::post_line(int from) {
  std::deque<PipelineMessage>& line = lines_[from];
  while (!line.empty()) {
    const PipelineMessage message = line.front();
    const TensorForms* forms = known_forms(message);
    if (forms == nullptr) return;
    Received& received = received_.at(message);
    for (size_t i = 0; i < forms->size(); ++i) {
      received.tensors.push_back(lend((*forms)[i]));
      received.handles.push_back(
          comm_.start_recv(data_of(received.tensors[i]), from, tag_of(message, i), call_options(device_)));
    }
    received.posted = true;
    line.pop_front();
  }
}

void PipelineMessages::learn_forms(int stage) {
  AwaitedForms& awaited = awaited_.at(stage);
  wait(awaited.handle);
  forms_[{false, stage}] = forms_from_numbers(awaited.values);
  awaited_.erase(stage);
}

Tensors PipelineMessages::take(const PipelineMessage& message) {
  const auto found = received_.find(message);
  if (found == received_.end()) throw Error("a message is used that was not posted");
  Received& received = found->second;
  // Messages before it in line were sent before it, so waiting for their forms takes no longer.
  while (!received.posted) {
    const PipelineMessage first = lines_[received.from].front();
    if (!known_forms(first)) {
      if (first.is_gradient) throw Error("a gradient comes before its activation was computed");
      learn_forms(first.stage);
    }
    post_line(received.from);
  }
  for (Handle& handle : received.handles) wait(handle);
  Tensors tensors = std::move(received.tensors);
  received_.erase(found);
  return tensors;
}

void PipelineMessages::set_gradient_forms(int stage, TensorForms forms) { forms_[{true, stage}] = std::move(forms); }

/// A buffer is free when only this list refers to its memory. Ordinary views would refer to each other.
torch::Tensor PipelineMessages::lend(const TensorForm& form) {
  for (const torch::Tensor& buffer : buffers_) {
    if (buffer.storage().use_count() == 1 && form_of(buffer) == form) return buffer.variable_data();
  }
  const int64_t count = c10::multiply_integers(form.sizes);
  const auto options = torch::TensorOptions().dtype(form.type).device(device_);
  buffers_.push_back(host_shared_zeros(&comm_, count, options).view(form.sizes).variable_data());
  return buffers_.back().variable_data();
}

void PipelineMessages::wait(Handle& handle) { handle.wait_on(current_stream(device_)); }

void PipelineMessages::finish() {
  for (Sent& sent : sent_) wait(sent.handle);
  sent_.clear();
}

}  // namespace trireme
