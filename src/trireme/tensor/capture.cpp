#include "trireme/tensor/capture.h"

#include <ATen/ops/zeros.h>
#include <c10/core/Storage.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/tensor/arguments.h"
#include "trireme/tensor/host_shared_tensor.h"

namespace trireme {

class Recorder;

namespace {

/// A stand-in on Meta, with the recorder and the value that it represents.
struct CapturedSpec : MeshSpec {
  CapturedSpec(at::Tensor stand_in, const MeshLayout* lies, Recorder* by, int number)
      : MeshSpec(std::move(stand_in), nullptr, lies), recorder(by), value(number) {}
  Recorder* recorder;
  int value;
};

const CapturedSpec* captured_spec(const at::Tensor& tensor) {
  const MeshSpec* spec = tensor.defined() ? mesh_spec(tensor) : nullptr;
  return spec && !spec->mesh ? static_cast<const CapturedSpec*>(spec) : nullptr;
}

const MeshLayout* no_layout() {
  static const MeshLayout layout{.placements = {}, .is_replicated = false, .has_partial = false, .text = "no data"};
  return &layout;
}

at::Tensor on_meta(const at::Tensor& tensor) { return tensor.to(at::kMeta); }

}  // namespace

/// Owns the graph during capture.
class Recorder {
 public:
  CapturedGraph graph;

  int add(CapturedValue value) {
    graph.values_.push_back(std::move(value));
    return static_cast<int>(graph.values_.size()) - 1;
  }

  /// Makes an outer tensor around a stand-in.
  at::Tensor wrap(at::Tensor meta, int value, c10::Device device) {
    const at::Tensor like = at::empty({0}, meta.options().device(device));
    c10::Storage storage(c10::Storage::use_byte_size_t(), 0, c10::DataPtr(nullptr, device), nullptr, false);
    storage.unsafeGetStorageImpl()->release_data_and_set_meta_custom_data_ptr_error_msg_(
        std::string("a module that is being captured has no data: its forward() may not read elements"));
    auto impl = c10::make_intrusive<c10::TensorImpl>(std::move(storage), like.key_set().add(c10::DispatchKey::Fake),
                                                     meta.dtype());
    impl->set_sizes_and_strides(meta.sizes(), meta.strides());
    impl->set_storage_offset(meta.storage_offset());
    impl->set_backend_meta(c10::make_intrusive<CapturedSpec>(std::move(meta), no_layout(), this, value));
    return at::Tensor(std::move(impl));
  }

  at::Tensor stand_in(CapturedValue::Kind kind, std::string name, const at::Tensor& tensor) {
    const int value = add({.kind = kind,
                           .name = std::move(name),
                           .sizes = tensor.sizes().vec(),
                           .type = tensor.scalar_type(),
                           .tensor = kind == CapturedValue::Kind::kInput ? at::Tensor() : tensor});
    if (kind == CapturedValue::Kind::kInput) graph.inputs_.push_back(value);
    return wrap(on_meta(tensor.detach()), value, tensor.device());
  }

  void record(const c10::OperatorHandle& op, const OperatorInfo& info, torch::jit::Stack& stack) {
    const size_t begin = stack.size() - info.num_arguments;
    std::vector<c10::IValue> given(stack.begin() + static_cast<std::ptrdiff_t>(begin), stack.end());
    if (info.name == "aten::_fused_sdp_choice") return choose_attention(op, begin, stack);
    if (op.hasTag(at::Tag::data_dependent_output) || op.hasTag(at::Tag::dynamic_output_shape)) refuse(info.name);
    CapturedCall call{op, {}, given, {}, {}, {}};
    const CallReading reading(info, given);
    call.call = reading.call;
    c10::Device device = at::kCPU;
    for (const at::Tensor& tensor : reading.tensors) {
      if (captured_spec(tensor)) device = tensor.device();
      call.inputs.push_back(value_of(tensor));
    }
    for (const int i : reading.written) call.written.push_back(call.inputs[static_cast<size_t>(i)]);
    for (c10::IValue& argument : call.arguments) {
      change_tensors(argument, [](const at::Tensor&) { return at::Tensor(); });
    }
    compute(op, info, begin, stack);
    const int index = graph.num_calls();
    const size_t results = stack.size() - info.returned.size();
    for (size_t i = 0; i < info.returned.size(); ++i) {
      c10::IValue& result = stack[results + i];
      if (info.returned[i] >= 0) {
        result = given[static_cast<size_t>(info.returned[i])];
        each_tensor({&result, 1}, [&](const at::Tensor& tensor) { call.outputs.push_back(value_of(tensor)); });
        continue;
      }
      if (!result.isTensor() && !result.isTensorList() && !result.isOptionalTensorList() && !result.isNone()) {
        refuse(info.name);
      }
      change_tensors(result, [&](const at::Tensor& tensor) {
        if (!tensor.defined()) {
          call.outputs.push_back(-1);
          return tensor;
        }
        call.outputs.push_back(add({.sizes = tensor.sizes().vec(), .type = tensor.scalar_type(), .producer = index}));
        return wrap(tensor, call.outputs.back(), device);
      });
    }
    graph.calls_.push_back(std::move(call));
  }

