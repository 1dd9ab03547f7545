// Captures what a module computes, operator by operator, by running it once on tensors without data.
//
//   CapturedGraph graph = capture(*model, {x, y}, [&](const auto& in) { return loss(model->forward(in[0]), in[1]); });
//   std::vector<at::Tensor> values = graph.start({x, y});
//   graph.run(0, graph.num_calls(), values);                  // the same operators again, on real tensors
//
// The operators are those that mesh tensors see: below autograd, composites decomposed unless a rule covers them.
// Running the graph goes through autograd, so a captured module can be trained.
//
// [Note: Tensors without data]
// During capture, a module's parameters and inputs are outer tensors as for mesh tensors ([Note: Mesh tensor]), but
// without a mesh; the local tensor is on libtorch's Meta device, whose operators only compute sizes. An operator
// without a Meta kernel is run once on zeros. Anything that reads the value of a tensor cannot be captured.
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
  std::string name = {};  ///< name of a parameter or buffer; inputs are "input 0", …
  std::vector<int64_t> sizes = {};
  at::ScalarType type = at::kFloat;
  int producer = -1;       ///< the call that produces it; -1 if none does
  at::Tensor tensor = {};  ///< a parameter, buffer or constant of the module; undefined for others
  bool is_floating() const { return at::isFloatingType(type); }
};

struct CapturedCall {
  c10::OperatorHandle op;
  OpCall call;                         ///< as the rules of layout/ read it
  std::vector<c10::IValue> arguments;  ///< without the tensors
  std::vector<int> inputs;             ///< the value of each tensor of `call`
  std::vector<int> written;            ///< values that the call changes in place
  std::vector<int> outputs;  ///< value of each tensor result, -1 if it is undefined; for a result that is an argument,
                             ///< that argument's value
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
  /// Names given by mark(), each with the first call after it.
  const std::vector<std::pair<std::string, int>>& marks() const { return marks_; }
  /// The name of the last parameter used before a call; for messages.
  std::string near(int call) const;

  /// One tensor per value: inputs as given; parameters, buffers and constants as they are; results undefined.
  std::vector<at::Tensor> start(const std::vector<at::Tensor>& inputs) const;
  /// Runs calls [first, last) on the tensors in `values`, and stores the results that later calls read. `place` may
  /// replace a tensor before a call uses it. Throws what operators throw.
  using Place = std::function<at::Tensor(int call, size_t tensor, const at::Tensor& value)>;
  void run(int first, int last, std::vector<at::Tensor>& values, const Place& place = {}) const;
  /// The last call that reads a value; if none does, the call that produces it.
  int last_use(int value) const { return last_use_[static_cast<size_t>(value)]; }

 private:
  friend class Recorder;
  void run_call(int index, std::vector<at::Tensor>& values, const Place& place) const;

  std::vector<CapturedValue> values_;
  std::vector<CapturedCall> calls_;
  std::vector<int> inputs_;
  int output_ = -1;
  std::vector<std::pair<std::string, int>> marks_;
  std::vector<int> last_use_;  ///< the call after which nobody reads each value
};

/// Runs `function` once, with stand-ins for the examples, of which only sizes and dtypes are read. The module is
/// unchanged afterwards. Not for several threads with one module. Throws Error, naming the operator and its place in
/// the module, for what cannot be captured: reading a value, sizes that depend on values, a result that does not depend
/// on any input or parameter.
CapturedGraph capture(torch::nn::Module& module, const std::vector<at::Tensor>& examples,
                      const std::function<at::Tensor(const std::vector<at::Tensor>&)>& function);

/// Names a point of a module at which it may be split: in forward(), `x = mark(x, "encoder")`. Returns `x`; free
/// outside of capture().
at::Tensor mark(const at::Tensor& x, const std::string& name);

/// For the mesh tensor fallback: records a call with a tensor that is being captured.
void record_call(const c10::OperatorHandle& op, const OperatorInfo& info, torch::jit::Stack& stack);

}  // namespace trireme
