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

/// A preset's target is for its own task: it does not come along where words of the user change the task.
void drop_target_of_preset(const Config& kept, ConfigArguments& arguments) {
  const auto is_target = [](const std::string& word) { return word.starts_with("--train.target_loss"); };
  if (std::any_of(arguments.words.begin(), arguments.words.end(), is_target) || !has_target_of_preset(kept)) return;
  if (!is_same_task(kept, resolve(arguments.sources()))) arguments.words.push_back("--train.target_loss=0");
}

/// `--resume FOLDER` goes on in a run folder with the config that it keeps; alone, or "auto", in the newest run.
void apply_resume(TrainFlags& options) {
  if (options.resume.empty()) return;
  std::vector<std::string>& words = options.config.words;
  if (options.resume == "never") {
    words.push_back("--checkpoint.resume=never");
    return;
  }
  const std::filesystem::path folder = run_at(options.resume == "auto" ? "runs/latest" : options.resume).folder;
  if (!std::filesystem::exists(folder / "config.toml")) {
    throw UsageError(
        fmt::format("--resume {}: {} is no run folder (it has no config.toml)", options.resume, folder.string()),
        "name the folder of a run, such as runs/default-1");
  }
  if (options.config.file.empty()) options.config.file = (folder / "config.toml").string();
  // First, so that a word of the user's wins. The run may itself have been started with "never" or from a checkpoint.
  words.insert(words.begin(), "--checkpoint.resume=auto");
  // A run that is older than a key goes on as it was.
  const std::string kept = (folder / "config.toml").string(), toml = read_config_file(kept);
  for (const std::string& word : words_of_older_version(toml, kept)) {
    const std::string key = word.substr(2, word.find('=') - 2);
    if (resolve(options.config.sources()).origins.is_default(key)) words.push_back(word);
  }
  if (options.config.file == kept) drop_target_of_preset(resolve_kept(toml, kept), options.config);
  words.push_back("--observe.run_dir=" + std::filesystem::proximate(std::filesystem::canonical(folder)).string());
}

/// What parallel.plan decides of a training.
struct PlannedTraining {
  std::vector<std::string> words;  ///< "--parallel.dp=2", …
  std::string told;                ///< what to say about it
  PlanPrediction predicted;        ///< zeros where nothing can be predicted here
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

/// With what is predicted of the keys now: the file's own numbers are of those it was made for.
PlannedTraining planned_by_file(Plan plan, const Config& config, int num_workers) {
  const Config planned = check_plan_keys(plan, without_plan(config), num_workers, config.parallel.plan);
  PlannedTraining training{words_of_plan(plan, config), "", {}};
  try {
    plan.predicted = prediction_of(simulate_plan(planned, clusters_of(plan)));
  } catch (const UsageError& error) {  // a cluster file that is elsewhere, or types that those devices do not have
    const std::string_view why = error.what();
    training.told = fmt::format("planned for {}: {} · not predicted: {}", plan.cluster, plan.layout_text(),
                                why.substr(0, why.find('\n')));
    return training;
  }
  training.predicted = plan.predicted;
  training.told = told_of(plan, "planned");
  if (!plan.predicted.fits) {
    training.told += fmt::format(", more than the {} of a device there",
                                 format_bytes(static_cast<uint64_t>(plan.predicted.memory_limit_bytes)));
  }
  return training;
}

/// `config` is what `arguments` come to. "auto" asks the planner, for the cluster that TRIREME_CLUSTER names (a preset
/// or a file; by default this machine, or H100s for train.device = "cuda"); "try" does so, and trains the best few
/// for some steps; everything else is the path of a plan, which is predicted anew. Throws UsageError for a plan that is
/// not for this, as check_plan_keys() does, and for one that no key says; Error where nothing fits.
PlannedTraining plan_words(const ConfigArguments& arguments, const Config& config, int num_workers) {
  if (config.parallel.plan != "auto" && config.parallel.plan != "try") {
    return planned_by_file(read_plan(config.parallel.plan), config, num_workers);
  }
  PlanOptions options;
  options.explain = false;
  options.num_finalists = config.parallel.plan == "try" ? measure::kUsualTrials : 0;
  const PlanReport report =
      explain_plan(without_plan(config), cluster_at_hand(config.train.device == "cuda" ? "h100-80gb" : "laptop"),
                   num_workers, options);
  if (config.parallel.plan == "auto") {
    return {words_of_plan(report.plan, config), told_of(report.plan, "planned"), report.plan.predicted};
  }
  const measure::PlanTrials trials = measure::try_plans(arguments, config, report.finalists);
  const Plan& best = report.finalists[trials.best];
  return {words_of_plan(best, config), told_of(best, "planned and tried") + "\n" + trials_text(trials), best.predicted};
}

/// What the user gave stays: the planner has kept it. `predicted`: words for the workers, what the plan says of a step.
Config resolve_with_plan(TrainFlags& options, std::vector<std::string>& predicted) {
  const Config config = resolve(options.config.sources());
  if (config.parallel.plan.empty()) return config;
  const LaunchEnvironment launched = read_launch_environment();
  const int workers = launched.launcher == Launcher::kAlone ? options.config.num_workers(config) : launched.size;
  if (config.parallel.plan == "try" && launched.launcher != Launcher::kAlone) {
    throw UsageError("parallel.plan = \"try\" trains before the workers start, and here they have been started",
                     "make a plan first: trireme plan --try 3 --out plan.json, then --parallel.plan=plan.json");
  }
  std::vector<std::string>& words = options.config.words;
  const PlannedTraining planned = plan_words(options.config, config, workers);
  words.insert(words.end(), planned.words.begin(), planned.words.end());
  if (planned.predicted.step_seconds > 0) {
    predicted = {fmt::format("--predicted-ms={}", planned.predicted.step_seconds * 1e3),
                 fmt::format("--predicted-bytes={}", planned.predicted.memory_bytes_per_gpu)};
  }
  if (options.config.num_processes == 0) options.config.num_processes = workers;
  if (!options.json) fmt::print(stderr, "{}\n", planned.told);
  return resolve(options.config.sources());
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
  apply_resume(options);
  std::vector<std::string> predicted;
  const Config config = resolve_with_plan(options, predicted);
  const bool launched = read_launch_environment().launcher != Launcher::kAlone;
  if (options.show_config) {
    const int workers = options.config.num_workers(config);
    fmt::print("{}", to_toml(with_plan(config, check(config, workers))));
    return 0;
  }
  std::vector<std::string> argv = {measure::tensor_program(), "train"};
  if (options.json) argv.push_back("--json");
  const std::vector<std::string> rest = options.config.to_words();
  argv.insert(argv.end(), predicted.begin(), predicted.end());
  argv.insert(argv.end(), rest.begin(), rest.end());
  if (launched) replace_process(argv);

  LocalLaunch launch;
  launch.num_processes = options.config.num_workers(config);
  check(config, launch.num_processes);
  open_data(data_options_of(config));  // what is wrong with it is told once, before anything runs
  launch.argv = std::move(argv);
  launch.environment = worker_environment(config);
  const LaunchReport report = launch_locally(launch);
  const bool all_well =
      std::none_of(report.ends.begin(), report.ends.end(), [](const RankEnd& end) { return end.failed(); });
  if (all_well && !report.timed_out) return 0;  // also when asked to stop: the state was saved
  if (report.exit_code == kMissedTarget) return 1;
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