  void mark(const std::string& name) { graph.marks_.emplace_back(name, graph.num_calls()); }
  void finish(int output) {
    graph.output_ = output;
    for (const CapturedValue& value : graph.values_) graph.last_use_.push_back(value.producer);
    for (int i = 0; i < graph.num_calls(); ++i) {
      for (const int input : graph.call(i).inputs) graph.last_use_[static_cast<size_t>(input)] = i;
    }
    graph.last_use_[static_cast<size_t>(output)] = graph.num_calls();
  }

 private:
  /// A plain tensor used together with captured ones was made in the module: a constant.
  int value_of(const at::Tensor& tensor) {
    if (const CapturedSpec* spec = captured_spec(tensor)) return spec->value;
    const auto [entry, is_new] = constants_.try_emplace(tensor.unsafeGetTensorImpl(), -1);
    if (is_new) {
      entry->second = add({.kind = CapturedValue::Kind::kConstant,
                           .name = "constant",
                           .sizes = tensor.sizes().vec(),
                           .type = tensor.scalar_type(),
                           .tensor = tensor});
    }
    return entry->second;
  }

  /// Runs the operator on Meta, or on zeros.
  void compute(const c10::OperatorHandle& op, const OperatorInfo& info, size_t begin, torch::jit::Stack& stack) {
    const std::vector<c10::IValue> given(stack.begin() + static_cast<std::ptrdiff_t>(begin), stack.end());
    const auto with = [&](auto change) {
      stack.resize(begin);
      for (c10::IValue value : given) {
        change_tensors(value, [&](const at::Tensor& tensor) { return tensor.defined() ? change(tensor) : tensor; });
        stack.push_back(std::move(value));
      }
      op.callBoxed(stack);
    };
    const at::NoGradGuard no_grad;
    try {
      with([](const at::Tensor& tensor) {
        return captured_spec(tensor) ? captured_spec(tensor)->local() : on_meta(tensor.detach());
      });
    } catch (const c10::NotImplementedError&) {
      if (info.changes_in_place) throw;
      with([](const at::Tensor& tensor) {
        return captured_spec(tensor) ? at::zeros(tensor.sizes(), tensor.options()) : tensor;
      });
      for (size_t i = begin; i < stack.size(); ++i) {
        change_tensors(stack[i], [](const at::Tensor& t) { return t.defined() ? on_meta(t) : t; });
      }
    }
  }

  /// libtorch's choice of attention kernel depends only on device and sizes.
  static void choose_attention(const c10::OperatorHandle& op, size_t begin, torch::jit::Stack& stack) {
    for (size_t i = begin; i < stack.size(); ++i) {
      change_tensors(stack[i], [](const at::Tensor& tensor) {
        return captured_spec(tensor) ? without_memory(tensor.sizes(), tensor.options()) : tensor;
      });
    }
    op.callBoxed(stack);
  }

  [[noreturn]] void refuse(const std::string& name) const {
    const std::string near = graph.near(graph.num_calls());  // a parameter; its module is the part before the last dot
    const size_t dot = near.rfind('.');
    const std::string module =
        dot == std::string::npos ? "" : fmt::format("in or behind the module {}, ", near.substr(0, dot));
    throw Error(fmt::format("{} reads the values of a tensor{}, so what the module computes depends on its data, and "
                            "cannot be captured",
                            name, near.empty() ? "" : fmt::format(", {}behind the use of {}", module, near)),
                "let forward() compute the same operators for all data (torch::where instead of if), or parallelize "
                "the parts around it");
  }

  std::map<const void*, int> constants_;
};

void record_call(const c10::OperatorHandle& op, const OperatorInfo& info, torch::jit::Stack& stack) {
  Recorder* recorder = nullptr;
  each_tensor({stack.data() + stack.size() - info.num_arguments, info.num_arguments}, [&](const at::Tensor& tensor) {
    if (const CapturedSpec* spec = captured_spec(tensor)) recorder = spec->recorder;
  });
  recorder->record(op, info, stack);
}

at::Tensor mark(const at::Tensor& x, const std::string& name) {
  if (const CapturedSpec* spec = captured_spec(x)) spec->recorder->mark(name);
  return x;
}

namespace {

/// Replaces parameters and buffers by stand-ins while it lives.
class Borrowed {
 public:
  Borrowed(torch::nn::Module& module, Recorder& recorder) {
    using Kind = CapturedValue::Kind;
    const at::NoGradGuard no_grad;
    for (const auto& item : module.named_parameters()) replace(item.key(), Kind::kParameter, item.value(), recorder);
    for (const auto& item : module.named_buffers()) replace(item.key(), Kind::kBuffer, item.value(), recorder);
  }
  ~Borrowed() {
    const at::NoGradGuard no_grad;
    for (auto& [tensor, data] : own_) tensor.set_data(data);
  }
  Borrowed(const Borrowed&) = delete;

