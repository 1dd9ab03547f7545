// `trireme train`: starts the workers, each of which is `trireme-tensor train`. Under another launcher, becomes one.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/cli/commands.h"
#include "trireme/comm/launch_environment.h"
#include "trireme/elastic/local_launch.h"

namespace trireme::cli {
namespace {

struct Options {
  int num_processes = 2;
  int steps = 0;
  uint64_t seed = 1;
  bool json = false;
};

int run(const Options& options) {
  std::vector<std::string> argv = {tensor_program(), "train", "--seed", std::to_string(options.seed)};
  if (options.steps != 0) argv.insert(argv.end(), {"--steps", std::to_string(options.steps)});
  if (options.json) argv.push_back("--json");
  if (read_launch_environment().launcher != Launcher::kAlone) replace_process(argv);

  LocalLaunch launch;
  launch.num_processes = options.num_processes;
  launch.argv = std::move(argv);
  launch.environment = {{"OMP_NUM_THREADS", "1"}, {"MKL_CBWR", "AUTO,STRICT"}};
  const LaunchReport report = launch_locally(launch);
  if (report.exit_code == kMissedTarget) return 1;
  if (report.exit_code != 0) fmt::print(stderr, "error: {}\n", report.text());
  return report.exit_code;
}

}  // namespace

void add_train(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("train", "trains a small model, data-parallel, on this machine");
  command->add_option("--nproc", options->num_processes, "workers, one thread each")
      ->type_name("N")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command->add_option("--steps", options->steps, "optimizer steps; fewer may miss the target")
      ->type_name("N")
      ->check(CLI::Range(1, 100'000'000));
  command->add_option("--seed", options->seed, "of the data and the first weights")
      ->type_name("N")
      ->capture_default_str();
  command->add_flag("--json", options->json, "one object on stdout instead of words");
  command->footer(
      "A multi-layer perceptron learns to tell two spirals apart. Each worker computes the gradients of its own\n"
      "samples; an all-reduce averages them. It ends with the accuracy on samples that no worker has seen, and\n"
      "with exit code 1 should that be below the target.\n"
      "\n"
      "Examples\n"
      "  trireme train\n"
      "  trireme train --nproc 1            one worker, the same answer: every weight, bit for bit\n"
      "  torchrun --nproc-per-node 2 --no-python trireme train      or srun, or mpirun -n 2 trireme train\n"
      "\n"
      "Try next: trireme bench comm, which measures that all-reduce.");
  command->callback([options, &exit_code] { exit_code = run(*options); });
}

}  // namespace trireme::cli
