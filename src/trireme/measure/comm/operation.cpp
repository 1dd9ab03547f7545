#include "trireme/measure/comm/operation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/comm/algorithms/cost_model.h"

namespace trireme::measure {
namespace {

// From this size on, a broadcast to more than two ranks is a scatter and an all-gather
// (comm/algorithms/collectives.cpp).
constexpr uint64_t kLongBroadcast = 256 * 1024;

bool is_long_broadcast(int ranks, uint64_t bytes) { return ranks > 2 && bytes >= kLongBroadcast; }

}  // namespace

std::string_view name_of(Operation operation) { return kOperationNames[static_cast<size_t>(operation)]; }

Operation operation_named(std::string_view name) {
  std::string wanted = to_lower(trim(name));
  std::replace(wanted.begin(), wanted.end(), '_', '-');
  const auto found = std::find(kOperationNames.begin(), kOperationNames.end(), wanted);
  if (found != kOperationNames.end()) return static_cast<Operation>(found - kOperationNames.begin());
  const auto meant = nearest(wanted, kOperationNames);
  throw UsageError(fmt::format("no operation is called \"{}\"", trim(name)),
                   (meant ? fmt::format("did you mean {}? ", *meant) : "") + "known: " + join(kOperationNames, ", "));
}

double bus_factor(Operation operation, int ranks) {
  const double fraction = (ranks - 1.0) / ranks;
  if (operation == Operation::kAllReduce) return 2 * fraction;
  return operation == Operation::kBroadcast ? 1 : fraction;
}

bool shares_memory(const std::string& transport) { return transport == "threads" || transport == "shared memory"; }

double predict_operation_us(Operation operation, Algorithm algorithm, int ranks, uint64_t bytes,
                            const TransportCost& cost) {
  if (ranks == 1) return 0;
  if (operation == Operation::kAllReduce) {
    return predict_us(algorithm, ranks, bytes, cost, &cost, shares_memory(cost.transport) ? ranks : 1);
  }
  const double p = ranks, n = static_cast<double>(bytes), part = (p - 1) / p * n;
  if (shares_memory(cost.transport)) {
    // Two meetings; between them each rank reads what it needs where it is.
    const double work =
        operation == Operation::kReduceScatter ? part * cost.reduce_us_per_byte : n * cost.copy_us_per_byte;
    return 2 * cost.barrier_us + work;
  }
  const double a = cost.link.latency_us, b = cost.link.us_per_byte;
  switch (operation) {
    case Operation::kReduceScatter:
      return a + part * (b + cost.reduce_us_per_byte);
    case Operation::kBroadcast:
      return is_long_broadcast(ranks, bytes) ? 2 * (a + part * b) : std::ceil(std::log2(p)) * (a + n * b);
    default:
      return a + part * b + n / p * cost.copy_us_per_byte;  // one's own part is copied
  }
}

std::string method_of(Operation operation, int ranks, uint64_t bytes, const std::string& transport) {
  if (shares_memory(transport)) return "in-place";
  if (operation != Operation::kBroadcast) return "direct";
  return is_long_broadcast(ranks, bytes) ? "scatter-gather" : "tree";
}

}  // namespace trireme::measure