 private:
  void replace(const std::string& name, CapturedValue::Kind kind, at::Tensor tensor, Recorder& recorder) {
    if (!tensor.defined() || captured_spec(tensor)) return;  // or replaced already under another name
    own_.emplace_back(tensor, tensor.tensor_data());
    tensor.set_data(recorder.stand_in(kind, name, tensor));
  }
  std::vector<std::pair<at::Tensor, at::Tensor>> own_;
};

}  // namespace

CapturedGraph capture(torch::nn::Module& module, const std::vector<at::Tensor>& examples,
                      const std::function<at::Tensor(const std::vector<at::Tensor>&)>& function) {
  Recorder recorder;
  const Borrowed borrowed(module, recorder);
  std::vector<at::Tensor> inputs;
  for (size_t i = 0; i < examples.size(); ++i) {
    inputs.push_back(recorder.stand_in(CapturedValue::Kind::kInput, fmt::format("input {}", i), examples[i]));
  }
  const at::Tensor output = function(inputs);
  const CapturedSpec* spec = captured_spec(output);
  if (!spec) throw Error("the captured function gives a tensor that neither its inputs nor its parameters have made");
  recorder.finish(spec->value);
  return std::move(recorder.graph);
}

std::string CapturedGraph::near(int call) const {
  for (int i = std::min(call, num_calls()); i-- > 0;) {
    for (const int input : this->call(i).inputs) {
      if (value(input).kind == CapturedValue::Kind::kParameter) return value(input).name;
    }
  }
  return "";
}

std::vector<at::Tensor> CapturedGraph::start(const std::vector<at::Tensor>& inputs) const {
  if (inputs.size() != inputs_.size()) {
    throw UsageError(fmt::format("{} inputs for a graph that was captured with {}", inputs.size(), inputs_.size()));
  }
  std::vector<at::Tensor> tensors;
  tensors.reserve(values_.size());
  for (const CapturedValue& value : values_) tensors.push_back(value.tensor);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].defined() && inputs[i].sizes() != at::IntArrayRef(value(inputs_[i]).sizes)) {
      throw UsageError(fmt::format("input {} has other sizes than it was captured with", i),
                       "let every batch have the same sizes, and leave a last one that is shorter out");
    }
    tensors[static_cast<size_t>(inputs_[i])] = inputs[i];
  }
  return tensors;
}

void CapturedGraph::run_call(int index, std::vector<at::Tensor>& values, const Place& place) const {
  const CapturedCall& call = this->call(index);
  torch::jit::Stack stack = call.arguments;
  size_t tensor = 0;
  const auto next = [&](int which) {
    if (which < 0) return at::Tensor();
    const at::Tensor& value = values[static_cast<size_t>(call.inputs[static_cast<size_t>(which)])];
    return place ? place(index, tensor++, value) : value;
  };
  for (size_t i = 0; i < stack.size(); ++i) {
    if (const auto* one = std::get_if<TensorArgument>(&call.call.arguments[i])) {
      if (!stack[i].isNone()) stack[i] = next(one->index);
    } else if (const auto* list = std::get_if<TensorListArgument>(&call.call.arguments[i])) {
      size_t at = 0;
      change_tensors(stack[i], [&](const at::Tensor&) {
        while (list->indices[at] < 0) ++at;
        return next(list->indices[at++]);
      });
    }
  }
  call.op.callBoxed(stack);
  size_t output = 0;
  for (const c10::IValue& result : stack) {
    each_result(result, [&](const at::Tensor& made) {
      const int value = call.outputs[output++];
      if (value >= 0) values[static_cast<size_t>(value)] = made;
    });
  }
}

void CapturedGraph::run(int first, int last, std::vector<at::Tensor>& values, const Place& place) const {
  for (int i = first; i < last; ++i) {
    run_call(i, values, place);
    for (const auto* list : {&call(i).inputs, &call(i).outputs}) {
      for (const int v : *list) {
        if (v >= 0 && value(v).producer >= 0 && last_use(v) <= i) values[static_cast<size_t>(v)].reset();
      }
    }
  }
}

}  // namespace trireme
