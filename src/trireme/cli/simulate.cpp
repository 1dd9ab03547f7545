// `trireme simulate`: predicts step time, memory and bubble of a layout on a cluster, without the cluster.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/simulate_job.h"
#include "trireme/cli/simulate_report.h"
#include "trireme/cli/simulate_runs.h"
#include "trireme/mesh/cluster_file.h"
#include "trireme/observe/append_file.h"

namespace trireme::cli {
namespace {

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
  const RunComparison comparison =
      compare_runs(flags.runs, flags.cluster ? *flags.cluster : home_cluster(), flags.write_cluster);
  fmt::print("{}{}", flags.json ? comparison_json(comparison) : comparison_text(comparison), flags.json ? "\n" : "");
  return 0;
}

int run(SimulateFlags flags) {
  if (!flags.runs.empty()) return compare(flags);
  if (flags.write_cluster) {
    throw UsageError("--write-cluster corrects constants by runs, and there is none",
                     "give --run FOLDER; or measure: trireme bench train --write-cluster");
  }
  std::string schedule;
  flags.config.words = translate_words(std::move(flags.config.words), schedule);
  if (flags.config.num_processes > 0 && flags.gpus == 0) flags.gpus = flags.config.num_processes;
  const Config config = resolve(flags.config.sources_of_shape());
  const Played played = play(config, flags, schedule);
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
  flags->config.add_to(*command);
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
  command->add_option("--experts", flags->experts, "feed-forward parts of a block, shared over parallel.ep (1)")
      ->type_name("N")
      ->check(CLI::Range(1, 100'000));
  command->add_option("--active-experts", flags->active_experts, "of them, used by each token (1)")
      ->type_name("N")
      ->check(CLI::Range(1, 100'000));
  command
      ->add_option("--run", flags->runs,
                   "what a finished run measured, beside what the cluster predicts for it; may be repeated")
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
    flags->config.take(*command);
    exit_code = run(*flags);
  });
}

}  // namespace trireme::cli
