// `trireme plan`: finds the fastest layout for a model and a cluster, explains it, writes plan.json; --check says
// whether a plan can be what it says, for this model and these devices, and fits into them.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/config_flags.h"
#include "trireme/cli/plan_report.h"
#include "trireme/observe/append_file.h"
#include "trireme/plan/plan_check.h"

namespace trireme::cli {
namespace {

struct PlanFlags {
  ConfigArguments config;
  std::string cluster = "h100-80gb", attention = "auto";
  bool names_cluster = false;
  std::string out, memory_limit, check;
  int64_t gpus = 0;
  size_t tries = 0;
  bool json = false, uneven = false, compression = false;
};

std::optional<bool> flash_of(const PlanFlags& flags) {
  return flags.attention == "auto" ? std::nullopt : std::optional(flags.attention == "flash");
}

/// What --memory-limit lets a plan take of a device; 0 where `text` is empty: all that it has. Throws UsageError for
/// more than that, and for nothing.
double memory_limit(const std::string& text, const std::vector<Cluster>& kinds) {
  if (text.empty()) return 0;
  const auto limit = static_cast<double>(parse_bytes(text));
  if (limit <= 0) {
    throw UsageError(fmt::format("--memory-limit {} leaves nothing to plan with", text),
                     "give what a plan may take of a device, 60GB for example; leave it out for all that it has");
  }
  for (const Cluster& kind : kinds) {
    if (limit <= kind.device.memory_bytes) continue;
    throw UsageError(fmt::format("--memory-limit {} is more than the {:.1f} GB of a device of {}", text,
                                 kind.device.memory_bytes / 1e9, kind.name),
                     "give less, leave it out for all that it has, or describe a larger device in a cluster file");
  }
  return limit;
}

/// What the plan is to be played on; nothing where it is for a file that is on another machine. Throws UsageError for
/// another cluster than the plan's, and for a name that nobody knows.
std::vector<Cluster> clusters_for(const PlanFlags& flags, const Plan& plan) {
  if (flags.names_cluster) {
    const std::vector<Cluster> kinds = find_clusters(flags.cluster);
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
std::string why_not_fit(const PlanFlags& flags, const Simulation& simulation) {
  if (simulation.fits()) return "";
  const double limit = simulation.cluster.device.memory_bytes;
  const std::vector<std::string> ways = ways_to_fit(simulation);
  return fmt::format(
      "{} does not fit: in {} it needs {} a device, {} more than the {} of {}\n  {}plan anew: trireme plan",
      flags.check, name_of(simulation.job.layout.compute), gigabytes(simulation.memory_bytes()),
      gigabytes(simulation.memory_bytes() - limit), gigabytes(limit),
      flags.memory_limit.empty() ? simulation.cluster.device.name : "--memory-limit",
      ways.empty() ? "" : fmt::format("would fit: {}; or ", join(ways, "; ")));
}

PlanVerdict verdict_of(const PlanFlags& flags, const Config& config) {
  PlanVerdict verdict{read_plan(flags.check), "", "", std::nullopt};
  const Plan& plan = verdict.plan;
  const int64_t world = flags.gpus > 0 ? flags.gpus : plan.world_size;
  std::vector<Cluster> kinds = clusters_for(flags, plan);
  const Config planned = check_plan_keys(plan, config, world, flags.check);
  verdict.why_not_trained = why_not_trained(planned, world);
  if (kinds.empty()) return verdict;
  if (const double limit = memory_limit(flags.memory_limit, kinds); limit > 0) {
    for (Cluster& kind : kinds) kind.device.memory_bytes = limit;
  }
  const Simulation simulation = simulate_plan(planned, kinds, flash_of(flags));
  verdict.predicted = prediction_of(simulation);
  verdict.why_not_fit = why_not_fit(flags, simulation);
  return verdict;
}

Json verdict_json(const PlanFlags& flags, const PlanVerdict& verdict) {
  const Plan& plan = verdict.plan;
  const std::string& why_not = verdict.why_not_fit.empty() ? verdict.why_not_trained : verdict.why_not_fit;
  const std::optional<PlanPrediction>& p = verdict.predicted;
  return {{"plan", flags.check},
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
}

std::string verdict_text(const PlanFlags& flags, const PlanVerdict& verdict) {
  const Plan& plan = verdict.plan;
  std::string text =
      fmt::format("{} is a plan for this model on {} devices: {}", flags.check, plan.world_size, plan.layout_text());
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

/// Prints the verdict. Throws UsageError that says what is wrong, with --json after an object that says the same.
void check_plan_file(const PlanFlags& flags, const Config& config) {
  PlanVerdict verdict;
  try {
    verdict = verdict_of(flags, config);
  } catch (const UsageError& error) {
    if (flags.json) {
      Json json = {{"plan", flags.check}, {"fits_this_model", false}, {"why_not", error.what()}};
      json.update(failure_json(error));
      print_json(json);
      throw ToldError(error);
    }
    throw;
  }
  if (flags.json) print_json(verdict_json(flags, verdict));
  if (!verdict.why_not_fit.empty()) throw ToldError(Error(verdict.why_not_fit));
  if (!flags.json) fmt::print("{}\n", verdict_text(flags, verdict));
}

/// Throws UsageError where the file is a folder, or its folder cannot be written.
void check_writable(const std::string& flag, const std::filesystem::path& path) {
  std::error_code ignored;
  const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  if (std::filesystem::is_directory(path, ignored)) {
    throw UsageError(fmt::format("{} {}: that is a folder", flag, path.string()), "name a file in it");
  }
  if (access(folder.c_str(), W_OK) != 0) {
    throw UsageError(fmt::format("{} {}: cannot write to the folder {}", flag, path.string(), folder.string()));
  }
}

PlanOptions options_of(const PlanFlags& flags, const std::vector<Cluster>& kinds) {
  PlanOptions options;
  options.memory_limit_bytes = memory_limit(flags.memory_limit, kinds);
  options.uneven = flags.uneven;
  options.num_finalists = flags.tries;
  options.compression = flags.compression;
  options.flash = flash_of(flags);
  return options;
}

/// The fastest becomes the plan.
std::optional<measure::PlanTrials> try_finalists(const PlanFlags& flags, const Config& config,
                                                 const std::vector<Cluster>& kinds, int64_t gpus, PlanReport& report) {
  if (flags.tries == 0) return std::nullopt;
  const Cluster& cluster = kinds.front();
  const bool on_cores = cluster.device.units == 1;  // a GPU has many
  if (on_cores != (config.train.device != DeviceKind::kCuda)) {
    throw UsageError(fmt::format("--try trains on this machine with train.device = \"{}\", and the plan is for {}",
                                 name_of(config.train.device), cluster.name),
                     "give the cluster file of this machine (trireme bench train --write-cluster), or leave out --try");
  }
  if (kinds.size() > 1) throw UsageError("--try: this machine is of one kind", "leave out --try for a mix");
  measure::PlanTrials trials = measure::try_plans(config, report.finalists);
  if (trials.best > 0) {
    Config chosen = config;
    apply_plan(report.finalists[trials.best], chosen);
    PlanOptions options = options_of(flags, kinds);
    options.num_finalists = 0;
    options.uneven = false;
    PlanReport again = explain_plan(chosen, cluster, gpus, options);
    again.runners_up = {{report.plan.layout_text(), report.simulation.step_seconds, report.simulation.memory_bytes()}};
    for (Alternative& other : report.runners_up) {
      if (other.layout != again.plan.layout_text()) again.runners_up.push_back(std::move(other));
    }
    again.num_candidates = report.num_candidates;
    again.num_simulated = report.num_simulated;
    report = std::move(again);
  }
  return trials;
}

int run(PlanFlags flags) {
  const Config config = resolve(flags.config.sources_of_shape());
  if (!flags.check.empty()) {
    check_plan_file(flags, config);
    return 0;
  }
  if (!flags.out.empty()) check_writable("--out", flags.out);  // before a search that may take long
  const std::vector<Cluster> kinds = find_clusters(flags.cluster);
  const Cluster& cluster = kinds.front();
  int64_t gpus = flags.gpus > 0 ? flags.gpus : flags.config.num_processes;
  if (gpus == 0) {
    const int per_host = cluster.shared_cores > 0 ? cluster.shared_cores : cluster.devices_per_host;
    gpus = std::max(1, cluster.num_hosts) * int64_t{per_host} * static_cast<int64_t>(kinds.size());
  }
  PlanReport report = explain_plan(config, kinds, gpus, options_of(flags, kinds));
  const std::optional<measure::PlanTrials> trials = try_finalists(flags, config, kinds, gpus, report);
  if (!flags.out.empty()) replace_file(flags.out, plan_to_json(report.plan));
  fmt::print("{}", flags.json ? plan_json(report, trials) + "\n" : plan_text(report));
  if (trials && !flags.json) fmt::print("\n{}", trials_text(*trials));
  if (!flags.out.empty() && !flags.json) fmt::print("\nwritten to {}\n", flags.out);
  return 0;
}

}  // namespace

void add_plan(CLI::App& app, int& exit_code) {
  const auto flags = std::make_shared<PlanFlags>();
  CLI::App* command = app.add_subcommand("plan", "finds the fastest layout for a model and a cluster, and says why");
  add_config_flags(*command, flags->config);
  CLI::Option* cluster = command->add_option("--cluster", flags->cluster, "a known cluster, or a cluster file")
                             ->type_name("NAME")
                             ->capture_default_str();
  command->add_option("--gpus", flags->gpus, "devices to plan for (default: one host, or all of a cluster file)")
      ->type_name("N")
      ->check(CLI::Range(1, 10'000'000));
  command->add_option("--out", flags->out, "writes the plan: readable, diffable, for parallel.plan")->type_name("FILE");
  command->add_option("--memory-limit", flags->memory_limit, "of a device, 60GB (default: what it has)")
      ->type_name("BYTES");
  command->add_option("--attention", flags->attention, "flash, unfused; auto: what the cluster's software does")
      ->type_name("KIND")
      ->check(CLI::IsMember({"auto", "flash", "unfused"}))
      ->capture_default_str();
  command->add_flag("--uneven", flags->uneven, "stages may differ in shape, where that is predicted to be faster");
  command->add_flag("--compress", flags->compression, "gradients may be compressed, which changes the numbers");
  command
      ->add_option("--check", flags->check,
                   "reads a plan instead, and says whether it is for this model, fits and can be trained")
      ->type_name("FILE");
  command->add_option("--try", flags->tries, "trains the best N for some steps on this machine, and takes the fastest")
      ->type_name("N")
      ->check(CLI::Range(1, 64));
  command->add_flag("--json", flags->json, "one object on stdout: the fields of simulate, layout, stages, …");
  command->footer(fmt::format(
      "Clusters: {} (this machine, as measured or by its\n"
      "cores); or a file (docs/cost_model.md).\n"
      "Any key of the config: --section.key=value. Those that you give stay as they are, the others are planned.\n"
      "\n"
      "Examples\n"
      "  trireme plan --model gpt2-124m --cluster h100-80gb --gpus 8 --train.global_batch 512\n"
      "  trireme plan --model.kind llama --model.layers 80 --model.hidden 8192 --model.heads 64 --model.kv_heads 8 \\\n"
      "    --model.ffn 28672 --model.seq 8192 --model.vocab 128256 --cluster h100-80gb --gpus 64 \\\n"
      "    --train.global_batch 128 --precision.compute bf16 --out plan.json",
      join(preset_names(), ", ")));
  command->callback([command, flags, cluster, &exit_code] {
    flags->names_cluster = cluster->count() > 0;
    take_config_words(*command, flags->config);
    exit_code = run(*flags);
  });
}

}  // namespace trireme::cli
