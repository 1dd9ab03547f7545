#include "trireme/parallel/automatic/operator_graph.h"

#include <fmt/format.h>

#include <set>

#include "trireme/base/index.h"

namespace trireme {
namespace {

/// Returns "add" for "aten::add.Tensor".
std::string short_name(const std::string& name) {
  const size_t begin = name.find("::") + 2;
  return name.substr(begin, name.find('.', begin) - begin);
}

bool is_view(const CapturedCall& call) {
  const auto& returns = call.op.schema().returns();
  if (returns.empty() || short_name(call.call.name) == "_unsafe_view") return true;
  return returns[0].alias_info() != nullptr && !returns[0].alias_info()->isWrite();
}

/// Whether autograd keeps no inputs of this operator for its gradient.
bool keeps_nothing(const std::string& name) {
  static const std::set<std::string> kLinear = {
      "add", "add_",  "sub",      "sub_",  "sum",       "mean",           "neg",
      "cat", "clone", "_to_copy", "copy_", "embedding", "slice_backward", "constant_pad_nd"};
  return kLinear.contains(name);
}

class Builder {
 public:
  Builder(const CapturedGraph& captured, std::string name) : captured_(captured) {
    made_.graph.name = std::move(name);
    made_.graph.num_layers = 1;
    made_.graph.layer_names = {"all"};
    tensor_of_.assign(captured.values().size(), -1);
    uses_.assign(captured.values().size(), 0);
    for (const CapturedCall& call : captured.calls()) {
      for (const int input : call.inputs) ++uses_[at(input)];
    }
  }

  OperatorGraph build() {
    for (int i = 0; i < captured_.num_calls(); ++i) add_call(i);
    keep_what_is_read();
    return std::move(made_);
  }

 private:
  double bytes_of(int value) const {
    return elements(captured_.value(value).sizes) * static_cast<double>(c10::elementSize(captured_.value(value).type));
  }

  int add_tensor(int value, int producer, std::string name) {
    const CapturedValue& captured = captured_.value(value);
    GraphTensor tensor{.name = std::move(name), .sizes = captured.sizes, .producer = producer};
    tensor.is_parameter = captured.kind == CapturedValue::Kind::kParameter;
    if (captured.kind == CapturedValue::Kind::kInput && !captured.sizes.empty()) tensor.batch_dim = 0;
    made_.graph.tensors.push_back(std::move(tensor));
    value_of_.push_back(value);
    return tensor_of_[at(value)] = static_cast<int>(made_.graph.tensors.size()) - 1;
  }
  int tensor(int value) {
    return tensor_of_[at(value)] >= 0 ? tensor_of_[at(value)] : add_tensor(value, -1, captured_.value(value).name);
  }
  /// A matrix that is only used transposed becomes a tensor of the graph in that form, so that its gradient's sum is
  /// counted once.
  bool fold_turned(int index) {
    const CapturedCall& call = captured_.call(index);
    const std::string name = short_name(call.call.name);
    if (name != "t" || captured_.value(call.inputs[0]).kind != CapturedValue::Kind::kParameter) return false;
    if (uses_[at(call.inputs[0])] > 1 || captured_.value(call.inputs[0]).sizes.size() != 2) return false;
    add_tensor(call.outputs[0], -1, captured_.value(call.inputs[0]).name);
    made_.graph.tensors.back().is_parameter = made_.graph.tensors.back().transposed = true;
    return true;
  }

  void add_call(int index) {
    if (fold_turned(index)) return made_.operator_of.push_back(-1);
    const CapturedCall& call = captured_.call(index);
    const int number = static_cast<int>(made_.graph.operators.size());
    GraphOperator op;
    op.name = short_name(call.call.name);
    op.call = call.call;
    for (const int input : call.inputs) op.inputs.push_back(tensor(input));
    for (const int value : call.written) {
      for (size_t i = 0; i < call.inputs.size(); ++i) {
        if (call.inputs[i] == value) op.written.push_back(static_cast<int>(i));
      }
    }
    for (const int output : call.outputs) {
      if (output >= 0) op.outputs.push_back(add_tensor(output, number, fmt::format("{}.{}", op.name, index)));
    }
    if (!is_view(call)) set_work(call, op);
    made_.operator_of.push_back(number);
    made_.call_of.push_back(index);
    made_.graph.operators.push_back(std::move(op));
  }

  void set_work(const CapturedCall& call, GraphOperator& op) const {
    OperatorWork& work = op.work;
    const auto sizes = [&](size_t input) -> const std::vector<int64_t>& {
      return captured_.value(call.inputs[input]).sizes;
    };
    if (op.name == "mm" || op.name == "convolution") {
      work.is_linear = true;
      return;
    }
    if (op.name == "addmm") {
      work.is_linear = true;
      work.factors = {1, 2};
      return;
    }
    double moved = 0;
    for (const int input : call.inputs) moved += bytes_of(input);
    for (const int output : call.outputs) moved += output >= 0 ? bytes_of(output) : 0;
    if (op.name == "bmm" || op.name == "baddbmm") {
      const size_t a = op.name == "bmm" ? 0 : 1;
      const auto real = [](int64_t n) { return static_cast<double>(n); };
      const Product p{real(sizes(a)[1]), real(sizes(a + 1)[2]), real(sizes(a)[2]), real(sizes(a)[0])};
      work.forward_products = {p};
      work.backward_products = {{p.m, p.k, p.n, p.count}, {p.k, p.n, p.m, p.count}};
      return;
    }
    if (op.name.starts_with("_scaled_dot_product")) {
      const auto &q = sizes(0), &k = sizes(1);  // [batch, heads, tokens, width]
      work.attention_flops = 4 * elements(q) * static_cast<double>(k[k.size() - 2]);
      return;
    }
    work.forward_bytes = {moved};
    work.backward_bytes = {1.5 * moved};
  }

  /// A result is kept if a later operator needs it for its gradient, possibly through views.
  void keep_what_is_read() {
    Graph& graph = made_.graph;
    std::vector<bool> needed(graph.tensors.size(), false);
    for (size_t o = graph.operators.size(); o-- > 0;) {
      const GraphOperator& op = graph.operators[o];
      const CapturedCall& call = captured_.call(made_.call_of[o]);
      const bool passes = is_view(call);
      const bool reads = !passes && !keeps_nothing(op.name);
      for (const int input : op.inputs) {
        if (reads || (passes && !op.outputs.empty() && needed[at(op.outputs[0])])) needed[at(input)] = true;
      }
    }
    for (size_t t = 0; t < graph.tensors.size(); ++t) {
      const CapturedValue& value = captured_.value(value_of_[t]);
      const int producer = graph.tensors[t].producer;
      if (producer < 0 || !needed[t] || !value.is_floating()) continue;
      if (is_view(captured_.call(made_.call_of[at(producer)]))) continue;
      graph.tensors[t].kept_bytes = static_cast<double>(c10::elementSize(value.type));
    }
  }

  const CapturedGraph& captured_;
  OperatorGraph made_;
  std::vector<int> tensor_of_;  ///< current tensor of each value: in-place operators make a new one
  std::vector<int> value_of_;   ///< value of each tensor
  std::vector<int> uses_;       ///< number of uses of each value
};

}  // namespace

OperatorGraph operator_graph(const CapturedGraph& captured, std::string name) {
  return Builder(captured, std::move(name)).build();
}

}  // namespace trireme
