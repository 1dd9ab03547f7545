#include "trireme/program/schedules/partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "trireme/base/error.h"
#include "trireme/base/index.h"
#include "trireme/base/text.h"
#include "trireme/base/units.h"

namespace trireme {
namespace {

void check(const PartitionProblem& problem) {
  const size_t num_layers = problem.costs.size();
  if (problem.num_stages < 1) throw UsageError(fmt::format("a pipeline of {} stages cannot be", problem.num_stages));
  if (num_layers < at(problem.num_stages)) {
    throw UsageError(fmt::format("{} layers cannot fill {} stages", num_layers, problem.num_stages),
                     fmt::format("use at most {} stages", num_layers));
  }
  const auto right_length = [](const char* what, size_t length, size_t expected) {
    if (length != 0 && length != expected) {
      throw UsageError(fmt::format("{} values of {} where there should be {}", length, what, expected));
    }
  };
  right_length("bytes", problem.bytes.size(), num_layers);
  right_length("activation bytes", problem.activation_bytes.size(), num_layers);
  right_length("micro-batches in flight", problem.in_flight.size(), at(problem.num_stages));
  right_length("speeds", problem.speeds.size(), at(problem.num_stages));
  for (size_t i = 0; i < num_layers; ++i) {
    if (std::isfinite(problem.costs[i]) && problem.costs[i] >= 0) continue;
    throw UsageError(fmt::format("layer {} costs {}", i, problem.costs[i]), "a cost is a number of 0 or more");
  }
}

template <typename T>
std::vector<T> sums_before(const std::vector<T>& values, size_t count) {
  std::vector<T> sums(count + 1);
  for (size_t i = 0; i < count; ++i) sums[i + 1] = sums[i] + (values.empty() ? T(0) : values[i]);
  return sums;
}

/// Cost and memory of any stage in O(1), from prefix sums.
class Stages {
 public:
  explicit Stages(const PartitionProblem& problem)
      : problem_(problem),
        costs_(sums_before(problem.costs, problem.costs.size())),
        bytes_(sums_before(problem.bytes, problem.costs.size())),
        activations_(sums_before(problem.activation_bytes, problem.costs.size())) {}

  double cost(int stage, int first, int last) const {
    const double cost = costs_[at(last)] - costs_[at(first)];
    return problem_.speeds.empty() ? cost : cost / problem_.speeds[at(stage)];
  }
  double memory(int stage, int first, int last) const {
    const double in_flight = problem_.in_flight.empty() ? 1 : problem_.in_flight[at(stage)];
    return static_cast<double>(bytes_[at(last)] - bytes_[at(first)]) +
           in_flight * static_cast<double>(activations_[at(last)] - activations_[at(first)]);
  }

