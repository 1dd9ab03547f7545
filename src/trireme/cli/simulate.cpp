// `trireme simulate`: predicts step time, memory and bubble of a layout on a cluster, without the cluster.
#include "trireme/simulate/simulate.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/config_flags.h"
#include "trireme/cli/fit_report.h"
#include "trireme/cli/simulate_report.h"
#include "trireme/config/check.h"
#include "trireme/config/stages.h"
#include "trireme/config/value.h"
#include "trireme/measure/machine.h"
#include "trireme/observe/append_file.h"
#include "trireme/plan/candidates.h"
#include "trireme/plan/config_job.h"
#include "trireme/plan/plan_check.h"

namespace trireme::cli {
namespace {

constexpr const char* kUsualCluster = "h100-80gb";

struct SimulateFlags {
  ConfigArguments config;
  std::optional<std::string> cluster;  ///< where one was named
  std::string attention = "auto";      ///< auto, flash, unfused
  std::string software = "auto";       ///< auto, published, trireme
  std::string svg, trace;
  std::vector<std::string> runs;             ///< folders of runs to compare with
  std::optional<std::string> write_cluster;  ///< a file; empty: the one that every command reads
  int64_t gpus = 0;                          ///< 0: the product of the degrees
  int64_t experts = 1, active_experts = 1;
  double tokens = 0;
  bool json = false, memory = false;
};

struct Played {
  Simulation simulation;
  std::string note;  ///< what the trainer would not do of it; empty: nothing
};

/// Replicas: as set, or what the other degrees leave of the devices.
int64_t replicas_of(const Config& config, int64_t gpus) {
  const ParallelConfig& p = config.parallel;
  const int64_t others = workers_of_replica(config);
  if (!p.stages.empty()) {
    const std::vector<StageDegrees> stages = stage_degrees(config);
    if (gpus > 0 && gpus != num_workers(stages)) {
      throw wrong_key(
          "parallel.stages",
          fmt::format("stages {} are {}, but --gpus is {}", p.stages, counted(num_workers(stages), "device"), gpus),
          fmt::format("give --gpus {}", num_workers(stages)));
    }
    return num_lanes(stages);
  }
  if (p.dp == 0)
    throw wrong_key("parallel.dp", "parallel.dp = 0 is not a number of replicas", "1 or more; -1 is the rest");
  if (p.dp > 0) {
    if (gpus > 0 && gpus != others * p.dp) {
      throw wrong_key("parallel.dp",
                      fmt::format("dp {} x tp {} x pp {} x cp {} are {}, but --gpus is {}", p.dp, p.tp, p.pp, p.cp,
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
void check_batch(const Config& config, const Layout& l) {
  const bool is_ours = !is_given(config, "train.global_batch") || !is_given(config, "train.micro_batch");
  if (!is_ours || !l.batch_parts.empty() || l.micro_batch < 1 || l.global_batch % (l.micro_batch * l.dp) == 0) return;
  std::string cure = fmt::format("give --train.global_batch {}, or another multiple", l.micro_batch * l.dp);
  if (l.global_batch % l.dp == 0) cure += fmt::format("; or --train.micro_batch {}", l.global_batch / l.dp);
  throw wrong_key("train.global_batch",
                  fmt::format("{} cannot be split over dp = {} with {}", with_origin(config, "train.global_batch"),
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
  static_cast<ModelShape&>(planned.model) = plan.model;
  return planned;
}

/// Constants that were measured with Trireme's trainer are for no other. On those of others auto is published software,
/// unless somebody gives a key that it has not.
Software software_of(const Config& config, const SimulateFlags& flags, const Cluster& cluster) {
  const bool has_own_key = is_given(config, "precision.gradients");
  const bool published = flags.software == "auto" ? !has_own_key : flags.software == "published";
  const Software trireme = trireme_on(cluster);
  return published && trireme != Software::kMeasured ? Software::kPublished : trireme;
}

Job job_of(const Config& config, const SimulateFlags& flags, const Cluster& cluster) {
  Job job = trireme::job_of(config, software_of(config, flags, cluster));
  job.model.experts = flags.experts;
  job.model.active_experts = flags.active_experts;
  job.layout.dp = replicas_of(config, flags.gpus);
  return job;
}

/// The keys, or the plan that they name, on the cluster that is named: the plan's own where none is. Throws UsageError
/// that names the key.
Played play(const Config& config, const SimulateFlags& flags) {
  const std::string& plan_file = config.parallel.plan;
  if (config.parallel.asks_planner()) {
    throw wrong_key("parallel.plan", fmt::format("parallel.plan = \"{}\": there is no plan yet", plan_file),
                    "trireme plan finds one; --out keeps it in a file");
  }
  const std::optional<bool> flash =
      flags.attention == "auto" ? std::nullopt : std::optional(flags.attention == "flash");
  if (!plan_file.empty()) {
    if (flags.software == "published") {
      throw UsageError("--software published: plans are for Trireme's trainer", "leave out --software");
    }
    const Plan plan = read_plan(plan_file);
    const Config planned = with_plan_file(config, flags, plan);
    const std::vector<Cluster> kinds = flags.cluster ? find_clusters(*flags.cluster) : clusters_of(plan);
    return {simulate_plan(planned, kinds, flash), why_not_compressed(planned)};
  }
  const std::vector<Cluster> kinds = find_clusters(flags.cluster.value_or(kUsualCluster));
  Job job = job_of(config, flags, kinds.front());
  check_batch(config, job.layout);
  job.flash = flash;
  for (const Cluster& cluster : kinds) check_types(job.layout, cluster);
  return {simulate_mix(job, kinds), why_not_compressed(config)};
}

/// The file that measurements of this machine are in. Throws UsageError where there is none.
std::string home_cluster() {
  const std::string path = ClusterFile::default_path().string();
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored)) return path;
  throw UsageError("--run: no cluster is named, and this machine is not measured",
                   "give --cluster NAME, or measure it: trireme bench train --write-cluster");
}

/// What is wrong with a number of tokens; empty where nothing is.
std::string wrong_tokens(const std::string& text) {
  char* end = nullptr;
  const double tokens = std::strtod(text.c_str(), &end);
  const bool is_number = !text.empty() && *end == '\0' && std::isfinite(tokens);
  return is_number && tokens >= 1 ? "" : fmt::format("{} is not a number of tokens: 1 or more, as 300e9", text);
}

int compare(const SimulateFlags& flags) {
  std::optional<std::filesystem::path> written;
  if (flags.write_cluster) written = measure::cluster_path(*flags.write_cluster);
  const measure::RunComparison comparison =
      measure::compare_runs(flags.runs, flags.cluster ? *flags.cluster : home_cluster(), written);
  fmt::print("{}{}", flags.json ? comparison_json(comparison) : comparison_text(comparison), flags.json ? "\n" : "");
  return 0;
}

int run(SimulateFlags flags) {
  if (!flags.runs.empty()) return compare(flags);
  if (flags.write_cluster) {
    throw UsageError("--write-cluster corrects constants by runs, and there is none",
                     "give --run FOLDER; or measure: trireme bench train --write-cluster");
  }
  if (flags.config.num_processes > 0 && flags.gpus == 0) flags.gpus = flags.config.num_processes;
  const Config config = resolve(flags.config.sources_of_shape());
  const Played played = play(config, flags);
  const Simulation& simulation = played.simulation;
  const SimulateReportOptions options{.tokens = flags.tokens, .memory = flags.memory, .note = played.note};
  if (!flags.svg.empty()) replace_file(flags.svg, simulation_svg(simulation));
  if (!flags.trace.empty()) replace_file(flags.trace, simulation_trace(simulation));
  fmt::print("{}{}", flags.json ? simulation_json(simulation, options) : simulation_text(simulation, options),
             flags.json ? "\n" : "");
  return 0;
}

}  // namespace

void add_simulate(CLI::App& app, int& exit_code) {
  const auto flags = std::make_shared<SimulateFlags>();
  CLI::App* command = app.add_subcommand("simulate", "predicts time and memory of a layout, without the hardware");
  add_config_flags(*command, flags->config);
  const auto named = std::make_shared<std::string>(kUsualCluster);
  CLI::Option* cluster =
      command->add_option("--cluster", *named, "a known cluster, a cluster file, or several: a100-80gb+v100-16gb")
          ->type_name("NAME")
          ->capture_default_str();
  command->add_option("--gpus", flags->gpus, "devices (default: the product of the degrees)")
      ->type_name("N")
      ->check(CLI::Range(1, 10'000'000));
  command->add_option("--tokens", flags->tokens, "of a whole training, 300e9: total time and device-hours")
      ->type_name("N")
      ->check(wrong_tokens);
  command->add_flag("--memory", flags->memory, "where memory goes: by kind, rank, layer and ZeRO stage");
  command->add_option("--attention", flags->attention, "flash, unfused; auto: what the cluster's software does")
      ->type_name("KIND")
      ->check(CLI::IsMember({"auto", "flash", "unfused"}))
      ->capture_default_str();
  command
      ->add_option("--software", flags->software,
                   "published, trireme; auto: trireme's where precision.gradients is given")
      ->type_name("NAME")
      ->check(CLI::IsMember({"auto", "published", "trireme"}))
      ->capture_default_str();
  command->add_option("--experts", flags->experts, "feed-forward parts of a block, shared over parallel.ep (1)")
      ->type_name("N")
      ->check(CLI::Range(1, 100'000));
  command->add_option("--active-experts", flags->active_experts, "of them, used by each token (1)")
      ->type_name("N")
      ->check(CLI::Range(1, 100'000));
  command
      ->add_option("--run", flags->runs,
                   "what a finished run measured, next to what the cluster predicts for it; may be repeated")
      ->type_name("FOLDER")
      ->expected(1);
  const auto cluster_file = std::make_shared<std::string>();
  CLI::Option* file =
      command->add_option("--write-cluster", *cluster_file, "corrects the cluster's constants by the runs")
          ->type_name("[FILE]")
          ->expected(0, 1);
  command->add_option("--svg", flags->svg, "writes the timeline as a picture")->type_name("FILE");
  command->add_option("--trace", flags->trace, "writes the timeline for Perfetto")->type_name("FILE");
  command->add_flag("--json", flags->json, "one object on stdout: step_seconds, memory_bytes_per_gpu, fits, …");
  command->footer(fmt::format(
      "Clusters: {} (this machine, as measured or by its\n"
      "cores); or a file (docs/cost_model.md).\n"
      "Any key of the config: --section.key=value. parallel.schedule takes every name of trireme schedule show, and a "
      "CSV\n"
      "file as trireme schedule check does; parallel.plan a file of trireme plan, played on its own cluster unless "
      "one\n"
      "is given.\n"
      "\n"
      "Examples\n"
      "  trireme simulate --model gpt2-124m --cluster h100-80gb --gpus 8 --train.micro_batch 32 "
      "--train.global_batch 512\n"
      "  trireme simulate --model.kind llama --model.layers 80 --model.hidden 8192 --model.heads 64 "
      "--model.kv_heads 8 \\\n"
      "    --model.ffn 28672 --model.seq 8192 --model.vocab 128256 --cluster h100-80gb --gpus 64 --parallel.tp 8 \\\n"
      "    --parallel.pp 4 --train.micro_batch 1 --train.global_batch 64 --precision.compute bf16 --memory\n"
      "  trireme simulate --run runs/default-1 --cluster laptop --write-cluster mine.json",
      join(preset_names(), ", ")));
  command->callback([command, flags, cluster, named, file, cluster_file, &exit_code] {
    if (file->count() > 0) flags->write_cluster = *cluster_file;
    if (cluster->count() > 0) flags->cluster = *named;
    take_config_words(*command, flags->config);
    exit_code = run(*flags);
  });
}

}  // namespace trireme::cli
