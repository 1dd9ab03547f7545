// make_plan(): the layout of a training that the simulator predicts to be fastest on a cluster, and an explanation.
//
// Branch and bound: every layout that the trainer's keys can express gets a lower bound; layouts are simulated in
// ascending order of bounds until no bound is below the best. The two passes (intra_op.h, inter_op.h) place operators
// within stages, and search for stages of different shapes. Pure functions, which take seconds to minutes. Threads:
// all.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/plan/plan.h"

namespace trireme {

struct PlanOptions {
  double memory_limit_bytes = 0;  ///< memory limit of a device; 0: what it has
  std::vector<int> zero = {0, 1, 2, 3};
  std::vector<ScheduleKind> schedules = {ScheduleKind::k1F1B, ScheduleKind::kInterleaved, ScheduleKind::kZbH1,
                                         ScheduleKind::kZbH2, ScheduleKind::kZbV};
  bool uneven = false;       ///< stages of different shapes may win; false: only if no equal stages fit
  int64_t num_kinds = 1;     ///< kinds of hosts, which hold equal numbers of whole replicas
  bool compression = false;  ///< the plan may compress gradients, which changes the numbers; false: only suggested
  bool explain = true;       ///< also search for what else would help, which doubles the time
  std::optional<bool> flash = {};  ///< fused attention; unset: as the cluster's stack does
  size_t num_runners_up = 5;
  size_t num_finalists = 0;  ///< plans to measure: the best of this many degrees, even if predicted to be slower
};

struct Alternative {
  std::string layout;
  double step_seconds = 0, memory_bytes = 0;
  std::string words = {};  ///< description of a suggestion: "one more device"
};

struct PlanReport {
  Plan plan;
  Simulation simulation;                ///< simulation of the plan
  std::vector<Alternative> runners_up;  ///< the best layouts of other degrees
  std::vector<Plan> finalists;          ///< `plan` and the best of other degrees, num_finalists in all
  std::string binding;                  ///< what limits its speed
  std::vector<Alternative> helps;       ///< predicted gains of more devices, memory or bandwidth
  std::optional<Alternative> uneven;    ///< the best stages of different shapes, if they are faster
  std::string note;                     ///< what the trainer does not support of the request; empty: nothing
  int64_t num_candidates = 0, num_simulated = 0;
};

/// Finds a plan and explains it. Keys set on the command line or in a file stay fixed; defaults and presets may change.
/// Throws UsageError if no layout can split the model, and Error if none fits, with the missing memory and what would
/// make it fit.
PlanReport explain_plan(const Config& config, const Cluster& cluster, int64_t num_devices,
                        const PlanOptions& options = {});
Plan make_plan(const Config& config, const Cluster& cluster, int64_t num_devices, const PlanOptions& options = {});

/// Returns the largest part of the step time: "computing: 81 % of the step".
std::string largest_part(const Simulation& simulation);

/// The same for several kinds of hosts with equally many devices. The layout comes from the slowest kind, and faster
/// kinds get larger batch parts (parallel.shares) if that helps, which does not change the trained numbers. Throws
/// likewise, and UsageError if the devices cannot be divided evenly.
PlanReport explain_plan(const Config& config, const std::vector<Cluster>& kinds, int64_t num_devices,
                        const PlanOptions& options = {});

}  // namespace trireme
