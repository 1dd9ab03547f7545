// Activations and gradients between the ranks of a pipeline: receives are posted early and waited for when the data is
// needed, and buffers are reused.
//
// [Note: Shapes in a pipeline]
// What crosses a cut is a list of tensors: one for a chain of layers, more if skip connections or a second input cross;
// some may be integers. Gradients come back for floating-point tensors only. Shapes are learned once: the first
// activations of a stage come with a message that holds their shapes and dtypes, which are fixed from then on. Until a
// receiver knows them, it cannot post: such a receive, and later ones from the same rank, wait in line, so that
// receives keep the order of the sends. Gradients have the shapes of what they are gradients of.
//
// Owner: Executor or StepEngine. Threads: one. Blocking: take() and finish(), and send() of AnyShapeMessages, each wait
// with the communicator's timeout. Fails with CommError. Unless finish() has returned, destroy the communicator before
// the messages.
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

/// Shape and dtype of a tensor.
struct TensorForm {
  std::vector<int64_t> sizes;
  torch::ScalarType type = torch::kFloat32;
  bool operator==(const TensorForm&) const = default;
  /// "[4, 16] Float"
  std::string to_string() const;
};
TensorForm form_of(const torch::Tensor& tensor);

/// Forms of the tensors that cross a cut.
using TensorForms = std::vector<TensorForm>;
constexpr size_t kMostTensors = 32;  ///< tensors in a message
constexpr size_t kMostAhead = 8;     ///< messages of forward passes that a rank may send ahead of its receiver
TensorForms forms_of(const Tensors& tensors);
/// "[4, 16] Float, [4] Long"
std::string to_string(const TensorForms& forms);
/// Encodes forms as a message of fixed length. Throws UsageError for too many tensors or dims.
torch::Tensor forms_to_numbers(const TensorForms& forms);
TensorForms forms_from_numbers(const torch::Tensor& numbers);
/// A buffer that receives such a message.
torch::Tensor empty_forms();

/// Send and receive tensors outside of a program, forms first. Both block until everything has been sent or received.
void send_tensor(Communicator& comm, const torch::Tensor& tensor, int to);
Tensors receive_tensors(Communicator& comm, int from, const torch::Device& device);
inline torch::Tensor receive_tensor(Communicator& comm, int from, const torch::Device& device) {
  return receive_tensors(comm, from, device).at(0);
}

/// The transport of an executor's messages. `to` and `from` are ranks along the pipeline.
class StageMessages {
 public:
  virtual ~StageMessages() = default;
  /// Keeps the tensors until they are sent; nobody may change them before.
  virtual void send(const PipelineMessage& message, int to, const Tensors& tensors) = 0;
  virtual void post_receive(const PipelineMessage& message, int from) = 0;
  /// Waits for a message whose receive was posted.
  virtual Tensors take(const PipelineMessage& message) = 0;
  /// Sets the forms of the gradients of a stage's outputs.
  virtual void set_gradient_forms(int stage, TensorForms forms) = 0;
  /// Waits until all sends are done.
  virtual void finish() = 0;
};

/// Messages from rank to rank in any shapes: forms precede every message, which is received when it is used.
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
  std::deque<std::vector<std::pair<Handle, torch::Tensor>>> sent_;  ///< one entry per message
};

/// Messages from rank to rank in fixed shapes.
class PipelineMessages : public StageMessages {
 public:
  PipelineMessages(Communicator& comm, torch::Device device) : comm_(comm), device_(device) {}

  void send(const PipelineMessage& message, int to, const Tensors& tensors) override;
  void post_receive(const PipelineMessage& message, int from) override;
  /// A buffer is reused when nobody holds its tensor, or a view of it.
  Tensors take(const PipelineMessage& message) override;
  void set_gradient_forms(int stage, TensorForms forms) override;
  void finish() override;

  /// Number of receive buffers, for tests.
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
  std::map<int, std::deque<PipelineMessage>> lines_;   ///< keyed by rank: receives that cannot be posted yet
  std::map<std::pair<bool, int>, TensorForms> forms_;  ///< keyed by is_gradient and stage
  std::map<int, AwaitedForms> awaited_;                ///< forms of activations, keyed by stage
  std::map<int, bool> forms_sent_;                     ///< stages whose forms were sent
};

}  // namespace trireme
