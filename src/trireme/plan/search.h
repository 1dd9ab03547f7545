// make_plan(): the fastest layout of a training on a cluster, by the simulator's word, and why it is that one.
//
// Every layout that the trainer's keys can say is bounded from below, and simulated from the lowest bound on until no
// bound is below the best. The two passes (intra_op.h, inter_op.h) say how operators lie in its stages, and look for
// stages of different shapes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/plan/plan.h"

namespace trireme {

struct PlanOptions {
  double memory_limit_bytes = 0;  ///< of a device; 0: what it has
  std::vector<int> zero = {0, 1, 2, 3};
  std::vector<ScheduleKind> schedules = {ScheduleKind::k1F1B, ScheduleKind::kInterleaved, ScheduleKind::kZbH1,
                                         ScheduleKind::kZbH2, ScheduleKind::kZbV};
  bool uneven = false;       ///< stages of different shapes may win; else they are taken where no others can be
  int64_t num_kinds = 1;     ///< of hosts, each of which has as many whole replicas
  bool compression = false;  ///< gradients may be compressed, which changes the numbers; else it is only mentioned
  bool explain = true;       ///< what else would help, which takes as long again
  std::optional<bool> flash = {};  ///< fused attention; unset: as the cluster's software does
  size_t num_runners_up = 5;
  size_t num_finalists = 0;  ///< plans to try: the best of so many degrees, even where the model sees them behind
};

struct Alternative {
  std::string layout;
  double step_seconds = 0, memory_bytes = 0;
  std::string words = {};  ///< for what would help: "one more device"
};

struct PlanReport {
  Plan plan;
  Simulation simulation;                ///< of it
  std::vector<Alternative> runners_up;  ///< other degrees, the best of each
  std::vector<Plan> finalists;          ///< `plan` and the best of other degrees, as many as were asked for
  std::string binding;                  ///< what keeps it from being faster
  std::vector<Alternative> helps;       ///< what more would bring
  std::optional<Alternative> uneven;    ///< the best stages of different shapes, where they are faster
  std::string note;                     ///< what the trainer does not do of what was asked for; empty: nothing
  int64_t num_candidates = 0, num_simulated = 0;
};

/// Keys that the command line or a file gave stay as they are; defaults and presets are free. Throws UsageError for
/// what cannot be cut, and Error where nothing fits, with by how much and what would make it fit.
PlanReport explain_plan(const Config& config, const Cluster& cluster, int64_t num_devices,
                        const PlanOptions& options = {});
Plan make_plan(const Config& config, const Cluster& cluster, int64_t num_devices, const PlanOptions& options = {});

/// What takes most of the time of a step: "computing: 81 % of the step".
std::string largest_part(const Simulation& simulation);

/// For several kinds of hosts, each with as many devices as the others: the layout comes from the slowest kind, and
/// faster ones get a larger part of the batch (parallel.shares) where that helps, which changes no number that is
/// trained. The same errors; UsageError where the devices cannot be divided evenly.
PlanReport explain_plan(const Config& config, const std::vector<Cluster>& kinds, int64_t num_devices,
                        const PlanOptions& options = {});

}  // namespace trireme
