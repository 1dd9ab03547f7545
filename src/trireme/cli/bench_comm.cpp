#include "trireme/cli/bench_comm.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstring>
#include <memory>

#include "trireme/base/json.h"
#include "trireme/cli/bench_comm_explain.h"
#include "trireme/cli/bench_comm_fit.h"
#include "trireme/cli/bench_comm_gpu.h"
#include "trireme/cli/bench_comm_peers.h"
#include "trireme/cli/bench_comm_report.h"
#include "trireme/cli/bench_comm_server.h"
#include "trireme/cli/bench_comm_worker.h"
#include "trireme/cli/bench_tensor.h"
#include "trireme/cli/bench_train.h"
#include "trireme/cli/commands.h"
#include "trireme/observe/style.h"

namespace trireme::cli {
namespace {

constexpr size_t kMostProcesses = 8192;

void run(const BenchCommFlags& flags) {
  const BenchCommOptions options = check_flags(flags);
  if (options.transport == "mpi") check_mpi_transport();
  if (options.on_gpu) return run_bench_comm_gpu(options, has_colour(STDOUT_FILENO));
  const Interrupts interrupts;
  Guardian guardian(kMostProcesses);
  const bool colour = has_colour(STDOUT_FILENO);
  if (options.server) return run_bench_comm_server(options, guardian, colour);

  Json json;
  std::string text;
  Crew::Variables variables;
  ClusterFile cluster;
  if (options.write_cluster) {
    const Fit fit = fit_cluster(options, guardian);
    // Our ranks choose by the new constants, too.
    variables.emplace_back("TRIREME_CLUSTER", std::filesystem::absolute(fit.path).string());
    cluster = ClusterFile::load_or_defaults(fit.path);
    if (!options.json) fmt::print("{}", fit_text(fit, colour));
    json["cluster"] = fit_json(fit);
  } else {
    cluster = ClusterFile::load_or_defaults();
  }
  std::fflush(stdout);

  BenchCommRun measured;
  if (options.explain) {
    const auto explained = explain(options, cluster, guardian, variables, measured);
    text = explanation_text(explained, colour);
    json["explain"] = explanation_json(explained);
  } else {
    measured = measure_table(options, cluster, guardian, variables);
    text = table_text(measured, cluster, colour);
  }
  if (!options.plot.empty()) {
    write_plot(options.plot, measured);
    measured.notes.push_back("chart written to " + options.plot);
  }
  if (options.json) {
    json["results"] = results_json(measured);
    json["machine"] = machine_json(measured);
    json["notes"] = measured.notes;
    fmt::print("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
    return;
  }
  fmt::print("{}", text);
  if (!options.plot.empty()) fmt::print("chart written to {}\n", options.plot);
}

}  // namespace

void add_bench_comm(CLI::App& bench, int& exit_code) {
  auto flags = std::make_shared<BenchCommFlags>();
  auto worker = std::make_shared<bool>(false);
  CLI::App* command = bench.add_subcommand("comm", "collectives, beside the formulas, the hardware, MPI and Gloo");
  const auto add = [command](const char* name, std::string& value, const char* type, const char* help) {
    return command->add_option(name, value, help)->type_name(type);
  };
  add("--ranks", flags->ranks, "N,…", "worlds to measure")->default_str("2");
  add("--sizes", flags->sizes, "SIZES", "bytes of the whole vector: a list, or a range in steps of 4")
      ->default_str("4KiB:64MiB");
  add("--operations", flags->operations, "NAMES", "all-reduce, reduce-scatter, all-gather, broadcast, all-to-all")
      ->default_str("all of them");
  add("--transport", flags->transport, "NAME", "auto (shared memory), threads, tcp or mpi")->capture_default_str();
  add("--algorithm", flags->algorithm, "NAMES", "of the all-reduce; all: every one that is possible")
      ->capture_default_str();
  add("--buffers", flags->buffers, "KIND", "registered (from the communicator), user (yours) or both")
      ->capture_default_str();
  add("--device", flags->device, "DEVICE", "cuda: operands in GPU memory, between processes and cards")
      ->capture_default_str();
  add("--compare", flags->compare, "PEERS", "mpi, gloo: measured in alternation with ours");
  command->add_flag("--explain", flags->explain, "every all-reduce algorithm: what it sends, predicted, measured, why");
  command->add_flag("--server", flags->server,
                    "1, 2 and 4 parameter servers beside a ring; --ranks are workers (1,2,4)");
  CLI::Option* cluster =
      add("--write-cluster", flags->cluster_file, "[FILE]", "fits the costs of this machine first, and keeps them");
  cluster->expected(0, 1);
  add("--plot", flags->plot, "FILE", "a chart: .svg (the first table) or .html (all)");
  command->add_flag("--json", flags->json, "one object on stdout: results, machine");
  add("--seconds-per-point", flags->seconds_per_point, "S", "time for each size of each contestant")
      ->default_str("20 rounds above 1 MB, else 500");
  command->add_flag("--unbound", flags->unbound,
                    "leaves ranks to the scheduler; else a core each where there are enough");
  command->add_flag("--worker", *worker, "")->group("");
  command->footer(
      "Examples\n"
      "  trireme bench comm --operations all-reduce\n"
      "  trireme bench comm --ranks 2,4 --sizes 4KiB,1MiB,64MiB --compare mpi,gloo --plot comm.html\n"
      "  trireme bench comm --explain --ranks 2,4,8 --sizes 16MiB\n"
      "  trireme bench comm --server --sizes 16MiB            what parameter servers cost\n"
      "  trireme bench comm --device cuda --ranks 2,4         on GPU memory\n"
      "  trireme bench comm --write-cluster --ranks 2,4       predictions and the tuner then know this machine\n"
      "\n"
      "Gloo needs a Python with PyTorch: TRIREME_PYTHON=/path/to/python. More: docs/bench.md");
  command->callback([flags, worker, cluster, &exit_code] {
    if (*worker) {
      run_bench_comm_worker(flags->transport == "threads" ? std::stoi(flags->ranks) : 0, !flags->unbound);
      return;
    }
    flags->write_cluster = cluster->count() > 0;
    try {
      run(*flags);
    } catch (const Interrupted& interrupted) {
      fmt::print(stderr, "\nerror: stopped by SIG{}\n", sigabbrev_np(interrupted.signal));
      exit_code = 128 + interrupted.signal;
    }
  });
}

void add_bench(CLI::App& app, int& exit_code) {
  CLI::App* bench = app.add_subcommand("bench", "measures, beside what theory says");
  add_bench_comm(*bench, exit_code);
  add_bench_tensor(*bench);
  add_bench_train(*bench, exit_code);
  bench->require_subcommand(0, 1);
  bench->footer(
      "Examples\n"
      "  trireme bench comm                     collectives on two local ranks\n"
      "  trireme bench comm --compare mpi       the same beside Open MPI\n"
      "  trireme bench tensor                   mesh tensors beside plain ones\n"
      "  trireme bench train                    training on one and on two workers");
  bench->callback([bench] {
    if (bench->get_subcommands().empty()) throw CLI::CallForHelp();
  });
}

}  // namespace trireme::cli
