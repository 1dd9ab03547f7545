// A cluster as a value: its devices, the links inside a host and between hosts, and its software stack.
//
// A plain value. cluster_presets() and cluster_from_json() return valid ones; check() validates any other. Threads:
// all. docs/cost_model.md explains every number and cites its source.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/number_type.h"

namespace trireme {

struct Device {
  std::string name;
  std::array<double, 4> peak_flops = {};  ///< dense FLOP/s, indexed by NumberType; 0: the type is not supported
  double memory_bytes = 0;
  double memory_bandwidth = 0;  ///< bytes per second
  int units = 1;                ///< units that compute matmul tiles in parallel: multiprocessors or cores

  // Fitted constants of a kind of device: how much of its peak numbers it reaches.
  double product_efficiency = 0.8;    ///< fraction of the peak that a large matmul reaches
  double product_half_depth = 100;    ///< inner dim at which a float16 matmul reaches half of that
  double memory_efficiency = 0.8;     ///< fraction of the bandwidth that memory-bound operators reach
  double attention_efficiency = 0.5;  ///< fraction of the peak that fused attention reaches
  double convolution_efficiency = 1;  ///< throughput of a convolution, relative to a matmul of the same size
  double update_efficiency = 0.8;     ///< fraction of the bandwidth that the optimizer reaches
  double kernel_us = 4;               ///< gap between the end of a small operator and the start of the next
  double offload_bandwidth = 10e9;    ///< bytes per second to and from offloaded optimizer state
  double step_seconds = 0.01;         ///< fixed time per step: data loading, loss, learning rate, logging

  double peak(NumberType type) const { return peak_flops[static_cast<size_t>(type)]; }
  bool operator==(const Device&) const = default;
};

/// One level of the network hierarchy. A message of n bytes takes latency + n/(bandwidth·efficiency).
struct NetworkLink {
  double bandwidth = 0;     ///< bytes per second in one direction: per device inside a host, per host between hosts
  double efficiency = 0.8;  ///< fraction of the bandwidth that large collectives reach
  double latency_us = 5;    ///< per message
  double ramp_us = 0;       ///< ramp-up of a large collective until all its channels are full
  double sum_gain = 1;      ///< inside a host: speedup of an all-reduce when the switch reduces
  bool is_switched = true;  ///< inside a host: any two devices communicate at full speed; false: a cube mesh, where
                            ///< small groups get less
  double effective() const { return bandwidth * efficiency; }
  bool operator==(const NetworkLink&) const = default;
};

/// How the training software of the preset's generation behaves, unless a job overrides it.
struct Stack {
  bool flash_attention = false;    ///< fused attention: the score matrix is never in memory
  bool fused_half_only = false;    ///< fused attention in bfloat16 only; float16 jobs keep the matrix
  bool fused_update = true;        ///< the optimizer makes one pass over its state
  bool overlaps_gradients = true;  ///< gradients are reduced during the backward pass
  bool overlaps_tensor = false;    ///< tensor-parallel collectives overlap with matmuls, under sequence parallelism
  bool overlaps_messages = true;   ///< a stage computes while its output is sent
  /// Factor on elementwise traffic; above 1, published trainings with ZeRO-3 ran FSDP: [Note: Eager sharding].
  double eager_traffic = 1;
  double activation_share = 1;  ///< fraction of the formulas' activations that the stack keeps
  /// The same fraction in Llama blocks, which have gates and rotary positions; 0: activation_share.
  double gated_share = 0;
  double gated_traffic = 1;  ///< factor on the formulas' traffic of gates and rotary positions
  /// Bytes per logit while the loss is computed; 0: one in the compute type and one in float32.
  double logit_bytes = 0;
  /// Upper bound on the logits' memory when the loss is computed in chunks; 0: all logits at once.
  double loss_bytes = 0;
  double embedding_bytes = 0;  ///< bytes per vocabulary weight while the gradients of its two uses are computed
  double tensor_bytes = 0;     ///< bytes per element of the largest tensor that its gradients leave in the allocator
  /// Bytes of gradient buffers per parameter, on top of weights, gradients and optimizer state.
  double parameter_bytes = 0;
  double fixed_bytes = 0;        ///< bytes per process: libraries, workspaces
  double tensor_rank_bytes = 0;  ///< bytes per process and rank of its tensor group: threads, shared windows
  /// Micro-batch gradients are summed in a tree, with copies for partial sums ([Note: Leaves]).
  bool sums_in_tree = false;
  double loss_traffic = 1;        ///< factor on the formulas' traffic of the loss
  double accumulation_bytes = 0;  ///< bytes moved per parameter to accumulate the gradient of one micro-batch
  double tensor_us = 0;           ///< extra time per operator on tensors that are sharded over tensor ranks
  bool operator==(const Stack&) const = default;
};

/// Measured error of the step times that these constants predict.
struct Evidence {
  int runs = 0;                            ///< runs that were compared; 0: none
  double mean_error = 0, worst_error = 0;  ///< |predicted / measured - 1|
  bool is_published = false;  ///< compared with published runs (docs/accuracy.md); false: with the runs that the
                              ///< constants were fitted to
  /// Published runs: number of papers, each predicted with constants fitted without it; mean_error weights papers
  /// equally. 0: the constants were fitted to these runs.
  int papers = 0;
  bool operator==(const Evidence&) const = default;
};

struct Cluster {
  std::string name;
  Device device;
  int devices_per_host = 1;
  int num_hosts = 0;     ///< 0: unlimited
  int shared_cores = 0;  ///< cores per host that its devices, which are processes, share; 0: every device has its own
  double sharing_cost = 0;  ///< fraction of a core's time lost to context switches when processes share it
  NetworkLink inside;
  NetworkLink between;
  Stack stack;
  Evidence evidence;

