// `parallel.plan` in a training: what a plan changes in a config, as words of a command line.
#pragma once

#include <string>
#include <vector>

#include "trireme/cli/config_arguments.h"
#include "trireme/plan/plan.h"

namespace trireme::cli {

/// What the plan changes in the config; one of the words empties parallel.plan. Throws UsageError for a plan that no
/// key says.
std::vector<std::string> words_of_plan(const Plan& plan, const Config& config);

struct PlannedTraining {
  std::vector<std::string> words;  ///< "--parallel.dp=2", …: what the plan decides
  std::string told;                ///< what to say about it
  PlanPrediction predicted;        ///< zeros where nothing can be predicted here
};

/// `config` is what `arguments` come to. "auto" asks the planner, for the cluster that TRIREME_CLUSTER names (a preset
/// or a file; by default this machine, or H100s for train.device = "cuda"); "try" does so, and trains the best few
/// for some steps; everything else is the path of a plan, which is predicted anew. Throws UsageError for a plan that is
/// not for this, as check_plan_keys() does, and for one that no key says; Error where nothing fits.
PlannedTraining plan_words(const ConfigArguments& arguments, const Config& config, int num_workers);

}  // namespace trireme::cli
