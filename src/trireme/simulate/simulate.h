// The simulator: a job on a cluster in, its step out. Pure: nothing is measured, the same numbers on every machine.
//
//   block_costs()       seconds, bytes and FLOPs of each block         block_cost.h, kernel_cost.h, collective_cost.h
//   step_costs()        seconds of messages, sums and the update       step_costs.h
//   played_shape()      what the programs depend on                    step_lowering.h
//   programs_of()       one replica's pipeline, as the trainer has it  program/step.h
//   play()              when everything runs                           player.h
//   simulate()          all of it, and the sums                        here
#pragma once

#include <string>
#include <vector>

#include "trireme/simulate/memory_model.h"
#include "trireme/simulate/player.h"

namespace trireme {

struct SimulatedRank {
  RankMemory memory;
  PlayedRank played;
};

/// Where the time of a step goes, as the rank that computes longest has it; the parts add up to the step. Ranks with
/// less to do wait for that one, so their waiting is no part of it.
struct StepParts {
  double computing = 0;
  double communication = 0;  ///< that nothing hides, messages between stages that are waited for included
  double bubble = 0;         ///< what the pipeline would wait were all communication free
  double update = 0;
};

struct Simulation {
  Job job;
  Cluster cluster;
  std::vector<Cluster> kinds = {};  ///< of hosts, where there are several; then `cluster` is the slowest of them
  double parameters = 0;            ///< of the whole model
  std::vector<BlockCost> blocks;
  Schedule schedule;
  std::vector<StageCost> stages;
  StepShape shape;                   ///< of the step: what `programs` are made from
  std::vector<Program> programs;     ///< of one replica's pipeline
  std::vector<SimulatedRank> ranks;  ///< of it

  double step_seconds = 0;
  double tokens_per_step = 0;                  ///< samples, for image models
  double model_flops = 0, hardware_flops = 0;  ///< of a step, all devices
  double bubble_fraction = 0;                  ///< of the pipeline's time, that its busiest rank waits
  StepParts parts;                             ///< of step_seconds

  int busiest = 0, fullest = 0;  ///< ranks of the pipeline
  double memory_bytes() const { return ranks[static_cast<size_t>(fullest)].memory.sum(); }
  bool fits() const { return memory_bytes() <= cluster.device.memory_bytes; }
  double devices() const { return static_cast<double>(job.layout.num_devices()); }
  double tokens_per_second_per_device() const { return tokens_per_step / step_seconds / devices(); }
  /// Of a device, in the type of the job's products.
  double peak_flops() const { return cluster.device.peak(job.layout.product_type()); }
  double model_flops_per_device() const { return model_flops / step_seconds / devices(); }
  double hardware_flops_per_device() const { return hardware_flops / step_seconds / devices(); }
};

/// Throws UsageError for a job that cannot be cut that way, or needs more devices than the cluster has.
/// `fold` false plays every replica ([Note: Folding]).
Simulation simulate(const Job& job, const Cluster& cluster, bool fold = true);

/// On several kinds of hosts, each of which has whole replicas, in order and as many as the others: the slowest kind
/// sets the step, and the kind with the least memory the limit. Throws as simulate().
Simulation simulate_mix(const Job& job, const std::vector<Cluster>& kinds);

/// A kind as it is in such a mix: its hosts have no more devices than there are of it, so that replicas of different
/// kinds never share a host.
Cluster in_mix(Cluster kind, int64_t num_devices, size_t num_kinds);

/// What would make a job fit, one sentence each: changes of the layout on the same devices, more devices, larger ones.
/// None for a job that fits.
std::vector<std::string> ways_to_fit(const Simulation& simulation);

}  // namespace trireme
