// Activations and gradients between the ranks of a pipeline: posted, waited for where they are needed, in buffers that
// are used again.
//
// [Note: Shapes in a pipeline]
// What crosses a cut is a list of tensors: one for a chain of layers, more where skips or a second input cross,
// integers among them. Gradients come back for those of floating point. Shapes are learnt once: with the first
// activations of a stage travels a message that says their shapes and types, and from then on they are fixed. Until a
// receiver knows them, it cannot post: such a receive, and those from the same rank after it, wait in line, so that the
// order of a channel stays the one of its sends. Gradients have the shapes of what they are gradients of.
//
// Owner: the runtime. Threads: one. Blocking: take() and finish(), each wait with the communicator's timeout. Fails
// with CommError. The communicator must end before its messages do, unless finish() has returned.
#pragma once

#include <torch/torch.h>

#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/program/instruction.h"
#include "trireme/tensor/tensors.h"

namespace trireme {

/// Shape and type of a tensor.
struct TensorForm {
  std::vector<int64_t> sizes;
  torch::ScalarType type = torch::kFloat32;
  bool operator==(const TensorForm&) const = default;
  /// "[4, 16] Float"
  std::string to_string() const;
};
TensorForm form_of(const torch::Tensor& tensor);

/// Shapes and types of what crosses a cut.
using TensorForms = std::vector<TensorForm>;
constexpr size_t kMostTensors = 32;  ///< in a message
constexpr size_t kMostAhead = 8;     ///< messages of forward passes that a rank may be ahead of the next one
TensorForms forms_of(const Tensors& tensors);
/// "[4, 16] Float, [4] Long"
std::string to_string(const TensorForms& forms);
/// Encoded for a message of fixed length. Throws UsageError for too many tensors or dims.
torch::Tensor forms_to_numbers(const TensorForms& forms);
TensorForms forms_from_numbers(const torch::Tensor& numbers);
/// Where such a message is received.
torch::Tensor empty_forms();

/// Sends a tensor outside of a program, its form first. Both calls block until everything has gone, or come.
void send_tensor(Communicator& comm, const torch::Tensor& tensor, int to);
Tensors receive_tensors(Communicator& comm, int from, const torch::Device& device);
inline torch::Tensor receive_tensor(Communicator& comm, int from, const torch::Device& device) {
  return receive_tensors(comm, from, device).at(0);
}

/// What an executor asks of whatever carries its messages. `to` and `from` count along the pipeline.
class StageMessages {
 public:
  virtual ~StageMessages() = default;
  /// Keeps the tensors until they have gone; nobody may change them before.
  virtual void send(const PipelineMessage& message, int to, const Tensors& tensors) = 0;
  virtual void post_receive(const PipelineMessage& message, int from) = 0;
  /// Waits for a message that was posted.
  virtual Tensors take(const PipelineMessage& message) = 0;
  /// Tells what gradients of a stage's outputs will look like.
  virtual void set_gradient_forms(int stage, TensorForms forms) = 0;
  /// Waits until everything that was sent has gone.
  virtual void finish() = 0;
};

/// From one rank to another, in any shapes: every message is preceded by its forms, and received where it is used.
class AnyShapeMessages : public StageMessages {
 public:
  AnyShapeMessages(Communicator& comm, torch::Device device) : comm_(comm), device_(device) {}

  void send(const PipelineMessage& message, int to, const Tensors& tensors) override;
  void post_receive(const PipelineMessage& message, int from) override { from_[message] = from; }
  Tensors take(const PipelineMessage& message) override {
    return receive_tensors(comm_, from_.extract(message).mapped(), device_);
  }
  void set_gradient_forms(int, TensorForms) override {}
  void finish() override { wait_until(0); }

 private:
  void wait_until(size_t under_way);

  Communicator& comm_;
  const torch::Device device_;
  std::map<PipelineMessage, int> from_;
  std::deque<std::vector<std::pair<Handle, torch::Tensor>>> sent_;  ///< by message
};

/// From one rank to another.
class PipelineMessages : public StageMessages {
 public:
  PipelineMessages(Communicator& comm, torch::Device device) : comm_(comm), device_(device) {}

  void send(const PipelineMessage& message, int to, const Tensors& tensors) override;
  void post_receive(const PipelineMessage& message, int from) override;
  /// A buffer is used again when nobody holds its tensor, or a view of it.
  Tensors take(const PipelineMessage& message) override;
  void set_gradient_forms(int stage, TensorForms forms) override;
  void finish() override;

  /// For tests: how many there are.
  size_t num_buffers() const { return buffers_.size(); }

 private:
  struct Sent {
    Handle handle;
    torch::Tensor tensor;
  };
  struct Received {
    explicit Received(int from_) : from(from_) {}
    int from;
    bool posted = false;
    std::vector<Handle> handles;
    Tensors tensors;
  };
  struct AwaitedForms {
    Handle handle;
    torch::Tensor values;
  };

  uint32_t tag_of(const PipelineMessage& message, size_t tensor, bool is_form = false) const;
  void start_send(const torch::Tensor& tensor, int to, uint32_t tag);
  const TensorForms* known_forms(const PipelineMessage& message);
  void post_line(int from);
  void learn_forms(int stage);
  torch::Tensor lend(const TensorForm& form);
  void wait(Handle& handle);

  Communicator& comm_;
  const torch::Device device_;
  std::vector<torch::Tensor> buffers_;
  std::vector<Sent> sent_;
  std::map<PipelineMessage, Received> received_;
  std::map<int, std::deque<PipelineMessage>> lines_;   ///< of each rank: what could not be posted yet
  std::map<std::pair<bool, int>, TensorForms> forms_;  ///< of messages: is_gradient, stage
  std::map<int, AwaitedForms> awaited_;                ///< of activations, by stage
  std::map<int, bool> forms_sent_;                     ///< by stage
};

}  // namespace trireme
