// Costs of strategies: operators from simulate/kernel_cost.h, redistributions from simulate/collective_cost.h.
#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/index.h"
#include "trireme/plan/graph/choice.h"
#include "trireme/plan/graph/strategy.h"

namespace trireme {
namespace {

/// The matmul [m, k] x [k, n] of a linear operator; a convolution is the matmul that libraries lower it to.
Product product_of(const std::vector<int64_t>& x, const std::vector<int64_t>& weight, const std::vector<int64_t>& y) {
  if (weight.size() > 2) {
    const double in = elements(weight) / static_cast<double>(weight[0]);
    return {elements(y) / static_cast<double>(y[1]), static_cast<double>(weight[0]), in};
  }
  return {static_cast<double>(x[0]), static_cast<double>(weight[1]), static_cast<double>(x[1])};
}

}  // namespace

StrategyCosts::StrategyCosts(const Graph& graph, const Cluster& cluster, const StageMesh& mesh,
                             const StageSetting& setting)
    : graph_(graph), cluster_(cluster), mesh_(mesh), setting_(setting), owner_(graph.tensors.size(), -1) {
  int64_t stride = mesh.num_devices();
  for (const int size : mesh.sizes) {
    stride /= size;
    groups_.push_back(group_on(cluster, size, stride));
  }
  for (size_t o = 0; o < graph.operators.size(); ++o) {
    for (const int input : graph.operators[o].inputs) {
      if (owner_[at(input)] < 0) owner_[at(input)] = static_cast<int>(o);
    }
  }
}

double StrategyCosts::local_fraction(const std::vector<Placement>& placements) const {
  double fraction = 1;
  for (size_t axis = 0; axis < placements.size(); ++axis) {
    if (placements[axis].is_shard()) fraction /= mesh_.sizes[axis];
  }
  return fraction;
}

double StrategyCosts::computing(const GraphOperator& op, const OperatorStrategy& strategy) const {
  const Device& device = cluster_.device;
  const NumberType type = setting_.type;
  const OperatorWork& work = op.work;
  const std::vector<int> first(mesh_.sizes.size(), 0);
  double forward = 0, backward = 0;
  if (work.is_linear) {
    const size_t x = at(work.factors[0]), w = at(work.factors[1]);
    const auto part = [&](const std::vector<int64_t>& sizes, const std::vector<Placement>& placements) {
      return local_sizes(sizes, placements, mesh_.sizes, first);
    };
    const Product p =
        product_of(part(op.call.tensors[x], strategy.inputs[x]), part(op.call.tensors[w], strategy.inputs[w]),
                   part(graph_.tensors[at(op.outputs[0])].sizes, strategy.outputs[0]));
    forward += product_seconds(p, device, type);
    backward += product_seconds({p.m, p.k, p.n}, device, type) + product_seconds({p.k, p.n, p.m}, device, type);
  }
  const double fraction = std::min(local_fraction(strategy.outputs[0]), local_fraction(strategy.inputs[0]));
  const auto products = [&](const std::vector<Product>& list) {
    double seconds = 0;
    for (Product p : list) {
      p.count *= fraction;
      seconds += product_seconds(p, device, type);
    }
    return seconds;
  };
  const auto moves = [&](const std::vector<double>& list) {
    double seconds = 0;
    for (const double bytes : list) seconds += memory_seconds(bytes * fraction, device);
    return seconds;
  };
  if (work.attention_flops > 0) {
    forward += attention_seconds(work.attention_flops * fraction, device, type);
    backward += attention_seconds(2.5 * work.attention_flops * fraction, device, type);
  }
  const double inside = products(work.forward_products);
  forward += inside + moves(work.forward_bytes);
  backward += products(work.backward_products) + moves(work.backward_bytes) + moves(work.weight_bytes);
  const bool is_attention = work.attention_flops > 0 || inside > 0;
  const bool again =
      setting_.recompute == RecomputeKind::kFull || (setting_.recompute == RecomputeKind::kSelective && is_attention);
  return forward + backward + (again ? forward : 0);
}

double StrategyCosts::gradient_sums(const GraphOperator& op, const OperatorStrategy& strategy) const {
  double seconds = 0;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const GraphTensor& tensor = graph_.tensors[at(op.inputs[i])];
    if (!tensor.is_parameter) continue;
    const double bytes = elements(tensor.sizes) * local_fraction(strategy.inputs[i]) * setting_.gradient_bytes;
    for (size_t axis = 0; axis < groups_.size(); ++axis) {
      if (!strategy.input_gradients[i][axis].is_partial()) continue;
      seconds += collective_seconds(CollectiveKind::kAllReduce, bytes, groups_[axis], cluster_) *
                 (setting_.sums_each_micro_batch ? setting_.micro_batches : 1);
    }
  }
  return seconds;
}

