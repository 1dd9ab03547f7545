// What a module computes, operator by operator: recorded by running it once on tensors without data.
//
//   CapturedGraph graph = capture(*model, {x, y}, [&](const auto& in) { return loss(model->forward(in[0]), in[1]); });
//   std::vector<at::Tensor> values = graph.start({x, y});
//   graph.run(0, graph.num_calls(), values);                  // the same operators again, on real tensors
//
// The operators are those that mesh tensors see: below autograd, composites taken apart unless a rule knows them.
// Running them again goes through autograd, so that what was captured can be trained.
//
// [Note: Tensors without data]
// While a module is captured its parameters and inputs are outer tensors as mesh tensors are ([Note: Mesh tensor]),
// without a mesh; the local tensor is one of libtorch's device Meta, whose operators only compute sizes. An operator
// that has no such form is run once on zeros. What reads the value of a tensor cannot be captured.
#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/tensor/decision.h"

namespace trireme {

struct CapturedValue {
  enum class Kind : uint8_t { kInput, kParameter, kBuffer, kConstant, kResult };
  Kind kind = Kind::kResult;
  std::string name = {};  ///< of parameters and buffers; inputs are "input 0", …
  std::vector<int64_t> sizes = {};
  at::ScalarType type = at::kFloat;
  int producer = -1;       ///< the call that makes it
  at::Tensor tensor = {};  ///< the module's own, or a constant; others have none
  bool is_floating() const { return at::isFloatingType(type); }
};

struct CapturedCall {
  c10::OperatorHandle op;
  OpCall call;                         ///< as the rules of layout/ read it
  std::vector<c10::IValue> arguments;  ///< tensors are left out
  std::vector<int> inputs;             ///< the value of each tensor of `call`
  std::vector<int> written;            ///< values that it changes in place
  std::vector<int> outputs;  ///< of each tensor result, -1 where it is none; of one that is an argument, its value
};

class CapturedGraph {
 public:
  const std::vector<CapturedValue>& values() const { return values_; }
  const std::vector<CapturedCall>& calls() const { return calls_; }
  int num_calls() const { return static_cast<int>(calls_.size()); }
  const CapturedValue& value(int index) const { return values_[static_cast<size_t>(index)]; }
  const CapturedCall& call(int index) const { return calls_[static_cast<size_t>(index)]; }
  const std::vector<int>& inputs() const { return inputs_; }
  int output() const { return output_; }
  /// Names that mark() gave, with the first call behind each.
  const std::vector<std::pair<std::string, int>>& marks() const { return marks_; }
  /// The name of the parameter that was used last before a call; for messages.
  std::string near(int call) const;

  /// One tensor a value: inputs as given, parameters, buffers and constants as they are, results undefined.
  std::vector<at::Tensor> start(const std::vector<at::Tensor>& inputs) const;
  /// Runs calls [first, last) on what lies in `values`, and leaves results there that later calls read. `place` may
  /// replace a tensor before a call uses it. Throws what operators throw.
  using Place = std::function<at::Tensor(int call, size_t tensor, const at::Tensor& value)>;
  void run(int first, int last, std::vector<at::Tensor>& values, const Place& place = {}) const;
  /// The last call that reads a value; the one that makes it where none does.
  int last_use(int value) const { return last_use_[static_cast<size_t>(value)]; }

 private:
  friend class Recorder;
  void run_call(int index, std::vector<at::Tensor>& values, const Place& place) const;

  std::vector<CapturedValue> values_;
  std::vector<CapturedCall> calls_;
  std::vector<int> inputs_;
  int output_ = -1;
  std::vector<std::pair<std::string, int>> marks_;
  std::vector<int> last_use_;  ///< of each value: the call behind which nobody reads it
};

/// `function` runs once, with stand-ins for the examples, of which only sizes and types are read. The module is as it
/// was afterwards. Not for several threads with one module. Throws Error for what cannot be captured, and names the
/// operator and where in the module it is: a value that is read, sizes that depend on values, a result that no input
/// or parameter has made.
CapturedGraph capture(torch::nn::Module& module, const std::vector<at::Tensor>& examples,
                      const std::function<at::Tensor(const std::vector<at::Tensor>&)>& function);

/// Names a point of a module, where it may be cut: in forward(), `x = mark(x, "encoder")`. Gives back `x`; costs
/// nothing outside of capture().
at::Tensor mark(const at::Tensor& x, const std::string& name);

/// For the fallback of mesh tensors: a call with a tensor that is being captured.
void record_call(const c10::OperatorHandle& op, const OperatorInfo& info, torch::jit::Stack& stack);

}  // namespace trireme
