// Exact variable elimination: a node is replaced by a table over its neighbours' choices with the best cost it can
// reach.
#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <set>

#include "trireme/base/index.h"
#include "trireme/plan/graph/choice.h"

namespace trireme {
namespace {

/// Elimination order: the node whose table has the fewest entries.
class Order {
 public:
  explicit Order(const ChoiceProblem& problem) : neighbours_(problem.nodes.size()), left_(problem.nodes.size(), true) {
    for (const ChoiceNode& node : problem.nodes) sizes_.push_back(static_cast<double>(node.costs.size()));
    for (const ChoiceEdge& edge : problem.edges) {
      neighbours_[at(edge.from)].insert(edge.to);
      neighbours_[at(edge.to)].insert(edge.from);
    }
  }

  /// Returns the next node and the nodes of its table; nullopt when none are left.
  std::optional<std::pair<int, std::vector<int>>> next(double most_entries, bool& too_large) {
    int best = -1;
    double least = std::numeric_limits<double>::infinity();
    for (size_t node = 0; node < neighbours_.size(); ++node) {
      if (!left_[node]) continue;
      double entries = sizes_[node];
      for (const int other : neighbours_[node]) entries *= sizes_[at(other)];
      if (entries < least) {
        least = entries;
        best = static_cast<int>(node);
      }
    }
    too_large = least > most_entries && best >= 0;
    if (best < 0 || too_large) return std::nullopt;
    left_[at(best)] = false;
    const std::vector<int> around(neighbours_[at(best)].begin(), neighbours_[at(best)].end());
    for (const int a : around) {
      neighbours_[at(a)].erase(best);
      for (const int b : around) {
        if (a != b) neighbours_[at(a)].insert(b);
      }
    }
    return std::pair(best, around);
  }

 private:
  std::vector<std::set<int>> neighbours_;
  std::vector<bool> left_;
  std::vector<double> sizes_;
};

/// A table over some nodes; the last node varies fastest.
template <typename Value>
struct Factor {
  std::vector<int> nodes;
  std::vector<Value> values;
};

/// Enumerates the choices of some nodes.
class Counter {
 public:
  Counter(std::vector<int> nodes, const std::vector<int>& sizes) : nodes_(std::move(nodes)), sizes_(sizes) {}
  size_t count() const {
    size_t product = 1;
    for (const int node : nodes_) product *= at(sizes_[at(node)]);
    return product;
  }
  /// Sets the choices with number `index`.
  void set(size_t index, std::vector<int>& choices) const {
    for (size_t i = nodes_.size(); i-- > 0;) {
      const size_t size = at(sizes_[at(nodes_[i])]);
      choices[at(nodes_[i])] = static_cast<int>(index % size);
      index /= size;
    }
  }

 private:
  std::vector<int> nodes_;
  const std::vector<int>& sizes_;
};

template <typename Value>
const Value& look_up(const Factor<Value>& factor, const std::vector<int>& choices, const std::vector<int>& sizes) {
  size_t index = 0;
  for (const int node : factor.nodes) index = index * at(sizes[at(node)]) + at(choices[at(node)]);
  return factor.values[index];
}

std::vector<int> sizes_of(const ChoiceProblem& problem) {
  std::vector<int> sizes;
  for (const ChoiceNode& node : problem.nodes) sizes.push_back(static_cast<int>(node.costs.size()));
  return sizes;
}

/// Removes the factors that involve the node from the list, and returns them.
template <typename Value>
std::vector<Factor<Value>> take(std::vector<Factor<Value>>& factors, int node) {
  std::vector<Factor<Value>> taken, kept;
  for (Factor<Value>& factor : factors) {
    const bool speaks = std::find(factor.nodes.begin(), factor.nodes.end(), node) != factor.nodes.end();
    (speaks ? taken : kept).push_back(std::move(factor));
  }
  factors = std::move(kept);
  return taken;
}

/// The origin of a label: a choice, or the sum of two labels.
struct Trace {
  int node = -1, choice = 0;
  std::shared_ptr<const Trace> left, right;
};
using TracePointer = std::shared_ptr<const Trace>;

struct Label {
  double cost = 0, bytes = 0;
  TracePointer trace;
};
using Front = std::vector<Label>;  ///< ascending costs, descending bytes

void tidy(Front& front) {
  std::sort(front.begin(), front.end(),
            [](const Label& a, const Label& b) { return a.cost != b.cost ? a.cost < b.cost : a.bytes < b.bytes; });
  Front kept;
  for (Label& label : front) {
    if (kept.empty() || label.bytes < kept.back().bytes) kept.push_back(std::move(label));
  }
  front = std::move(kept);
}

Front sum(const Front& a, const Front& b, double limit, double at_most) {
  Front all;
  for (const Label& x : a) {
    for (const Label& y : b) {
      if (x.cost + y.cost > at_most || x.bytes + y.bytes > limit) continue;
      TracePointer trace = !x.trace ? y.trace : !y.trace ? x.trace : nullptr;
      if (x.trace && y.trace) trace = std::make_shared<Trace>(Trace{-1, 0, x.trace, y.trace});
      all.push_back({x.cost + y.cost, x.bytes + y.bytes, std::move(trace)});
    }
  }
  tidy(all);
  return all;
}

void follow(const TracePointer& trace, std::vector<int>& choices) {
  std::vector<const Trace*> open = {trace.get()};
  while (!open.empty()) {
    const Trace* now = open.back();
    open.pop_back();
    if (now == nullptr) continue;
    if (now->node >= 0) choices[at(now->node)] = now->choice;
    open.push_back(now->left.get());
    open.push_back(now->right.get());
  }
}

}  // namespace

bool eliminate(const ChoiceProblem& problem, double multiplier, std::vector<int>& choices, double most_entries) {
  const std::vector<int> sizes = sizes_of(problem);
  std::vector<Factor<double>> factors;
  for (size_t n = 0; n < problem.nodes.size(); ++n) {
    const ChoiceNode& node = problem.nodes[n];
    Factor<double> factor{{static_cast<int>(n)}, node.costs};
    for (size_t i = 0; multiplier > 0 && i < node.bytes.size(); ++i) factor.values[i] += multiplier * node.bytes[i];
    factors.push_back(std::move(factor));
  }
  for (const ChoiceEdge& edge : problem.edges) factors.push_back({{edge.from, edge.to}, edge.costs});

  struct Step {
    int node;
    std::vector<Factor<double>> factors;
  };
  std::vector<Step> steps;
  Order order(problem);
  std::vector<int> now(problem.nodes.size(), 0);
  bool too_large = false;
  while (auto next = order.next(most_entries, too_large)) {
    auto& [node, around] = *next;
    Step step{node, take(factors, node)};
    const Counter counter(around, sizes);
    Factor<double> left{around, std::vector<double>(counter.count())};
    for (size_t index = 0; index < left.values.size(); ++index) {
      counter.set(index, now);
      double least = std::numeric_limits<double>::infinity();
      for (int choice = 0; choice < sizes[at(node)]; ++choice) {
        now[at(node)] = choice;
        double cost = 0;
        for (const Factor<double>& factor : step.factors) cost += look_up(factor, now, sizes);
        least = std::min(least, cost);
      }
      left.values[index] = least;
    }
    if (!around.empty()) factors.push_back(std::move(left));
    steps.push_back(std::move(step));
  }
  if (too_large) return false;
  choices.assign(problem.nodes.size(), 0);
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    double least = std::numeric_limits<double>::infinity();
    int best = 0;
    for (int choice = 0; choice < sizes[at(step->node)]; ++choice) {
      choices[at(step->node)] = choice;
      double cost = 0;
      for (const Factor<double>& factor : step->factors) cost += look_up(factor, choices, sizes);
      if (cost < least) {
        least = cost;
        best = choice;
      }
    }
    choices[at(step->node)] = best;
  }
  return true;
}

