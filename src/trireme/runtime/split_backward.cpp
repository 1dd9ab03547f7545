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

/// Which nodes lead to `target`, of all that `root` leads to. A model's graph is too deep for recursion.
std::unordered_map<Node*, bool> leads_to(Node* target, Node* root) {
  std::unordered_map<Node*, bool> leads{{target, true}};
  std::vector<std::pair<Node*, bool>> stack{{root, false}};
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

/// A node that leads to the input, and by another edge to weights alone.
struct SplitBackward::WeightNode {
  std::shared_ptr<Node> node;
  std::vector<size_t> edges_to_input;
  std::shared_ptr<variable_list> arrived;  ///< shared with the hook; null there: it keeps nothing
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

SplitBackward::SplitBackward(torch::Tensor output, torch::Tensor input)
    : output_(std::move(output)), input_(std::move(input)) {}

SplitBackward::~SplitBackward() = default;

void SplitBackward::find_weight_nodes() {
  const std::shared_ptr<Node> root = output_.grad_fn();
  Node* const target = torch::autograd::impl::gradient_edge(input_).function.get();
  std::unordered_map<Node*, bool> leads = leads_to(target, root.get());
  whole_ = !leads[root.get()];
  if (whole_) return;
  std::unordered_set<Node*> seen{target};
  std::vector<std::shared_ptr<Node>> stack{root};
  while (!stack.empty()) {
    const std::shared_ptr<Node> node = std::move(stack.back());
    stack.pop_back();
    if (!seen.insert(node.get()).second) continue;
    WeightNode found{node, {}, nullptr};
    bool has_weights = false;
    for (size_t i = 0; i < node->next_edges().size(); ++i) {
      const Edge& edge = node->next_edge(i);
      if (!edge.is_valid()) continue;
      if (leads[edge.function.get()]) {
        found.edges_to_input.push_back(i);
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

torch::Tensor SplitBackward::run_input(const torch::Tensor& gradient) {
  if (output_.is_same(input_)) {  // a stage that does nothing
    whole_ = false;
    output_.reset();
    return gradient.defined() ? gradient : torch::ones_like(std::exchange(input_, {}));
  }
  if (!output_.grad_fn()) {
    output_.reset();
    return {};
  }
  if (input_.requires_grad()) {
    find_weight_nodes();
  } else {
    whole_ = true;
  }
  if (whole_) {
    gradient_ = gradient;
    return {};
  }
  const variable_list gradients = gradient.defined() ? variable_list{gradient} : variable_list{};
  torch::Tensor result = torch::autograd::grad({output_}, {input_}, gradients, /*retain_graph=*/true)[0];
  cut();
  return result;
}

/// Afterwards no weight node leads to another one, and nothing is alive that only the first half needed.
void SplitBackward::cut() {
  for (WeightNode& weight_node : weight_nodes_) {
    for (const size_t edge : weight_node.edges_to_input) weight_node.node->next_edges()[edge] = Edge();
  }
  output_.reset();
  input_.reset();
}

void SplitBackward::run_weights() {
  if (whole_) {
    const torch::Tensor output = std::exchange(output_, {}), gradient = std::exchange(gradient_, {});
    torch::autograd::backward({output}, gradient.defined() ? variable_list{gradient} : variable_list{});
    return;
  }
  torch::autograd::edge_list roots;
  variable_list gradients;
  for (WeightNode& weight_node : weight_nodes_) {
    const variable_list arrived = std::move(*std::exchange(weight_node.arrived, nullptr));
    for (size_t i = 0; i < arrived.size(); ++i) {
      if (!arrived[i].defined()) continue;
      roots.emplace_back(weight_node.node, static_cast<uint32_t>(i));
      gradients.push_back(arrived[i]);
    }
  }
  weight_nodes_.clear();
  if (roots.empty()) return;
  torch::autograd::Engine::get_default_engine().execute(roots, gradients, /*keep_graph=*/false, /*create_graph=*/false,
                                                        /*accumulate_grad=*/true);
}

}  // namespace trireme
