#include "trireme/measure/comm/fit.h"

#include <fmt/format.h>

#include "trireme/comm/transport/mpi_backend.h"
#include "trireme/measure/comm/crews.h"
#include "trireme/measure/machine.h"
#include "trireme/measure/probe.h"
#include "trireme/observe/progress.h"

namespace trireme::measure {
namespace {

constexpr uint64_t kMessageSizes[] = {8, 256, 4 << 10, 32 << 10, 256 << 10, 1 << 20, 8 << 20};
constexpr uint64_t kVectorSizes[] = {256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20};

}  // namespace

FittedTransport fit_transport(const std::function<double(const std::string&, std::string*)>& ask,
                              const std::string& name, int ranks) {
  const auto time = [&ask](const auto& sizes, const auto& command_for) {
    Timings timings;
    for (const uint64_t bytes : sizes) timings.emplace_back(bytes, ask(command_for(bytes), nullptr));
    return timings;
  };
  const auto vectors = [](const char* what) {
    return [what](uint64_t bytes) { return fmt::format("{} {}", what, bytes); };
  };
  FittedTransport fitted;
  fitted.cost.transport = name;
  fitted.cost.ranks = ranks;
  const Timings messages = time(
      kMessageSizes, [](uint64_t bytes) { return fmt::format("exchange {} {}", bytes, bytes > 1'000'000 ? 10 : 60); });
  fitted.cost.link = fit_line(messages);
  Timings compared;
  for (const auto& [bytes, us] : messages) {
    compared.emplace_back(fitted.cost.link.latency_us + bytes * fitted.cost.link.us_per_byte, us);
  }
  fitted.link_error = median_error(compared);
  fitted.cost.reduce_us_per_byte = fit_rate(time(kVectorSizes, vectors("combine")));
  fitted.cost.copy_us_per_byte = fit_rate(time(kVectorSizes, vectors("copy")));
  fitted.cost.barrier_us = ask("barrier 500", nullptr);

  compared.clear();
  for (const uint64_t bytes : kCheckedSizes) {
    std::string algorithm;
    const int rounds = bytes > 1'000'000 ? 10 : 100;
    const double us = ask(measure_command(Operation::kAllReduce, Algorithm::kAuto, true, bytes, rounds), &algorithm);
    const double predicted =
        predict_operation_us(Operation::kAllReduce, algorithm_named(algorithm), ranks, bytes, fitted.cost);
    fitted.all_reduce.emplace_back(bytes, us);
    fitted.all_reduce_predicted.push_back(predicted);
    compared.emplace_back(predicted, us);
  }
  fitted.all_reduce_error = median_error(compared);
  return fitted;
}

Fit fit_cluster(const CommOptions& options, const std::filesystem::path& path, Guardian& guardian) {
  Fit fit;
  fit.path = path;
  load_cluster_file(fit.path);  // a file that cannot be read is told now, not after minutes

  std::vector<std::string> transports = {"threads", "auto", "tcp"};
  if (mpi_backend_installed() && !find_in_path("mpirun").empty()) transports.push_back("mpi");
  ProgressOptions shown;
  shown.label = "fit";
  shown.total = transports.size() * options.ranks.size();
  Progress progress(shown);
  uint64_t done = 0;
  for (const std::string& transport : transports) {
    for (const int ranks : options.ranks) {
      progress.update(done, fmt::format("{} with {} ranks", transport == "auto" ? "shared memory" : transport, ranks));
      ++done;
      try {
        const auto crew = start_ours(transport, ranks, options.bind, guardian);
        const std::string name = crew->wait_until_ready(std::chrono::seconds(60));
        const auto ask = [&crew](const std::string& command, std::string* algorithm) {
          return median(ask_for_times(*crew, command, algorithm));
        };
        fit.transports.push_back(fit_transport(ask, name, ranks));
      } catch (const Error& error) {  // one that does not work here must not cost the others
        fit.left_out.push_back(fmt::format("{} with {} ranks: {}", transport, ranks, cause_of(error)));
      }
    }
  }
  progress.update(done);
  progress.finish();
  if (fit.transports.empty()) throw Error("no transport could be measured", fit.left_out.at(0));

  ClusterFile measured;
  for (const FittedTransport& fitted : fit.transports) measured.transports.push_back(fitted.cost);
  keep_in_cluster_file(fit.path, measured);
  return fit;
}

}  // namespace trireme::measure
