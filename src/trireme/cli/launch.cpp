// `trireme launch`: starts a program as the ranks of a job, with torchrun's flag names.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include "trireme/base/units.h"
#include "trireme/cli/commands.h"
#include "trireme/comm/control/token.h"
#include "trireme/launch/local_launch.h"

namespace trireme::cli {
namespace {

using std::chrono::milliseconds;

struct LaunchFlags {
  LocalLaunch launch;
  std::string timeout, grace = "10s";
};

milliseconds parse_time(const std::string& text) {
  return std::chrono::duration_cast<milliseconds>(parse_duration(text));
}

/// The secret that the nodes of a job share.
std::string common_token() {
  if (const char* token = std::getenv("TRIREME_TOKEN")) return token;
  const char* path = std::getenv("TRIREME_TOKEN_FILE");
  return path != nullptr ? read_token_file(path) : "";
}

int run(LaunchFlags& options) {
  LocalLaunch& launch = options.launch;
  launch.grace = parse_time(options.grace);
  if (!options.timeout.empty()) launch.timeout = parse_time(options.timeout);
  if (!launch.master_address.empty() || launch.num_nodes > 1) launch.token = common_token();
  if (launch.num_processes > 1 && std::getenv("OMP_NUM_THREADS") == nullptr) {
    launch.environment.emplace_back("OMP_NUM_THREADS", "1");
  }
  const LaunchReport report = launch_locally(launch);
  if (report.exit_code != 0) fmt::print(stderr, "error: {}\n", report.text());
  return report.exit_code;
}

}  // namespace

void add_launch(CLI::App& app, std::vector<std::string> program, int& exit_code) {
  auto options = std::make_shared<LaunchFlags>();
  CLI::App* command = app.add_subcommand("launch", "starts a program of yours as the ranks of a job");
  // torchrun takes underscores too; the twins stay out of the help.
  const auto add = [command](const std::string& name, auto& value, const std::string& type, const std::string& help) {
    std::string twin = name;
    std::replace(twin.begin() + 2, twin.end(), '-', '_');
    if (twin != name) command->add_option(twin, value)->group("");
    return command->add_option(name, value, help)->type_name(type);
  };
  LocalLaunch& launch = options->launch;
  launch.num_processes = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  add("--nproc-per-node", launch.num_processes, "N", "ranks on this machine")->default_str("one a core");
  command->add_flag("--prefix", launch.prefix_output, "\"[rank 1] \" before each line of output");
  add("--timeout", options->timeout, "TIME", "ends the job after so long, with exit code 124 (30s, 5min, 2h)");
  add("--grace", options->grace, "TIME", "what the others get to end by themselves when a rank has failed")
      ->capture_default_str();
  add("--nnodes", launch.num_nodes, "N", "machines; run the same command on each, with its own --node-rank")
      ->capture_default_str()
      ->check([](const std::string& text) {
        return text.find(':') == text.npos ? "" : "a range of nodes is for elastic jobs, which are not there yet";
      });
  add("--node-rank", launch.node_rank, "K", "which of them this is, from 0")->capture_default_str();
  add("--master-addr", launch.master_address, "HOST", "the machine of node 0, as the others reach it");
  add("--master-port", launch.master_port, "PORT", "a free port there");
  command->prefix_command();
  command->footer(
      "Examples\n"
      "  trireme launch --nproc-per-node 2 -- ./example_01_allreduce\n"
      "  trireme launch --nproc-per-node 4 --prefix --timeout 5min -- ./program --its flags\n"
      "\n"
      "Two machines, a token in a file that both have (it keeps strangers out):\n"
      "  export TRIREME_TOKEN_FILE=~/token\n"
      "  a$ trireme launch --nnodes 2 --node-rank 0 --master-addr a --master-port 2900 --nproc-per-node 8 -- "
      "./program\n"
      "  b$ trireme launch --nnodes 2 --node-rank 1 --master-addr a --master-port 2900 --nproc-per-node 8 -- "
      "./program\n"
      "\n"
      "The same program also runs under torchrun, srun and mpirun, and alone as one rank.\n"
      "Ranks get OMP_NUM_THREADS=1 unless it is set. When a rank fails, the job ends with its exit code.");
  command->callback([command, options, program, &exit_code] {
    // Without "--", the program begins at the first word that is no flag.
    std::vector<std::string>& argv = options->launch.argv;
    argv = command->remaining();
    if (!argv.empty() && argv.front().starts_with("-")) throw CLI::ExtrasError("launch", argv);
    if (!argv.empty() && !program.empty()) argv.push_back("--");
    argv.insert(argv.end(), program.begin(), program.end());
    exit_code = run(*options);
  });
}

}  // namespace trireme::cli
