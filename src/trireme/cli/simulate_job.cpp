#include "trireme/cli/simulate_job.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/units.h"
#include "trireme/config/check.h"
#include "trireme/config/stages.h"
#include "trireme/config/value.h"
#include "trireme/plan/candidates.h"
#include "trireme/plan/config_job.h"
#include "trireme/plan/plan_check.h"

namespace trireme::cli {
namespace {

std::string long_name(std::string_view key, const std::string& value) {
  if (key == "model.kind" && value == "gpt") return "gpt2";
  if (key == "precision.compute" && (value == "fp16" || value == "fp32" || value == "bf16")) {
    return std::string(name_of(number_type(value)));
  }
  return value;
}

/// Replicas: as set, or what the other degrees leave of the devices.
int64_t replicas_of(const Config& config, int64_t gpus) {
  const ParallelConfig& p = config.parallel;
  const int64_t others = workers_of_replica(config);
  if (!p.stages.empty()) {
    const std::vector<StageDegrees> stages = stage_degrees(config);
    if (gpus > 0 && gpus != num_workers(stages)) {
      throw UsageError(
          fmt::format("stages {} are {}, but --gpus is {}", p.stages, counted(num_workers(stages), "device"), gpus),
          fmt::format("give --gpus {}", num_workers(stages)));
    }
    return num_lanes(stages);
  }
  if (p.dp == 0) throw UsageError("parallel.dp = 0 is not a number of replicas", "1 or more; -1 is the rest");
  if (p.dp > 0) {
    if (gpus > 0 && gpus != others * p.dp) {
      throw UsageError(fmt::format("dp {} x tp {} x pp {} x cp {} are {}, but --gpus is {}", p.dp, p.tp, p.pp, p.cp,
                                   counted(others * p.dp, "device"), gpus),
                       fmt::format("leave parallel.dp at -1, or give --gpus {}", others * p.dp));
    }
    return p.dp;
  }
  if (gpus == 0) return 1;
  if (gpus % others != 0) {
    throw UsageError(
        fmt::format("--gpus {} cannot be split by tp {} x pp {} x cp {} = {}", gpus, p.tp, p.pp, p.cp, others),
        fmt::format("nearest: {} or {}", std::max(gpus / others, int64_t{1}) * others, (gpus / others + 1) * others));
  }
  return gpus / others;
}

/// Batches that nobody has given, and that do not go with the devices: says that they are defaults.
void check_batch(const Config& config, const JobLayout& l) {
  const bool is_ours = !is_given(config, "train.global_batch") || !is_given(config, "train.micro_batch");
  if (!is_ours || !l.shares.empty() || l.micro_batch < 1 || l.global_batch % (l.micro_batch * l.dp) == 0) return;
  std::string cure = fmt::format("give --train.global_batch {}, or another multiple", l.micro_batch * l.dp);
  if (l.global_batch % l.dp == 0) cure += fmt::format("; or --train.micro_batch {}", l.global_batch / l.dp);
  throw UsageError(fmt::format("{} cannot be split over dp = {} with {}", with_origin(config, "train.global_batch"),
                               l.dp, with_origin(config, "train.micro_batch")),
                   cure);
}

/// A plan file says model, batch and layout; types and the rest come from the other keys.
Config with_plan_file(const Config& config, const SimulateFlags& flags, const Plan& plan) {
  const std::string& file = config.parallel.plan;
  if (flags.gpus > 0 && flags.gpus != plan.world_size) {
    throw UsageError(
        fmt::format("{} is a plan for {}, but --gpus is {}", file, counted(plan.world_size, "device"), flags.gpus),
        "leave --gpus out, or plan anew: trireme plan");
  }
  check_given(plan, config, file);
  Config planned = config;
  apply_plan(plan, planned);
  const std::vector<Key>& all = keys();
  const bool names_model = std::any_of(all.begin(), all.end(), [&](const Key& key) {
    return key.section == "model" && is_given(config, key.full_name());
  });
  if (names_model) check_plan(plan, planned, plan.world_size);
  check_placements(plan);
  static_cast<ModelConfig&>(planned.model) = plan.model;
  return planned;
}

Job job_of(const Config& config, const SimulateFlags& flags, const std::string& schedule) {
  Config known = config;
  if (!schedule.empty()) {
    known.parallel.schedule = schedule;
    known.origins.set("parallel.schedule", "command line");
  }
  Job job = trireme::job_of(known);
  job.model.experts = flags.experts;
  job.model.active_experts = flags.active_experts;
  job.layout.dp = replicas_of(config, flags.gpus);
  return job;
}

}  // namespace

std::vector<std::string> translate_words(std::vector<std::string> words, std::string& schedule) {
  std::vector<std::string> kept;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    const size_t equals = word.find('=');
    const bool has_value = equals != std::string::npos;
    const bool takes_next = !has_value && i + 1 < words.size() && !words[i + 1].starts_with("--");
    if (!word.starts_with("--") || (!has_value && !takes_next)) {
      kept.push_back(word);
      continue;
    }
    const std::string key = word.substr(2, has_value ? equals - 2 : std::string::npos);
    const std::string value = has_value ? word.substr(equals + 1) : words[++i];
    if (key == "parallel.schedule") {
      schedule = value;
      continue;
    }
    kept.push_back(fmt::format("--{}={}", key, long_name(key, value)));
  }
  return kept;
}

Played play(const Config& config, const SimulateFlags& flags, const std::string& schedule) {
  const std::string& plan_file = config.parallel.plan;
  if (plan_file == "auto" || plan_file == "try") {
    throw UsageError(fmt::format("parallel.plan = \"{}\": there is no plan yet", plan_file),
                     "trireme plan finds one; --out keeps it in a file");
  }
  const std::optional<bool> flash =
      flags.attention == "auto" ? std::nullopt : std::optional(flags.attention == "flash");
  if (!plan_file.empty()) {
    const Plan plan = read_plan(plan_file);
    const Config planned = with_plan_file(config, flags, plan);
    const std::vector<Cluster> kinds = flags.cluster ? find_clusters(*flags.cluster) : clusters_of(plan);
    return {simulate_plan(planned, kinds, flash), why_not_compressed(planned)};
  }
  const std::vector<Cluster> kinds = find_clusters(flags.cluster.value_or(kUsualCluster));
  Job job = job_of(config, flags, schedule);
  check_batch(config, job.layout);
  job.layout.flash = flash;
  for (const Cluster& cluster : kinds) check_types(job.layout, cluster);
  return {simulate_mix(job, kinds), why_not_compressed(config)};
}

}  // namespace trireme::cli
