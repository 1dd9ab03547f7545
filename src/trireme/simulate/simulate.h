// The simulator: predicts the step of a job on a cluster. Pure functions: nothing is measured, and every machine
// computes the same numbers. Threads: all.
//
//   block_costs()       seconds, bytes and FLOPs of each block         block_cost.h, kernel_cost.h, collective_cost.h
//   step_costs()        seconds of communication and the update        step_costs.h
//   played_shape()      what the programs depend on                    step_lowering.h
//   programs_of()       one replica's pipeline, as the trainer has it  program/step.h
//   play()              start and end of every instruction             player.h
//   simulate()          all of the above, and totals                   here
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

/// Breakdown of the step time, as seen by the rank that computes longest; the parts add up to the step. Ranks with less
/// work wait for that rank, and their waiting is not counted.
struct StepParts {
  double computing = 0;
  double communication = 0;  ///< exposed communication, including waits for messages between stages
  double bubble = 0;         ///< the pipeline's wait time if all communication were free
  double update = 0;
};

struct Simulation {
  Job job;
  Cluster cluster;
  std::vector<Cluster> kinds = {};  ///< kinds of hosts, if there are several; then `cluster` is the slowest of them
  double parameters = 0;            ///< parameters of the whole model
  std::vector<BlockCost> blocks;
  Schedule schedule;
  std::vector<StageCost> stages;
  StepShape shape;                   ///< shape of the step, from which `programs` are lowered
  std::vector<Program> programs;     ///< programs of one replica's pipeline
  std::vector<SimulatedRank> ranks;  ///< ranks of one replica's pipeline

  double step_seconds = 0;
  double tokens_per_step = 0;                  ///< samples per step, for image models
  double model_flops = 0, hardware_flops = 0;  ///< per step, summed over all devices
  double bubble_fraction = 0;                  ///< fraction of the pipeline's time that its busiest rank waits
  StepParts parts;                             ///< breakdown of step_seconds

  int busiest = 0, fullest = 0;  ///< pipeline ranks
  double memory_bytes() const { return ranks[static_cast<size_t>(fullest)].memory.sum(); }
  bool fits() const { return memory_bytes() <= cluster.device.memory_bytes; }
  double devices() const { return static_cast<double>(job.layout.num_devices()); }
  double tokens_per_second_per_device() const { return tokens_per_step / step_seconds / devices(); }
  /// FLOP/s of a device in the dtype of the job's matmuls.
  double peak_flops() const { return cluster.device.peak(job.layout.product_type()); }
  double model_flops_per_device() const { return model_flops / step_seconds / devices(); }
  double hardware_flops_per_device() const { return hardware_flops / step_seconds / devices(); }
};

/// Throws UsageError if the layout cannot split the model, or needs more devices than the cluster has. `fold` false
/// simulates every replica ([Note: Folding]).
Simulation simulate(const Job& job, const Cluster& cluster, bool fold = true);

/// Simulates a mix of several kinds of hosts. Each kind holds an equal number of whole replicas, in order; the slowest
/// kind determines the step time, the kind with the least memory the limit. Throws as simulate().
Simulation simulate_mix(const Job& job, const std::vector<Cluster>& kinds);

/// Returns a kind as it appears in such a mix. A host has at most as many devices as the mix has of its kind, so
/// replicas of different kinds are never on one host.
Cluster in_mix(Cluster kind, int64_t num_devices, size_t num_kinds);

/// Returns ways to make a job fit, one sentence each: changes of the layout on the same devices, more devices, larger
/// devices. Empty if the job fits.
std::vector<std::string> ways_to_fit(const Simulation& simulation);

}  // namespace trireme