bool eliminate_fronts(const ChoiceProblem& problem, double at_most, std::vector<int>& choices, double most_labels) {
  const std::vector<int> sizes = sizes_of(problem);
  const double limit = problem.limit_bytes > 0 ? problem.limit_bytes : std::numeric_limits<double>::infinity();
  const double most_cost = at_most * (1 + 1e-12) + 1e-300;
  std::vector<Factor<Front>> factors;
  for (size_t n = 0; n < problem.nodes.size(); ++n) {
    const ChoiceNode& node = problem.nodes[n];
    Factor<Front> factor{{static_cast<int>(n)}, {}};
    for (size_t i = 0; i < node.costs.size(); ++i) {
      const double bytes = node.bytes.empty() ? 0 : node.bytes[i];
      Front front;
      if (node.costs[i] <= most_cost && bytes <= limit) {
        front.push_back({node.costs[i], bytes,
                         std::make_shared<Trace>(Trace{static_cast<int>(n), static_cast<int>(i), nullptr, nullptr})});
      }
      factor.values.push_back(std::move(front));
    }
    factors.push_back(std::move(factor));
  }
  for (const ChoiceEdge& edge : problem.edges) {
    Factor<Front> factor{{edge.from, edge.to}, {}};
    for (const double cost : edge.costs) {
      factor.values.push_back(cost <= most_cost && cost < kForbidden ? Front{{cost, 0, nullptr}} : Front{});
    }
    factors.push_back(std::move(factor));
  }

  Order order(problem);
  std::vector<int> now(problem.nodes.size(), 0);
  Front whole = {{0, 0, nullptr}};
  bool too_large = false;
  double made = 0;
  while (auto next = order.next(most_labels, too_large)) {
    auto& [node, around] = *next;
    const std::vector<Factor<Front>> own = take(factors, node);
    const Counter counter(around, sizes);
    Factor<Front> left{around, std::vector<Front>(counter.count())};
    for (size_t index = 0; index < left.values.size(); ++index) {
      counter.set(index, now);
      Front& all = left.values[index];
      for (int choice = 0; choice < sizes[at(node)]; ++choice) {
        now[at(node)] = choice;
        Front front = {{0, 0, nullptr}};
        for (const Factor<Front>& factor : own) {
          const Front& other = look_up(factor, now, sizes);
          made += static_cast<double>(front.size() * other.size());
          if (made > 50 * most_labels) return false;
          front = sum(front, other, limit, most_cost);
          if (front.empty()) break;
        }
        all.insert(all.end(), front.begin(), front.end());
      }
      tidy(all);
    }
    if (around.empty()) {
      whole = sum(whole, left.values[0], limit, most_cost);
    } else {
      factors.push_back(std::move(left));
    }
  }
  if (too_large || whole.empty()) return false;
  choices.assign(problem.nodes.size(), 0);
  follow(whole.front().trace, choices);
  return true;
}

}  // namespace trireme
