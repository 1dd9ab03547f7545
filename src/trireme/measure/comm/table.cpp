#include "trireme/measure/comm/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "trireme/base/deadline.h"
#include "trireme/base/units.h"
#include "trireme/comm/algorithms/tuner.h"
#include "trireme/measure/comm/crews.h"
#include "trireme/measure/statistics.h"
#include "trireme/observe/progress.h"

namespace trireme::measure {
namespace {

constexpr int kWarmUps = 3;
constexpr std::chrono::seconds kStartTime{60}, kPythonStartTime{180};

/// The floor: nobody adds two vectors faster than one core does, without any communication.
[[gnu::noinline]] void add_vectors(float* __restrict out, const float* __restrict a, const float* __restrict b,
                                   size_t count) {
  for (size_t i = 0; i < count; ++i) out[i] = a[i] + b[i];
}

std::vector<double> time_floor(uint64_t bytes, int rounds) {
  const size_t count = bytes / sizeof(float);
  std::vector<float> a(count), b(count), out(count);
  std::vector<double> us;
  for (int i = 0; i < rounds + kWarmUps; ++i) {
    check_interrupted();
    std::fill(a.begin(), a.end(), 1.f);
    std::fill(b.begin(), b.end(), 1.f);
    const Clock::time_point start = Clock::now();
    add_vectors(out.data(), a.data(), b.data(), count);
    const double time = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
    if (i >= kWarmUps) us.push_back(time);
  }
  return us;
}

/// Everybody who takes part with this many ranks.
class Party {
 public:
  Party(const CommOptions& options, int ranks, Guardian& guardian, const Crew::Variables& variables, CommRun& run)
      : ours(start_ours(options.transport, ranks, options.bind, guardian, variables)) {
    if (options.compare_mpi) mpi = start_mpi_peer(ranks, options.bind, guardian);
    if (options.compare_gloo) gloo = start_gloo_peer(ranks, guardian);
    transport = ours->wait_until_ready(kStartTime);
    if (mpi) run.mpi_version = mpi->wait_until_ready(kStartTime);
    if (gloo) wait_for_gloo(run);
  }

  std::unique_ptr<Crew> ours, mpi, gloo;
  std::string transport;

