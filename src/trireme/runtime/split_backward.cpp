#include "trireme/runtime/split_backward.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <unordered_map>
#include <unordered_set>

namespace trireme {
namespace {

using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::variable_list;

Node* node_of(const torch::Tensor& tensor) { return torch::autograd::impl::gradient_edge(tensor).function.get(); }

/// For every node that `roots` lead to, whether it leads to one of `targets`. A model's graph is too deep for
/// recursion.
std::unordered_map<Node*, bool> leads_to(const Tensors& targets, const Tensors& roots) {
  std::unordered_map<Node*, bool> leads;
  std::vector<std::pair<Node*, bool>> stack;
  for (const torch::Tensor& target : targets) leads.emplace(node_of(target), true);
  for (const torch::Tensor& root : roots) stack.emplace_back(node_of(root), false);
  while (!stack.empty()) {
    const auto [node, children_done] = stack.back();
    stack.pop_back();
    if (children_done) {
      for (const Edge& edge : node->next_edges()) {
        if (edge.is_valid() && leads[edge.function.get()]) leads[node] = true;
      }
    } else if (leads.try_emplace(node, false).second) {
      stack.emplace_back(node, true);
      for (const Edge& edge : node->next_edges()) {
        if (edge.is_valid()) stack.emplace_back(edge.function.get(), false);
      }
    }
  }
  return leads;
}

}  // namespace

/// A node that leads to an input and, by another edge, to weights only.
struct SplitBackward::WeightNode {
  std::shared_ptr<Node> node;
  std::vector<size_t> edges_to_inputs;
  std::shared_ptr<variable_list> arrived;  ///< the hook only has a weak pointer: once this is reset, it keeps nothing
};

class SplitBackward::Keep : public torch::autograd::FunctionPreHook {
 public:
  explicit Keep(std::weak_ptr<variable_list> arrived) : arrived_(std::move(arrived)) {}
  variable_list operator()(const variable_list& gradients) override {
    if (const auto arrived = arrived_.lock()) *arrived = gradients;
    return gradients;
  }

 private:
  std::weak_ptr<variable_list> arrived_;
};

SplitBackward::SplitBackward(Tensors outputs, Tensors inputs)
    : outputs_(std::move(outputs)), inputs_(std::move(inputs)) {}

SplitBackward::~SplitBackward() = default;

Tensors SplitBackward::run_inputs(const Tensors& gradients) {
  Tensors wanted;
  for (const torch::Tensor& input : inputs_) {
    if (input.requires_grad()) wanted.push_back(input);
  }
  // If nothing was computed from a leaf, nobody else keeps its node alive.
  std::vector<std::shared_ptr<Node>> alive;
  for (const torch::Tensor& input : wanted) alive.push_back(torch::autograd::impl::gradient_edge(input).function);
  const std::unordered_map<Node*, bool> leads = leads_to(wanted, outputs_);
  Tensors roots, root_gradients;
  for (size_t i = 0; i < outputs_.size(); ++i) {
    torch::Tensor gradient = gradients.empty() ? torch::ones_like(outputs_[i]) : gradients[i];
    const bool is_first_half = leads.at(node_of(outputs_[i]));
    (is_first_half ? root_gradients : root_gradients_).push_back(std::move(gradient));
    if (is_first_half) {
      roots.push_back(outputs_[i]);
    } else {
      roots_.push_back(torch::autograd::impl::gradient_edge(outputs_[i]));
    }
  }
  find_weight_nodes(leads);
  Tensors found;
  if (!roots.empty()) {
    found = torch::autograd::grad(roots, wanted, root_gradients, /*retain_graph=*/true, /*create_graph=*/false,
                                  /*allow_unused=*/true);
  }
  Tensors results;
  for (size_t i = 0, next = 0; i < inputs_.size(); ++i) {
    const bool has_one = !found.empty() && inputs_[i].requires_grad();
    results.push_back(has_one ? found[next++] : torch::Tensor());
  }
  cut();
  return results;
}

/// Finds weight nodes among the nodes that lead to inputs.
void SplitBackward::find_weight_nodes(const std::unordered_map<Node*, bool>& leads) {
  std::unordered_set<Node*> seen;
  for (const torch::Tensor& input : inputs_) {
    if (input.requires_grad()) seen.insert(node_of(input));
  }
  std::vector<std::shared_ptr<Node>> stack;
  for (const torch::Tensor& output : outputs_) {
    if (leads.at(node_of(output))) stack.push_back(torch::autograd::impl::gradient_edge(output).function);
  }
  while (!stack.empty()) {
    const std::shared_ptr<Node> node = std::move(stack.back());
    stack.pop_back();
    if (!seen.insert(node.get()).second) continue;
    WeightNode found{node, {}, nullptr};
    bool has_weights = false;
    for (size_t i = 0; i < node->next_edges().size(); ++i) {
      const Edge& edge = node->next_edge(i);
      if (!edge.is_valid()) continue;
      if (leads.at(edge.function.get())) {
        found.edges_to_inputs.push_back(i);
        stack.push_back(edge.function);
      } else {
        has_weights = true;
      }
    }
    if (!has_weights) continue;
    found.arrived = std::make_shared<variable_list>();
    node->add_pre_hook(std::make_unique<Keep>(found.arrived));
    weight_nodes_.push_back(std::move(found));
  }
}

/// Afterwards no weight node leads to another one, and only what the second half needs is alive.
void SplitBackward::cut() {
  for (WeightNode& weight_node : weight_nodes_) {
    for (const size_t edge : weight_node.edges_to_inputs) weight_node.node->next_edges()[edge] = Edge();
  }
  outputs_.clear();
  inputs_.clear();
}

void SplitBackward::run_weights() {
  for (WeightNode& weight_node : weight_nodes_) {
    const variable_list arrived = std::move(*std::exchange(weight_node.arrived, nullptr));
    for (size_t i = 0; i < arrived.size(); ++i) {
      if (!arrived[i].defined()) continue;
      roots_.emplace_back(weight_node.node, static_cast<uint32_t>(i));
      root_gradients_.push_back(arrived[i]);
    }
  }
  weight_nodes_.clear();
  if (roots_.empty()) return;
  const torch::autograd::edge_list roots = std::exchange(roots_, {});
  const Tensors gradients = std::exchange(root_gradients_, {});
  torch::autograd::Engine::get_default_engine().execute(roots, gradients, /*keep_graph=*/false, /*create_graph=*/false,
                                                        /*accumulate_grad=*/true);
}

}  // namespace trireme
