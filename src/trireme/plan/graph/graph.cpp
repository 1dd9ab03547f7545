#include "trireme/plan/graph/graph.h"

#include <fmt/format.h>

#include <map>

#include "trireme/base/error.h"

namespace trireme {
namespace {

/// Signature of a layer: operators, sizes, work, and the origins of their inputs relative to the layer. Layers with
/// equal signatures are equal.
std::string signature(const Graph& graph, const std::vector<int>& operators) {
  std::string text;
  for (const int index : operators) {
    const GraphOperator& op = graph.operators[static_cast<size_t>(index)];
    text += fmt::format("{} {} {};", op.name, op.call.name, op.small_parameters);
    for (const int input : op.inputs) {
      const GraphTensor& tensor = graph.tensors[static_cast<size_t>(input)];
      const bool inside =
          tensor.producer >= 0 && graph.operators[static_cast<size_t>(tensor.producer)].layer == op.layer;
      text += fmt::format("{}:", inside ? index - tensor.producer : tensor.producer < 0 ? -1 : -2);
      for (const int64_t size : tensor.sizes) text += fmt::format("{},", size);
    }
    for (const double bytes : op.work.backward_bytes) text += fmt::format("b{}", bytes);
  }
  return text;
}

}  // namespace

double elements(const std::vector<int64_t>& sizes) {
  double product = 1;
  for (const int64_t size : sizes) product *= static_cast<double>(size);
  return product;
}

double Graph::num_parameters() const {
  double sum = 0;
  for (const GraphTensor& tensor : tensors) {
    if (tensor.is_parameter) sum += elements(tensor.sizes);
  }
  for (const GraphOperator& op : operators) sum += op.small_parameters;
  return sum;
}

void Graph::check() const {
  for (size_t index = 0; index < operators.size(); ++index) {
    const GraphOperator& op = operators[index];
    const std::string who = fmt::format("operator {} ({}) of the graph {}", op.name, op.call.name, name);
    if (op.layer < 0 || op.layer >= num_layers)
      throw Error(fmt::format("{} is in layer {} of {}", who, op.layer, num_layers));
    if (op.inputs.size() != op.call.tensors.size()) {
      throw Error(fmt::format("{} reads {} tensors, and its call {}", who, op.inputs.size(), op.call.tensors.size()));
    }
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const GraphTensor& tensor = tensors.at(static_cast<size_t>(op.inputs[i]));
      if (tensor.sizes != op.call.tensors[i]) throw Error(fmt::format("{}: the sizes of {} differ", who, tensor.name));
      if (tensor.producer >= static_cast<int>(index))
        throw Error(fmt::format("{} reads {} too early", who, tensor.name));
    }
    for (const int output : op.outputs) {
      if (tensors.at(static_cast<size_t>(output)).producer != static_cast<int>(index)) {
        throw Error(fmt::format("{}: a result belongs to another operator", who));
      }
    }
    if (!find_rule(op.call)) {
      throw Error(fmt::format("{}: no rule says how it works on parts", who),
                  "write one, as docs/mesh_tensors.md says");
    }
  }
}

Folding fold_layers(const Graph& graph, int period) {
  std::vector<std::vector<int>> of_layer(static_cast<size_t>(graph.num_layers));
  for (size_t i = 0; i < graph.operators.size(); ++i) {
    of_layer[static_cast<size_t>(graph.operators[i].layer)].push_back(static_cast<int>(i));
  }
  Folding folding;
  folding.representative.resize(graph.operators.size());
  folding.multiples.resize(graph.operators.size());
  std::map<std::string, std::vector<size_t>> seen;  // representative layers by signature
  std::map<std::string, int> count;
  for (size_t layer = 0; layer < of_layer.size(); ++layer) {
    const std::string text = signature(graph, of_layer[layer]);
    std::vector<size_t>& known = seen[text];
    const int turn = count[text]++;
    if (static_cast<int>(known.size()) < period) known.push_back(layer);
    const size_t model = known[static_cast<size_t>(turn) % known.size()];
    folding.layer_class.push_back(static_cast<int>(model));
    for (size_t i = 0; i < of_layer[layer].size(); ++i) {
      const int stands = of_layer[model][i];
      folding.representative[static_cast<size_t>(of_layer[layer][i])] = stands;
      folding.multiples[static_cast<size_t>(stands)].push_back(of_layer[layer][i]);
    }
  }
  return folding;
}

}  // namespace trireme
