#include "trireme/cli/plan_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/plan/plan_check.h"

namespace trireme::cli {
namespace {

using Json = nlohmann::ordered_json;

/// A name that nobody knows is a mistake; a cluster file need not be on this machine.
void check_cluster(const PlanCheckFlags& flags, const Plan& plan) {
  if (flags.cluster) {
    std::vector<std::string> names;
    for (const Cluster& kind : find_clusters(*flags.cluster)) names.push_back(kind.name);
    if (join(names, "+") == plan.cluster) return;
    throw UsageError(fmt::format("the plan is for the cluster {}, not for {}", plan.cluster, join(names, "+")),
                     "plan again for this one, or leave out --cluster");
  }
  const std::vector<std::string> known = preset_names();
  std::error_code ignored;
  for (const std::string_view part : split(plan.cluster, '+')) {
    const std::string name(part);
    const bool is_known = std::find(known.begin(), known.end(), name) != known.end();
    if (is_known || names_file(name) || std::filesystem::exists(name, ignored)) continue;
    throw UsageError(
        fmt::format("the plan is for a cluster \"{}\", which is not known", name),
        fmt::format("known: {}; the name of a cluster file's own: give --cluster FILE", join(known, ", ")));
  }
}

struct Verdict {
  Plan plan;
  std::string why_not_trained;
};

Verdict verdict_of(const PlanCheckFlags& flags, const Config& config) {
  Verdict verdict{read_plan(flags.file), ""};
  const Plan& plan = verdict.plan;
  const int64_t world = flags.gpus > 0 ? flags.gpus : plan.world_size;
  check_cluster(flags, plan);
  verdict.why_not_trained = why_not_trained(check_plan_keys(plan, config, world), world);
  return verdict;
}

std::string verdict_json(const PlanCheckFlags& flags, const Verdict& verdict) {
  const Plan& plan = verdict.plan;
  const bool trains = verdict.why_not_trained.empty();
  const Json json = {{"plan", flags.file},
                     {"fits_this_model", true},
                     {"gpus", plan.world_size},
                     {"cluster", plan.cluster},
                     {"layout", plan.layout_text()},
                     {"keys", Json::parse(plan_to_json(plan))["keys"]},
                     {"trains", trains},
                     {"why_not", trains ? Json(nullptr) : Json(verdict.why_not_trained)}};
  return json.dump(2);
}

std::string verdict_text(const PlanCheckFlags& flags, const Verdict& verdict) {
  const Plan& plan = verdict.plan;
  std::string text =
      fmt::format("{} is a plan for this model on {} devices: {}", flags.file, plan.world_size, plan.layout_text());
  if (!verdict.why_not_trained.empty()) text += "\ntrireme train does not run it: " + verdict.why_not_trained;
  return text;
}

}  // namespace

void check_plan_file(const PlanCheckFlags& flags, const Config& config) {
  try {
    const Verdict verdict = verdict_of(flags, config);
    fmt::print("{}\n", flags.json ? verdict_json(flags, verdict) : verdict_text(flags, verdict));
  } catch (const UsageError& error) {
    if (flags.json) {
      const Json json = {{"plan", flags.file}, {"fits_this_model", false}, {"why_not", error.what()}};
      fmt::print("{}\n", json.dump(2));
    }
    throw;
  }
}

}  // namespace trireme::cli
