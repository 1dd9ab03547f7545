#include "trireme/plan/graph/cluster_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "trireme/base/error.h"
#include "trireme/base/units.h"

namespace trireme {
namespace {

/// Minimizes the sum of cuts with parts of at most `bound`; empty if infeasible.
std::vector<int> cut_below(const std::vector<double>& costs, const std::vector<double>& cut_costs, int num_layers,
                           double bound) {
  const int n = static_cast<int>(costs.size());
  // best[k][i]: the first i items in k parts.
  std::vector<std::vector<double>> best(static_cast<size_t>(num_layers) + 1,
                                        std::vector<double>(static_cast<size_t>(n) + 1, kNever));
  std::vector<std::vector<int>> from(best.size(), std::vector<int>(static_cast<size_t>(n) + 1, -1));
  best[0][0] = 0;
  for (size_t k = 1; k < best.size(); ++k) {
    for (int end = 1; end <= n; ++end) {
      double part = 0;
      for (int begin = end; begin-- > 0;) {
        part += costs[static_cast<size_t>(begin)];
        if (part > bound) break;
        const double before = best[k - 1][static_cast<size_t>(begin)];
        const double sum = before + (begin > 0 ? cut_costs[static_cast<size_t>(begin)] : 0);
        if (sum >= best[k][static_cast<size_t>(end)]) continue;
        best[k][static_cast<size_t>(end)] = sum;
        from[k][static_cast<size_t>(end)] = begin;
      }
    }
  }
  std::vector<int> firsts;
  if (best.back().back() == kNever) return firsts;
  for (int k = num_layers, end = n; k > 0; --k) {
    end = from[static_cast<size_t>(k)][static_cast<size_t>(end)];
    firsts.push_back(end);
  }
  std::reverse(firsts.begin(), firsts.end());
  return firsts;
}

}  // namespace

std::vector<double> crossing_bytes(const Graph& graph, double element_bytes) {
  std::vector<int> last_use(graph.tensors.size(), -1);
  for (size_t o = 0; o < graph.operators.size(); ++o) {
    for (const int input : graph.operators[o].inputs) last_use[static_cast<size_t>(input)] = static_cast<int>(o);
  }
  std::vector<double> crossing(graph.operators.size(), 0);
  for (size_t t = 0; t < graph.tensors.size(); ++t) {
    const GraphTensor& tensor = graph.tensors[t];
    if (tensor.producer < 0) continue;
    const double bytes = element_bytes * elements(tensor.sizes);
    for (int o = tensor.producer + 1; o <= last_use[t]; ++o) crossing[static_cast<size_t>(o)] += bytes;
  }
  return crossing;
}

std::vector<int> cut_into_layers(const std::vector<double>& costs, const std::vector<double>& cut_costs, int num_layers,
                                 double slack) {
  if (num_layers < 1 || static_cast<int>(costs.size()) < num_layers || cut_costs.size() != costs.size()) {
    throw UsageError(fmt::format("{} operators cannot be cut into {} layers", costs.size(), num_layers));
  }
  const double mean = std::accumulate(costs.begin(), costs.end(), 0.0) / num_layers;
  for (double bound = slack * mean;; bound *= 1.25) {
    if (std::vector<int> firsts = cut_below(costs, cut_costs, num_layers, bound); !firsts.empty()) return firsts;
    if (bound == 0) bound = 1;
  }
}

void cluster_layers(Graph& graph, const std::vector<double>& costs, int num_layers, double element_bytes) {
  const int count = std::clamp(num_layers, 1, std::max(1, static_cast<int>(graph.operators.size())));
  const std::vector<int> firsts = cut_into_layers(costs, crossing_bytes(graph, element_bytes), count);
  graph.num_layers = count;
  graph.layer_names.clear();
  for (int i = 0; i < count; ++i) graph.layer_names.push_back(fmt::format("layer {}", i));
  for (size_t o = 0; o < graph.operators.size(); ++o) {
    const auto behind = std::upper_bound(firsts.begin(), firsts.end(), static_cast<int>(o));
    graph.operators[o].layer = static_cast<int>(behind - firsts.begin()) - 1;
  }
}

}  // namespace trireme
