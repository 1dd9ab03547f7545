// Clusters as values: what a device can do, how devices of a host and hosts are linked, and what software runs there.
//
// A plain value; presets() and cluster_from_json() make valid ones, check() says what is wrong with another. Threads:
// all. Every number is explained, with its source, in docs/cost_model.md.
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
  std::array<double, 4> peak_flops = {};  ///< dense, a second, by NumberType; 0: the device has no such products
  double memory_bytes = 0;
  double memory_bandwidth = 0;  ///< bytes a second
  int units = 1;                ///< that compute tiles of a product side by side (multiprocessors, cores)

  // How much of that is reached. The fitted constants of a device kind.
  double product_efficiency = 0.8;    ///< of the peak, by a large matrix product
  double product_half_depth = 100;    ///< inner size of a float16 product at which half of that is reached
  double memory_efficiency = 0.8;     ///< of the bandwidth, by operators that only move data
  double attention_efficiency = 0.5;  ///< of the peak, by fused attention
  double convolution_efficiency = 1;  ///< of what a product of the same size reaches, by a convolution
  double update_efficiency = 0.8;     ///< of the bandwidth, by the optimizer
  double kernel_us = 4;               ///< between the end of a small operator and the start of the next
  double offload_bandwidth = 10e9;    ///< bytes a second, to and from where optimizer state is offloaded
  double step_seconds = 0.01;         ///< of a step: data, loss, learning rate, log

  double peak(NumberType type) const { return peak_flops[static_cast<size_t>(type)]; }
  bool operator==(const Device&) const = default;
};

/// A level of the hierarchy. A message of n bytes takes latency + n/(bandwidth·efficiency).
struct NetworkLink {
  double bandwidth = 0;     ///< bytes a second, one way: of each device (inside a host), of each host (between hosts)
  double efficiency = 0.8;  ///< of the bandwidth, by large collectives
  double latency_us = 5;    ///< of a message
  double ramp_us = 0;       ///< that a collective of many bytes needs until all its channels are full
  double sum_gain = 1;      ///< inside: an all-reduce is so much faster where the switch adds
  bool is_switched = true;  ///< inside: any two devices at full speed; else a cube mesh, where small groups have less
  double effective() const { return bandwidth * efficiency; }
  bool operator==(const NetworkLink&) const = default;
};

/// How the training software of a preset's generation behaves, unless a job says otherwise.
struct Stack {
  bool flash_attention = false;    ///< attention without its matrix in memory
  bool fused_half_only = false;    ///< ... for bfloat16 alone; float16 jobs keep the matrix
  bool fused_update = true;        ///< the optimizer passes once over its state
  bool overlaps_gradients = true;  ///< sums over replicas run during the backward pass
  bool overlaps_tensor = false;    ///< sums over tensor ranks run beside the products, with sequence parallelism
  bool overlaps_messages = true;   ///< a stage computes while its output is under way
  double eager_traffic = 1;        ///< above 1: published trainings with ZeRO-3 ran FSDP: [Note: Eager sharding]
  double activation_share = 1;     ///< of the activations that the formulas count, what it keeps
  double gated_share = 0;          ///< the same of blocks with gates and rotary positions (Llama); 0: as the others
  double gated_traffic = 1;        ///< of the bytes that gates and rotary positions move by the formulas
  double logit_bytes = 0;          ///< a logit, while the loss is computed; 0: one of the compute type and a float32
  double loss_bytes = 0;           ///< the most that it takes for logits, a part of them at a time; 0: all at once
  double embedding_bytes = 0;      ///< of each weight of the vocabulary, while the gradients of its two uses are made
  double tensor_bytes = 0;         ///< of each number of the longest tensor: what its gradients leave in the allocator
  double parameter_bytes = 0;      ///< of each parameter, beside weights, gradients and optimizer: buffers of gradients
  double fixed_bytes = 0;          ///< of each process: libraries, workspaces
  double tensor_rank_bytes = 0;    ///< of each process, for each rank of its tensor group: threads, shared windows
  bool sums_in_tree = false;       ///< gradients of micro-batches, with copies for partial sums ([Note: Leaves])
  double loss_traffic = 1;         ///< of the bytes that the loss moves by the formulas, what it moves
  double accumulation_bytes = 0;   ///< of each parameter, moved to add up the gradient of a micro-batch
  double tensor_us = 0;            ///< that an operator on tensors in parts takes longer
  bool operator==(const Stack&) const = default;
};

/// How far step times that these constants predict were off where somebody has measured them.
struct Evidence {
  int runs = 0;                            ///< 0: nobody has compared
  double mean_error = 0, worst_error = 0;  ///< |predicted / measured - 1|
  bool is_published = false;  ///< by others (docs/accuracy.md); else the trainings that chose the constants
  /// Published: the papers that the runs are of, each predicted with constants that it had no part in; the mean counts
  /// every paper once. 0: the runs have chosen the constants.
  int papers = 0;
  bool operator==(const Evidence&) const = default;
};

struct Cluster {
  std::string name;
  Device device;
  int devices_per_host = 1;
  int num_hosts = 0;        ///< 0: as many as are asked for
  int shared_cores = 0;     ///< of a host, where its devices are processes that share them; 0: each computes by itself
  double sharing_cost = 0;  ///< fraction of its time that a core loses where processes take turns on it
  NetworkLink inside;
  NetworkLink between;
  Stack stack;
  Evidence evidence;

  /// Throws UsageError that names every hole and every number that cannot be.
  void check() const;
  /// Hosts that so many devices fill. Throws UsageError where there are not enough.
  int hosts_for(int64_t num_devices) const;
  bool operator==(const Cluster&) const = default;
};

const std::vector<Cluster>& cluster_presets();
/// That may share it, where a machine's cores are described.
inline constexpr int kProcessesACore = 32;
/// The name that stands for the machine at hand.
inline constexpr const char* kThisMachine = "this";
/// The names that find_cluster() knows: those of the presets, and "this".
std::vector<std::string> preset_names();
/// A preset by name, "this", or a cluster file by path. Throws UsageError, SystemError.
Cluster find_cluster(const std::string& name_or_path);
/// What `trireme bench train --write-cluster` has measured of this machine's cores, or of its GPUs; nothing where it
/// has not, as where the file has links alone. Throws as find_cluster() for a file with mistakes.
std::optional<Cluster> measured_cluster(bool of_cores);
/// What is measured of this machine, cores before GPUs; else cores_of_this_machine(). Throws as measured_cluster().
Cluster this_machine();
/// The preset "laptop" with so many cores, which more processes than that share; 0: as many as this machine has. Its
/// name is "this".
Cluster cores_of_this_machine(int cores = 0);
/// For sentences: "this machine" for "this", others as they are.
std::string spoken_name(const std::string& cluster);
/// Several kinds of hosts in one network: "a100-80gb+v100-16gb". The slowest network between hosts holds for all.
std::vector<Cluster> find_clusters(const std::string& names);
/// `name` stands for the file in messages. Keys: "preset" (where the rest comes from), "device", "inside", "between",
/// "stack", "devices_per_host", "hosts", "evidence" (a preset's does not count for what is changed); and those of
/// mesh/cluster_file.h, whose shared memory and TCP links are taken where "inside" and "between" are not given. Throws
/// UsageError that names what is missing.
Cluster cluster_from_json(std::string_view text, const std::string& name);
/// The keys of such a file that describe devices and software (all but links, which stay with those who measured
/// them), with their values as JSON: for ClusterFile::others. An empty preset is left out.
std::map<std::string, std::string> device_keys(const Cluster& cluster, const std::string& preset);

}  // namespace trireme