 private:
  const PartitionProblem& problem_;
  const std::vector<double> costs_;
  const std::vector<uint64_t> bytes_, activations_;
};

/// The partition with the least price: `price` of each stage, combined by `join`; nullopt if every one is infinite.
/// Goes from the last stage to the first, so that among equals the first cuts are earliest.
template <typename Price, typename Join>
std::optional<Partition> cut(int num_layers, int num_stages, const Price& price, const Join& join) {
  // best[k][i]: least price of layers i … in stages k …
  std::vector best(at(num_stages) + 1, std::vector<double>(at(num_layers) + 1, kNever));
  std::vector next(at(num_stages) + 1, std::vector<int>(at(num_layers) + 1, -1));
  best[at(num_stages)][at(num_layers)] = 0;
  for (int stage = num_stages; stage-- > 0;) {
    for (int first = stage; first < num_layers; ++first) {
      for (int last = first + 1; last <= num_layers; ++last) {
        const double rest = best[at(stage) + 1][at(last)];
        if (rest == kNever) continue;
        const double all = join(price(stage, first, last), rest);
        if (all >= best[at(stage)][at(first)]) continue;
        best[at(stage)][at(first)] = all;
        next[at(stage)][at(first)] = last;
      }
    }
  }
  if (best[0][0] == kNever) return std::nullopt;
  Partition partition;
  for (int stage = 0, first = 0; stage < num_stages; ++stage) {
    const int last = next[at(stage)][at(first)];
    partition.push_back({first, last});
    first = last;
  }
  return partition;
}

}  // namespace

Partition partition(const PartitionProblem& problem) {
  check(problem);
  const Stages stages(problem);
  const auto num_layers = static_cast<int>(problem.costs.size());
  const auto largest = [](double a, double b) { return std::max(a, b); };
  const double limit = problem.limit_bytes == 0 ? kNever : static_cast<double>(problem.limit_bytes);
  const auto fits = [&](int stage, int first, int last) { return stages.memory(stage, first, last) <= limit; };

  const auto fastest = cut(
      num_layers, problem.num_stages,
      [&](int stage, int first, int last) {
        return fits(stage, first, last) ? stages.cost(stage, first, last) : kNever;
      },
      largest);
  if (!fastest) {
    const auto smallest = cut(
        num_layers, problem.num_stages,
        [&](int stage, int first, int last) { return stages.memory(stage, first, last); }, largest);
    double least = 0;
    for (int stage = 0; stage < problem.num_stages; ++stage) {
      const LayerRange& range = (*smallest)[at(stage)];
      least = std::max(least, stages.memory(stage, range.first, range.last));
    }
    throw UsageError(fmt::format("no split into {} stages keeps within {} a stage", problem.num_stages,
                                 format_bytes(problem.limit_bytes)),
                     fmt::format("the least that one needs is {}; use more stages, or recompute activations",
                                 format_bytes(static_cast<uint64_t>(std::ceil(least)))));
  }
  double most = 0;
  for (int stage = 0; stage < problem.num_stages; ++stage) {
    const LayerRange& range = (*fastest)[at(stage)];
    most = std::max(most, stages.cost(stage, range.first, range.last));
  }
  const auto alike = cut(
      num_layers, problem.num_stages,
      [&](int stage, int first, int last) {
        const double cost = stages.cost(stage, first, last);
        return cost <= most && fits(stage, first, last) ? cost * cost : kNever;
      },
      [](double a, double b) { return a + b; });
  return *alike;
}

Partition partition_from_text(std::string_view text, int num_layers) {
  Partition partition;
  const auto number = [&](std::string_view word, std::string_view part) {
    int value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error == std::errc() && end == word.data() + word.size() && value >= 0 && value <= num_layers) return value;
    throw UsageError(fmt::format("'{}' in the split {} is no number of layers from 0 to {}", part, text, num_layers),
                     "write layers of each stage, 4,4,4, or first and last, 0-3,4-7,8-11");
  };
  int next = 0;
  std::string parts(text);
  std::replace(parts.begin(), parts.end(), '+', ',');
  for (const std::string_view part : split(parts, ',')) {
    const size_t dash = part.find('-');
    LayerRange range{next, 0};
    if (dash == std::string_view::npos) {
      range.last = next + number(part, part);
    } else {
      range.first = number(trim(part.substr(0, dash)), part);
      range.last = number(trim(part.substr(dash + 1)), part) + 1;
    }
    if (range.first != next) {
      throw UsageError(fmt::format("'{}' in the split {} should begin with layer {}", part, text, next));
    }
    if (range.last <= range.first) throw UsageError(fmt::format("'{}' in the split {} has no layers", part, text));
    if (range.last > num_layers) {
      throw UsageError(fmt::format("'{}' in the split {} goes beyond the last layer, {}", part, text, num_layers - 1));
    }
    partition.push_back(range);
    next = range.last;
  }
  if (next != num_layers) {
    throw UsageError(fmt::format("the split {} covers {} of {} layers", text, next, num_layers),
                     "every layer belongs to a stage");
  }
  return partition;
}

Partition partition_over_ranks(const PartitionProblem& problem, const std::vector<int>& rank_of_stage) {
  Partition best = partition(problem);
  if (problem.limit_bytes > 0 || !problem.speeds.empty()) return best;  // the moves below ignore both
  // (cost of the slowest stage, sum of the ranks' squared costs), compared in this order.
  const auto score = [&](const Partition& stages) {
    std::map<int, double> of_rank;
    double slowest = 0, squares = 0;
    for (size_t i = 0; i < stages.size(); ++i) {
      double cost = 0;
      for (int layer = stages[i].first; layer < stages[i].last; ++layer) cost += problem.costs[at(layer)];
      slowest = std::max(slowest, cost);
      of_rank[rank_of_stage[i]] += cost;
    }
    for (const auto& [rank, cost] : of_rank) squares += cost * cost;
    return std::pair(slowest, squares);
  };
  for (bool better = true; better;) {
    better = false;
    for (size_t cut = 1; cut < best.size(); ++cut) {
      for (const int move : {-1, 1}) {
        Partition tried = best;
        tried[cut - 1].last = tried[cut].first += move;
        if (tried[cut - 1].first >= tried[cut - 1].last || tried[cut].first >= tried[cut].last) continue;
        if (score(tried) >= score(best)) continue;
        best = std::move(tried);
        better = true;
      }
    }
  }
  return best;
}

std::string partition_to_text(const Partition& partition) {
  std::vector<std::string> parts;
  for (const LayerRange& range : partition) parts.push_back(fmt::format("{}-{}", range.first, range.last - 1));
  return join(parts, ",");
}

}  // namespace trireme
