// `trireme train`: reads the config, starts the workers, each of which is `trireme-tensor train`. Under another
// launcher, becomes one.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/units.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/config_flags.h"
#include "trireme/cli/plan_report.h"
#include "trireme/comm/control/launch_environment.h"
#include "trireme/config/check.h"
#include "trireme/config/config_file.h"
#include "trireme/config/kept.h"
#include "trireme/config/presets.h"
#include "trireme/config/reference.h"
#include "trireme/config/resolve.h"
#include "trireme/config/task.h"
#include "trireme/config/value.h"
#include "trireme/data/open_data.h"
#include "trireme/launch/local_launch.h"
#include "trireme/measure/programs.h"
#include "trireme/observe/run_folder.h"
#include "trireme/plan/graph/graph_plan.h"
#include "trireme/plan/plan_check.h"

namespace trireme::cli {
namespace {

struct TrainFlags {
  ConfigArguments config;
  std::string resume;
  bool json = false, show_config = false, config_reference = false, presets = false;
};

constexpr const char* kCommandLine = "command line";

RunPaths run_to_resume(const std::string& named) {
  const RunPaths run = run_at(named == "auto" ? "runs/latest" : named);
  if (std::filesystem::exists(run.config())) return run;
  throw UsageError(fmt::format("--resume {}: {} is no run folder (it has no config.toml)", named, run.folder.string()),
                   "name the folder of a run, such as runs/default-1");
}

/// `--resume FOLDER` goes on in a run folder with the config that it keeps; alone, or "auto", in the newest run.
Config resolve_to_resume(TrainFlags& options) {
  const RunPaths run = run_to_resume(options.resume);
  if (options.config.file.empty()) options.config.file = run.config().string();
  Config config = resolve(options.config.sources());
  const auto is_said = [&](const char* key) { return config.origins.of(key) == kCommandLine; };
  // The run may itself have been started with "never" or from a checkpoint.
  if (!is_said("checkpoint.resume")) set_key(config, "checkpoint.resume", "auto", kCommandLine);
  const std::string toml = read_config_file(run.config());
  add_younger_keys(config, toml, run.config());
  // A preset's target is for its own task: it does not come along where the user changes the task.
  if (options.config.file == run.config() && !is_said("train.target_loss")) {
    const Config kept = resolve_kept(toml, run.config());
    if (has_target_of_preset(kept) && !is_same_task(kept, config)) {
      set_key(config, "train.target_loss", 0.0, kCommandLine);
    }
  }
  const std::filesystem::path folder = std::filesystem::proximate(std::filesystem::canonical(run.folder));
  set_key(config, "observe.run_dir", folder.string(), kCommandLine);
  return config;
}

Config resolve_flags(TrainFlags& options) {
  if (!options.resume.empty() && options.resume != "never") return resolve_to_resume(options);
  Config config = resolve(options.config.sources());
  if (!options.resume.empty()) set_key(config, "checkpoint.resume", "never", kCommandLine);
  return config;
}

/// What parallel.plan decides of a training.
struct PlannedTraining {
  Training training;  ///< predicted: zeros where nothing can be predicted here
  std::string told;   ///< what to say about it
};

Config without_plan(Config config) {
  config.parallel.plan.clear();
  return config;
}

std::string told_of(const Plan& plan, const std::string& how) {
  return fmt::format("{} for {}: {} · predicted {} a step, {} a worker", how, spoken_name(plan.cluster),
                     plan.layout_text(), format_duration(plan.predicted.step_seconds),
                     format_bytes(static_cast<uint64_t>(plan.predicted.memory_bytes_per_gpu)));
}

Training planned_training(const Plan& plan, Config config) {
  apply_plan(plan, config);
  return {std::move(config), {plan.predicted.step_seconds * 1e3, plan.predicted.memory_bytes_per_gpu}};
}

/// With what is predicted of the keys now: the file's own numbers are of those it was made for.
PlannedTraining planned_by_file(Plan plan, const Config& config, int num_workers) {
  const Config planned = check_plan_keys(plan, without_plan(config), num_workers, config.parallel.plan);
  try {
    plan.predicted = prediction_of(simulate_plan(planned, clusters_of(plan)));
  } catch (const UsageError& error) {  // a cluster file that is elsewhere, or types that those devices do not have
    return {{planned},
            fmt::format("planned for {}: {} · not predicted: {}", plan.cluster, plan.layout_text(), cause_of(error))};
  }
  PlannedTraining result{planned_training(plan, planned), told_of(plan, "planned")};
  if (!plan.predicted.fits) {
    result.told += fmt::format(", more than the {} of a device there",
                               format_bytes(static_cast<uint64_t>(plan.predicted.memory_limit_bytes)));
  }
  return result;
}

/// "auto" asks the planner, for the cluster that TRIREME_CLUSTER names (a preset or a file; by default this machine, or
/// H100s for train.device = "cuda"); "try" does so, and trains the best few for some steps; everything else is the path
/// of a plan, which is predicted again. Throws UsageError for a plan that is not for this, as check_plan_keys() does;
/// Error where nothing fits.
PlannedTraining plan_training(const Config& config, int num_workers) {
  if (!config.parallel.asks_planner()) {
    return planned_by_file(read_plan(config.parallel.plan), config, num_workers);
  }
  PlanOptions options;
  options.explain = false;
  options.num_finalists = config.parallel.tries_plans() ? measure::kUsualTrials : 0;
  const PlanReport report = explain_plan(
      without_plan(config), cluster_at_hand(config.train.device == DeviceKind::kCuda ? "h100-80gb" : "laptop"),
      num_workers, options);
  if (!config.parallel.tries_plans()) {
    return {planned_training(report.plan, config), told_of(report.plan, "planned")};
  }
  const measure::PlanTrials trials = measure::try_plans(config, report.finalists);
  const Plan& best = report.finalists[trials.best];
  return {planned_training(best, config), told_of(best, "planned and tried") + "\n" + trials_text(trials)};
}

/// The keys of the user and of the plan that they name. What the user gave stays: the planner has kept it.
Training resolve_training(TrainFlags& options) {
  Config config = resolve_flags(options);
  if (config.parallel.plan.empty()) return {std::move(config)};
  const LaunchEnvironment launched = read_launch_environment();
  const int workers = launched.launcher == Launcher::kAlone ? options.config.num_workers(config) : launched.size;
  if (config.parallel.tries_plans() && launched.launcher != Launcher::kAlone) {
    throw UsageError("parallel.plan = \"try\" trains before the workers start, and here they have been started",
                     "make a plan first: trireme plan --try 3 --out plan.json, then --parallel.plan=plan.json");
  }
  PlannedTraining planned = plan_training(config, workers);
  if (options.config.num_processes == 0) options.config.num_processes = workers;
  if (!options.json) fmt::print(stderr, "{}\n", planned.told);
  return std::move(planned.training);
}

int run(TrainFlags& options, CLI::App& command) {
  if (options.config_reference) {
    fmt::print("{}", config_reference_markdown());
    return 0;
  }
  if (options.presets) {
    for (const Preset& preset : list_presets()) fmt::print("{:<14} {}\n", preset.name, preset.description);
    return 0;
  }
  take_config_words(command, options.config);
  const Training training = resolve_training(options);
  const Config& config = training.config;
  if (options.show_config) {
    const int workers = options.config.num_workers(config);
    fmt::print("{}", to_toml(with_layout(config, check(config, workers))));
    return 0;
  }
  const measure::TrainingHandoff handoff(training);
  std::vector<std::string> flags;
  if (options.json) flags.push_back("--json");
  if (read_launch_environment().launcher != Launcher::kAlone) replace_process(handoff.argv(flags));

  const int num_workers = options.config.num_workers(config);
  check(config, num_workers);
  open_data(data_options_of(config));  // what is wrong with it is told once, before anything runs
  const LaunchReport report = launch_locally(handoff.launch(num_workers, flags));
  const bool all_well =
      std::none_of(report.ends.begin(), report.ends.end(), [](const RankEnd& end) { return end.failed(); });
  if (all_well && !report.timed_out) return 0;  // also when asked to stop: the state was saved
  if (report.exit_code == kMissedTarget) return 1;
  if (options.json) print_json(failure_json(report.failure()));
  fmt::print(stderr, "error: {}\n", report.text());
  return report.exit_code == 0 ? 1 : report.exit_code;
}

}  // namespace

void add_train(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<TrainFlags>();
  CLI::App* command = app.add_subcommand(
      "train", "trains a model on the workers at hand: trireme train [FILE.toml] [--section.key=value …]");
  add_config_flags(*command, options->config);
  command->add_option("--resume", options->resume, "goes on with a run: its folder, or auto for the newest")
      ->type_name("RUN")
      ->expected(0, 1)
      ->default_str("auto");
  command->add_flag("--show-config", options->show_config, "prints every value and where it came from, and ends");
  command->add_flag("--presets", options->presets, "lists the models that --model knows, and ends");
  command->add_flag("--config-reference", options->config_reference, "prints the page of all keys, and ends");
  command->add_flag("--json", options->json, "one object on stdout instead of words");
  command->footer(
      "Without a config it trains the default: a small GPT learns sums and a grammar from generated text, on two\n"
      "workers, in a minute or two. Every key of docs/config.md can be given as --section.key=value.\n"
      "\n"
      "Examples\n"
      "  trireme train\n"
      "  trireme train my.toml --optimizer.lr=3e-4 --nproc 4\n"
      "  trireme train --model gpt2-tiny --data.path my.txt\n"
      "  trireme train --resume runs/default-1\n"
      "  torchrun --nproc-per-node 2 --no-python trireme train      or srun, or mpirun -n 2 trireme train\n"
      "\n"
      "Ctrl-C saves and stops. Exit code 1 when the held-out loss misses train.target_loss.");
  command->callback([options, command, &exit_code] { exit_code = run(*options, *command); });
}

}  // namespace trireme::cli
