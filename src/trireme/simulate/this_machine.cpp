// The local machine as a cluster: as measured, or else a preset with its number of cores.
#include <algorithm>
#include <thread>

#include "trireme/simulate/cluster.h"

namespace trireme {
namespace {

/// Memory of a process that has loaded libtorch and computed something.
constexpr double kLibtorchBytes = 140e6;

}  // namespace

Cluster cores_of_this_machine(int cores) {
  if (cores == 0) cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  Cluster cluster = find_cluster("laptop");
  cluster.name = kThisMachine;
  cluster.shared_cores = cores;
  cluster.stack.fixed_bytes = kLibtorchBytes;
  cluster.devices_per_host = cores * kProcessesACore;
  return cluster;
}

Cluster this_machine() {
  for (const bool of_cores : {true, false}) {
    if (std::optional<Cluster> measured = measured_cluster(of_cores)) return std::move(*measured);
  }
  return cores_of_this_machine();
}

std::string spoken_name(const std::string& cluster) { return cluster == kThisMachine ? "this machine" : cluster; }

}  // namespace trireme