  /// Throws UsageError that names every missing and every invalid number.
  void check() const;
  /// Number of hosts that `num_devices` devices fill. Throws UsageError if the cluster has fewer.
  int hosts_for(int64_t num_devices) const;
  bool operator==(const Cluster&) const = default;
};

const std::vector<Cluster>& cluster_presets();
/// Upper bound on the processes that share a core.
inline constexpr int kProcessesACore = 32;
/// The name of the local machine.
inline constexpr const char* kThisMachine = "this";
/// Names that find_cluster() accepts: the presets, and "this".
std::vector<std::string> preset_names();
/// Returns a preset by name, the local machine for "this", or reads a cluster file. Throws UsageError, SystemError.
Cluster find_cluster(const std::string& name_or_path);
/// Returns what `trireme bench train --write-cluster` measured on this machine's cores, or on its GPUs; nullopt if it
/// never ran, or if the file has links only. Throws as find_cluster() for a malformed file.
std::optional<Cluster> measured_cluster(bool of_cores);
/// Returns what was measured on this machine, cores before GPUs, else cores_of_this_machine(). Throws as
/// measured_cluster().
Cluster this_machine();
/// Returns the preset "laptop" with `cores` cores, which any number of processes share, under the name "this"; 0: as
/// many as this machine has.
Cluster cores_of_this_machine(int cores = 0);
/// The name as messages print it: "this machine" for "this".
std::string spoken_name(const std::string& cluster);
/// Parses several kinds of hosts in one network: "a100-80gb+v100-16gb". The slowest network between hosts applies to
/// all.
std::vector<Cluster> find_clusters(const std::string& names);
/// Parses a cluster file; `name` is the file's name in messages. Keys: "preset" (defaults for the rest), "device",
/// "inside", "between", "stack", "devices_per_host", "hosts", "evidence" (a file that changes a preset does not inherit
/// it); and those of mesh/cluster_file.h, whose shared memory and TCP links replace missing "inside" and "between".
/// Throws UsageError that names what is missing.
Cluster cluster_from_json(std::string_view text, const std::string& name);
/// Returns the keys of a cluster file that describe devices and software, but no links, with their values as JSON: for
/// ClusterFile::others. An empty preset is omitted.
std::map<std::string, std::string> device_keys(const Cluster& cluster, const std::string& preset);

}  // namespace trireme