 private:
  /// A Python without PyTorch, or another version of it, must not cost the user the rest of the table.
  void wait_for_gloo(CommRun& run) {
    try {
      run.gloo_version = gloo->wait_until_ready(kPythonStartTime);
    } catch (const Error& error) {
      gloo.reset();
      run.notes.push_back(fmt::format("Gloo is left out: {}", error.what()));
    }
  }
};

std::vector<double> ask_peer(Crew& peer, const CommResult& point, int rounds, std::vector<std::string>& notes) {
  try {
    return ask_for_times(peer, fmt::format("{} {} {}", name_of(point.operation), point.bytes, rounds));
  } catch (const Refused& refused) {
    if (std::find(notes.begin(), notes.end(), refused.what()) == notes.end()) notes.emplace_back(refused.what());
    return {};
  }
}

std::optional<double> median_of(const std::vector<double>& sorted) {
  return sorted.empty() ? std::nullopt : std::optional(quantile(sorted, 0.5));
}

/// One operation, size and number of ranks: a result for each algorithm and kind of buffer.
std::vector<CommResult> measure_point(const CommOptions& options, Party& party, CommResult point,
                                      const ClusterFile& cluster, std::vector<std::string>& notes,
                                      const std::function<void()>& on_block) {
  std::vector<Algorithm> algorithms = {Algorithm::kAuto};
  if (point.operation == Operation::kAllReduce) {
    algorithms = options.algorithms.size() == 1 ? options.algorithms
                                                : possible_algorithms(options.algorithms, point.ranks, point.transport);
  }
  std::vector<CommResult> results;
  for (const Algorithm algorithm : algorithms) {
    for (const bool registered : options.buffers) {
      point.algorithm = name_of(algorithm);
      point.registered = registered;
      results.push_back(point);
    }
  }
  std::vector<Contestant> contestants;
  for (CommResult& result : results) {
    const Algorithm asked = algorithm_named(result.algorithm);
    contestants.push_back([&result, &party, asked](int rounds) {
      return ask_for_times(*party.ours,
                           measure_command(result.operation, asked, result.registered, result.bytes, rounds),
                           &result.algorithm);
    });
  }
  if (party.mpi) {
    contestants.push_back([&](int rounds) { return ask_peer(*party.mpi, point, rounds, notes); });
  }
  if (party.gloo) {
    contestants.push_back([&](int rounds) { return ask_peer(*party.gloo, point, rounds, notes); });
  }
  contestants.push_back([&](int rounds) { return time_floor(point.bytes, rounds); });
  const auto times = alternate(contestants, point.bytes, options.seconds_per_point, on_block);

  for (size_t i = 0; i < results.size(); ++i) {
    CommResult& result = results[i];
    result.summarise(times[i]);
    if (party.mpi) result.mpi_us = median_of(times[results.size()]);
    if (party.gloo) result.gloo_us = median_of(times[times.size() - 2]);
    result.floor_us = median_of(times.back());
    if (result.ranks > 1) {
      result.predicted_us = predict_operation_us(result.operation, algorithm_named(result.algorithm), result.ranks,
                                                 result.bytes, cluster.cost(result.transport, result.ranks));
    }
    if (result.operation != Operation::kAllReduce) {
      result.algorithm = method_of(result.operation, result.ranks, result.bytes, result.transport);
    }
  }
  return results;
}

}  // namespace

int usual_rounds(uint64_t bytes) { return bytes > 1'000'000 ? 20 : 500; }

void CommResult::summarise(const std::vector<double>& sorted) {
  us = quantile(sorted, 0.5);
  fastest_us = sorted.front();
  slow_us = quantile(sorted, 0.9);
  rounds = sorted.size();
}

std::string measure_command(Operation operation, Algorithm algorithm, bool registered, uint64_t bytes, int rounds) {
  return fmt::format("measure {} {} {} {} {}", name_of(operation), name_of(algorithm),
                     registered ? "registered" : "user", bytes, rounds);
}

std::vector<double> parse_times(const std::string& answer, std::string* algorithm, const std::string& question) {
  std::istringstream words(answer);
  if (algorithm != nullptr) words >> *algorithm;
  std::vector<double> us;
  for (double value; words >> value;) us.push_back(value);
  if (us.empty() || !words.eof()) throw Error(fmt::format("\"{}\" was answered without times: {}", question, answer));
  return us;
}

std::vector<double> ask_for_times(Crew& crew, const std::string& command, std::string* algorithm) {
  return parse_times(crew.ask(command), algorithm, command);
}

std::vector<Algorithm> possible_algorithms(const std::vector<Algorithm>& algorithms, int ranks,
                                           const std::string& transport) {
  const Tuner tuner;
  const bool one_host = shares_memory(transport);
  const Tuner::Situation situation{ranks, one_host, one_host ? ranks : 1, true, false};
  std::vector<Algorithm> possible;
  for (const Algorithm algorithm : algorithms) {
    if (algorithm == Algorithm::kAuto || tuner.possible(algorithm, situation)) possible.push_back(algorithm);
  }
  return possible;
}

std::vector<std::vector<double>> alternate(const std::vector<Contestant>& contestants, uint64_t bytes,
                                           std::optional<double> seconds, const std::function<void()>& on_block) {
  std::vector<int> rounds(contestants.size(), (usual_rounds(bytes) + kBlocks - 1) / kBlocks);
  if (seconds) {
    for (size_t i = 0; i < contestants.size(); ++i) {
      // Fill and barrier count as well: the time is the user's.
      const Clock::time_point start = Clock::now();
      contestants[i](kWarmUps);
      const double each = std::chrono::duration<double>(Clock::now() - start).count() / (2 * kWarmUps);
      rounds[i] = static_cast<int>(std::clamp(*seconds / kBlocks / std::max(each, 1e-7), 1.0, 200'000.0));
    }
  }
  std::vector<std::vector<double>> times(contestants.size());
  for (int block = 0; block < kBlocks; ++block) {
    for (size_t i = 0; i < contestants.size(); ++i) {
      const std::vector<double> more = contestants[i](rounds[i]);
      times[i].insert(times[i].end(), more.begin(), more.end());
      on_block();
    }
  }
  for (std::vector<double>& all : times) std::sort(all.begin(), all.end());
  return times;
}

CommRun measure_table(const CommOptions& asked, const ClusterFile& cluster, Guardian& guardian,
                      const Crew::Variables& variables) {
  CommOptions options = asked;
  CommRun run;
  if (options.compare_gloo) {
    if (const std::string problem = gloo_problem(); !problem.empty()) {
      options.compare_gloo = false;
      run.notes.push_back(problem);
    }
  }
  ProgressOptions shown;
  shown.label = "bench comm";
  shown.total = options.num_points();
  Progress progress(shown);
  uint64_t points = 0;
  for (const int ranks : options.ranks) {
    progress.update(points, fmt::format("starting {} ranks", ranks));
    Party party(options, ranks, guardian, variables, run);
    for (const Operation operation : options.operations) {
      for (const uint64_t bytes : options.sizes) {
        CommResult point;
        point.operation = operation;
        point.transport = party.transport;
        point.ranks = ranks;
        point.bytes = bytes;
        const std::string note = fmt::format("{} of {} on {} ranks", name_of(operation), format_bytes(bytes), ranks);
        const auto results =
            measure_point(options, party, point, cluster, run.notes, [&] { progress.update(points, note); });
        run.results.insert(run.results.end(), results.begin(), results.end());
        progress.update(++points, note);
      }
    }
  }
  progress.finish();
  return run;
}

}  // namespace trireme::measure
