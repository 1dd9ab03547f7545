// `trireme plan`: finds the fastest layout for a model and a cluster, explains it, writes plan.json.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <optional>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/memory_limit.h"
#include "trireme/cli/plan_check.h"
#include "trireme/cli/plan_report.h"
#include "trireme/cli/simulate_job.h"
#include "trireme/cli/written_files.h"
#include "trireme/observe/append_file.h"

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
std::optional<PlanTrials> try_finalists(const PlanFlags& flags, const Config& config, const std::vector<Cluster>& kinds,
                                        int64_t gpus, PlanReport& report) {
  if (flags.tries == 0) return std::nullopt;
  const Cluster& cluster = kinds.front();
  const bool on_cores = cluster.device.units == 1;  // a GPU has many
  if (on_cores != (config.train.device != "cuda")) {
    throw UsageError(fmt::format("--try trains on this machine with train.device = \"{}\", and the plan is for {}",
                                 config.train.device, cluster.name),
                     "give the cluster file of this machine (trireme bench train --write-cluster), or leave out --try");
  }
  if (kinds.size() > 1) throw UsageError("--try: this machine is of one kind", "leave out --try for a mix");
  ConfigArguments arguments = flags.config;
  arguments.num_processes = static_cast<int>(gpus);
  PlanTrials trials = try_plans(arguments, config, report.finalists);
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
  std::string schedule;
  flags.config.words = translate_words(std::move(flags.config.words), schedule);
  if (!schedule.empty()) flags.config.words.push_back("--parallel.schedule=" + schedule);
  const Config config = resolve(flags.config.sources_of_shape());
  if (!flags.check.empty()) {
    const std::optional<std::string> cluster = flags.names_cluster ? std::optional(flags.cluster) : std::nullopt;
    check_plan_file({flags.check, cluster, flags.memory_limit, flash_of(flags), flags.gpus, flags.json}, config);
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
  const std::optional<PlanTrials> trials = try_finalists(flags, config, kinds, gpus, report);
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
  flags->config.add_to(*command);
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
    flags->config.take(*command);
    exit_code = run(*flags);
  });
}

}  // namespace trireme::cli