double StrategyCosts::redistribution(const std::vector<Placement>& from, const std::vector<Placement>& to,
                                     const std::vector<int64_t>& sizes, double element_bytes) const {
  if (from == to) return 0;
  std::string key;
  const auto put = [&](int64_t number) { key.append(reinterpret_cast<const char*>(&number), sizeof number); };
  for (const auto* list : {&from, &to}) {
    for (const Placement& p : *list) {
      put(static_cast<int64_t>(p.kind) << 40 | static_cast<int64_t>(p.op) << 32 | p.dim);
      put(p.stretches << 32 | p.unit);
      put(int64_t{p.ratio[0]} << 32 | int64_t{p.ratio[1]} << 16 | int64_t{p.ratio[2]});
    }
  }
  for (const int64_t size : sizes) put(size);
  if (const auto found = known_.find(key); found != known_.end()) return found->second;
  double& seconds = known_[key];
  try {
    std::vector<Placement> now = from;
    for (const RedistributionStep& step : plan_redistribution(from, to, mesh_.sizes, sizes)) {
      const auto axis = static_cast<size_t>(step.axis);
      const double local = elements(sizes) * local_fraction(now) * element_bytes;
      const double parts = mesh_.sizes[axis];
      switch (step.movement) {
        case Movement::kSlice:
        case Movement::kSpread:
          break;
        case Movement::kAllGather:
          seconds += collective_seconds(CollectiveKind::kAllGather, local * parts, groups_[axis], cluster_);
          break;
        case Movement::kAllToAll:
          seconds += collective_seconds(CollectiveKind::kAllToAll, local, groups_[axis], cluster_);
          break;
        case Movement::kAllReduce:
          seconds += collective_seconds(CollectiveKind::kAllReduce, local, groups_[axis], cluster_);
          break;
        case Movement::kReduceScatter:
          seconds += collective_seconds(CollectiveKind::kReduceScatter, local, groups_[axis], cluster_);
          break;
      }
      now[axis] = step.to;
    }
  } catch (const UsageError&) {  // no redistribution exists
    seconds = kForbidden;
  }
  return seconds;
}

double StrategyCosts::moving(const GraphTensor& tensor, const std::vector<Placement>& made,
                             const std::vector<Placement>& used, const std::vector<Placement>& gradient) const {
  const double e = trireme::bytes_of(setting_.type);
  const double forward = redistribution(made, used, tensor.sizes, e);
  std::vector<Placement> back = made;
  for (Placement& p : back) {
    if (p.is_partial()) p = Placement::replicate();
  }
  const double backward = redistribution(gradient, back, tensor.sizes, e);
  const double again = setting_.recompute == RecomputeKind::kFull && forward < kForbidden ? forward : 0;
  return std::min(kForbidden, forward + backward + again);
}

double StrategyCosts::state_bytes(const GraphOperator& op, const OperatorStrategy& strategy) const {
  const int index = static_cast<int>(&op - graph_.operators.data());
  double bytes = 0;
  const auto held = [&](double numbers, double holders) {
    return numbers * (setting_.state_bytes - setting_.sharded_state_bytes + setting_.sharded_state_bytes / holders);
  };
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const GraphTensor& tensor = graph_.tensors[at(op.inputs[i])];
    if (!tensor.is_parameter || owner_[at(op.inputs[i])] != index) continue;
    double holders = 1;
    for (size_t axis = 0; axis < mesh_.sizes.size(); ++axis) {
      if (!strategy.inputs[i][axis].is_shard()) holders *= mesh_.sizes[axis];
    }
    bytes += held(elements(tensor.sizes) * local_fraction(strategy.inputs[i]), holders);
  }
  return bytes + held(op.small_parameters, mesh_.num_devices());
}

double StrategyCosts::activation_bytes(const GraphOperator& op, const OperatorStrategy& strategy) const {
  double bytes = 0;
  for (size_t i = 0; i < op.outputs.size(); ++i) {
    const GraphTensor& tensor = graph_.tensors[at(op.outputs[i])];
    bytes += elements(tensor.sizes) * local_fraction(strategy.outputs[i]) * tensor.kept_bytes;
  }
  return setting_.recompute == RecomputeKind::kFull ? bytes * kKeptByRecomputation : bytes;
}

double StrategyCosts::bytes(const GraphOperator& op, const OperatorStrategy& strategy) const {
  return state_bytes(op, strategy) + setting_.in_flight * activation_bytes(op, strategy);
}

}  // namespace trireme
