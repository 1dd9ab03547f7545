// Activations and gradients between the ranks of a pipeline: posted, waited for where they are needed, in buffers that
// are used again.
//
// [Note: Shapes in a pipeline]
// Shapes are learnt once: with the first activation of a stage travels a message that says its shape and type, and
// from then on they are fixed. Until a receiver knows them, it cannot post: such a receive, and those from the same
// rank after it, wait in line, so that the order of a channel stays the one of its sends. Gradients have the shapes of
// what they are gradients of.
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
/// As numbers that travel; always as many. Throws UsageError for too many dims.
torch::Tensor form_to_numbers(const TensorForm& form);
TensorForm form_from_numbers(const torch::Tensor& numbers);
torch::Tensor empty_form();

/// Outside of a program: a tensor that says its own form. They block until it has gone, or come.
void send_tensor(Communicator& comm, const torch::Tensor& tensor, int to);
torch::Tensor receive_tensor(Communicator& comm, int from, const torch::Device& device);

/// What an executor asks of whatever carries its messages. `to` and `from` count along the pipeline.
class StageMessages {
 public:
  virtual ~StageMessages() = default;
  /// The tensor is kept until it has gone; nobody may change it before.
  virtual void send(const PipelineMessage& message, int to, const torch::Tensor& tensor) = 0;
  virtual void post_receive(const PipelineMessage& message, int from) = 0;
  /// Waits for a message that was posted.
  virtual torch::Tensor take(const PipelineMessage& message) = 0;
  /// Gradients of a stage's output will look like this.
  virtual void set_gradient_form(int stage, TensorForm form) = 0;
  /// Waits until everything that was sent has gone.
  virtual void finish() = 0;
};

/// From one rank to another.
class PipelineMessages : public StageMessages {
 public:
  /// `num_micro_batches`: of the whole step, so that each message has a tag of its own.
  PipelineMessages(Communicator& comm, int num_micro_batches, torch::Device device);

  void send(const PipelineMessage& message, int to, const torch::Tensor& tensor) override;
  void post_receive(const PipelineMessage& message, int from) override;
  /// The buffer is used again when nobody holds the tensor, or a view of it.
  torch::Tensor take(const PipelineMessage& message) override;
  void set_gradient_form(int stage, TensorForm form) override;
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
    Handle handle;
    torch::Tensor tensor;
  };
  struct AwaitedForm {
    Handle handle;
    torch::Tensor values;
  };

  uint32_t tag_of(const PipelineMessage& message, bool is_form = false) const;
  const TensorForm* known_form(const PipelineMessage& message);
  void post_line(int from);
  void learn_form(int stage);
  torch::Tensor lend(const TensorForm& form);
  void wait(Handle& handle);

  Communicator& comm_;
  const uint32_t num_micro_batches_;
  const torch::Device device_;
  std::vector<torch::Tensor> buffers_;
  std::vector<Sent> sent_;
  std::map<PipelineMessage, Received> received_;
  std::map<int, std::deque<PipelineMessage>> lines_;  ///< of each rank: what could not be posted yet
  std::map<std::pair<bool, int>, TensorForm> forms_;  ///< of messages: is_gradient, stage
  std::map<int, AwaitedForm> awaited_;                ///< of activations, by stage
  std::map<int, bool> form_sent_;                     ///< by stage
};

}  // namespace trireme
