#include "trireme/cli/plan_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/cli/memory_limit.h"
#include "trireme/plan/plan_check.h"

namespace trireme::cli {
namespace {

/// What the plan is to be played on; nothing where it is for a file that is on another machine. Throws UsageError for
/// another cluster than the plan's, and for a name that nobody knows.
std::vector<Cluster> clusters_for(const PlanCheckFlags& flags, const Plan& plan) {
  if (flags.cluster) {
    const std::vector<Cluster> kinds = find_clusters(*flags.cluster);
    std::vector<std::string> names;
    for (const Cluster& kind : kinds) names.push_back(kind.name);
    if (join(names, "+") == plan.cluster) return kinds;
    throw UsageError(fmt::format("the plan is for the cluster {}, not for {}", plan.cluster, join(names, "+")),
                     "plan again for this one, or leave out --cluster");
  }
  const std::vector<std::string> known = preset_names();
  std::error_code ignored;
  bool is_here = true;
  for (const std::string_view part : split(plan.cluster, '+')) {
    const std::string name(part);
    const bool is_known = std::find(known.begin(), known.end(), name) != known.end();
    if (is_known || std::filesystem::exists(name, ignored)) continue;
    is_here = false;
    if (names_file(name)) continue;
    throw UsageError(
        fmt::format("the plan is for a cluster \"{}\", which is not known", name),
        fmt::format("known: {}; the name of a cluster file's own: give --cluster FILE", join(known, ", ")));
  }
  if (!is_here && flags.memory_limit.empty()) return {};
  return clusters_of(plan);
}

struct PlanVerdict {
  Plan plan;
  std::string why_not_trained;
  std::string why_not_fit;                  ///< and what would
  std::optional<PlanPrediction> predicted;  ///< of its keys as they are now; nothing where its cluster is not here
};

std::string gigabytes(double bytes) {
  return bytes < 1e8 ? fmt::format("{:.1f} MB", bytes / 1e6) : fmt::format("{:.1f} GB", bytes / 1e9);
}

/// By how much, and what to change.
std::string why_not_fit(const PlanCheckFlags& flags, const Simulation& simulation) {
  if (simulation.fits()) return "";
  const double limit = simulation.cluster.device.memory_bytes;
  const std::vector<std::string> ways = ways_to_fit(simulation);
  return fmt::format(
      "{} does not fit: in {} it needs {} a device, {} more than the {} of {}\n  {}plan anew: trireme plan", flags.file,
      name_of(simulation.job.layout.compute), gigabytes(simulation.memory_bytes()),
      gigabytes(simulation.memory_bytes() - limit), gigabytes(limit),
      flags.memory_limit.empty() ? simulation.cluster.device.name : "--memory-limit",
      ways.empty() ? "" : fmt::format("would fit: {}; or ", join(ways, "; ")));
}

PlanVerdict verdict_of(const PlanCheckFlags& flags, const Config& config) {
  PlanVerdict verdict{read_plan(flags.file), "", "", std::nullopt};
  const Plan& plan = verdict.plan;
  const int64_t world = flags.gpus > 0 ? flags.gpus : plan.world_size;
  std::vector<Cluster> kinds = clusters_for(flags, plan);
  const Config planned = check_plan_keys(plan, config, world, flags.file);
  verdict.why_not_trained = why_not_trained(planned, world);
  if (kinds.empty()) return verdict;
  if (const double limit = memory_limit(flags.memory_limit, kinds); limit > 0) {
    for (Cluster& kind : kinds) kind.device.memory_bytes = limit;
  }
  const Simulation simulation = simulate_plan(planned, kinds, flags.flash);
  verdict.predicted = prediction_of(simulation);
  verdict.why_not_fit = why_not_fit(flags, simulation);
  return verdict;
}

std::string verdict_json(const PlanCheckFlags& flags, const PlanVerdict& verdict) {
  const Plan& plan = verdict.plan;
  const std::string& why_not = verdict.why_not_fit.empty() ? verdict.why_not_trained : verdict.why_not_fit;
  const std::optional<PlanPrediction>& p = verdict.predicted;
  const Json json = {{"plan", flags.file},
                     {"fits_this_model", true},
                     {"gpus", plan.world_size},
                     {"cluster", plan.cluster},
                     {"layout", plan.layout_text()},
                     {"keys", Json::parse(plan_to_json(plan))["keys"]},
                     {"fits", p ? Json(p->fits) : Json(nullptr)},
                     {"memory_bytes_per_gpu", p ? Json(p->memory_bytes_per_gpu) : Json(nullptr)},
                     {"memory_limit_bytes", p ? Json(p->memory_limit_bytes) : Json(nullptr)},
                     {"step_seconds", p ? Json(p->step_seconds) : Json(nullptr)},
                     {"trains", why_not.empty()},
                     {"why_not", why_not.empty() ? Json(nullptr) : Json(why_not)}};
  return json.dump(2);
}

std::string verdict_text(const PlanCheckFlags& flags, const PlanVerdict& verdict) {
  const Plan& plan = verdict.plan;
  std::string text =
      fmt::format("{} is a plan for this model on {} devices: {}", flags.file, plan.world_size, plan.layout_text());
  if (const std::optional<PlanPrediction>& p = verdict.predicted) {
    text +=
        fmt::format("\npredicted for {}: {} a step, {} of {} a device", plan.cluster, format_duration(p->step_seconds),
                    gigabytes(p->memory_bytes_per_gpu), gigabytes(p->memory_limit_bytes));
  } else {
    text += fmt::format("\nmemory is not checked: the cluster file {} is not here; give it as --cluster FILE",
                        plan.cluster);
  }
  if (!verdict.why_not_trained.empty()) text += "\ntrireme train does not run it: " + verdict.why_not_trained;
  return text;
}

}  // namespace

void check_plan_file(const PlanCheckFlags& flags, const Config& config) {
  PlanVerdict verdict;
  try {
    verdict = verdict_of(flags, config);
  } catch (const UsageError& error) {
    if (flags.json) {
      const Json json = {{"plan", flags.file}, {"fits_this_model", false}, {"why_not", error.what()}};
      fmt::print("{}\n", json.dump(2));
    }
    throw;
  }
  if (flags.json) fmt::print("{}\n", verdict_json(flags, verdict));
  if (!verdict.why_not_fit.empty()) throw UsageError(verdict.why_not_fit);
  if (!flags.json) fmt::print("{}\n", verdict_text(flags, verdict));
}

}  // namespace trireme::cli
