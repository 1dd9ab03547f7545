#include "trireme/measure/comm/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <sstream>
#include <tuple>

#include "trireme/base/units.h"
#include "trireme/measure/comm/crews.h"
#include "trireme/observe/progress.h"

namespace trireme::measure {
namespace {

std::string time_text(double us) { return format_duration(us * 1e-6); }

Tuner::Situation situation_of(int ranks, const std::string& transport, bool ordered) {
  const bool one_host = shares_memory(transport);
  return {ranks, one_host, one_host ? ranks : 1, true, ordered};
}

/// Leaves out in-place, which sends nothing, and two-level, which needs several hosts.
bool goes_by_messages(Algorithm algorithm) {
  return algorithm != Algorithm::kInPlace && algorithm != Algorithm::kTwoLevel && algorithm != Algorithm::kAuto;
}

/// The algorithms by messages with their predictions, cheapest first.
std::vector<std::pair<double, Algorithm>> ranking(const Tuner& tuner, uint64_t bytes,
                                                  const Tuner::Situation& situation) {
  std::vector<std::pair<double, Algorithm>> ranked;
  for (const Algorithm algorithm : all_algorithms()) {
    if (!goes_by_messages(algorithm) || !tuner.possible(algorithm, situation)) continue;
    ranked.emplace_back(tuner.predict_us(algorithm, bytes, situation), algorithm);
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return ranked;
}

std::string reason(const Tuner& tuner, Algorithm chosen, uint64_t bytes, int ranks, const std::string& transport) {
  if (const char* name = std::getenv("TRIREME_ALGORITHM"); name != nullptr && name_of(chosen) == name) {
    return fmt::format("{}, because TRIREME_ALGORITHM says so", name_of(chosen));
  }
  const Tuner::Situation fixed = situation_of(ranks, transport, true);
  const auto ordered = ranking(tuner, bytes, fixed);
  if (chosen == Algorithm::kInPlace) {
    return fmt::format("in-place: these ranks share memory, so nothing is sent; by messages {} would be next ({})",
                       name_of(ordered[0].second), time_text(ordered[0].first));
  }
  return fmt::format("{}, the lowest prediction of those that keep the order of additions ({})", name_of(chosen),
                     time_text(tuner.predict_us(chosen, bytes, fixed)));
}

Explanation explain_size(const CommOptions& options, Crew& crew, const ClusterFile& cluster,
                         const std::string& transport, int ranks, uint64_t bytes) {
  Explanation explanation{ranks, bytes, transport, {}, {}};
  std::string chosen;
  ask_for_times(crew, measure_command(Operation::kAllReduce, Algorithm::kAuto, true, bytes, 1), &chosen);

  std::vector<Algorithm> wanted = options.algorithms;
  if (wanted[0] == Algorithm::kAuto) wanted.assign(all_algorithms().begin(), all_algorithms().end());
  const bool registered = options.buffers[0];
  std::vector<Contestant> contestants;
  const Tuner tuner(cluster, shares_memory(transport) ? "tcp" : transport);
  for (const Algorithm algorithm : possible_algorithms(wanted, ranks, transport)) {
    if (algorithm == Algorithm::kAuto || (algorithm == Algorithm::kTwoLevel && wanted.size() > 1)) continue;
    ExplainedAlgorithm explained;
    explained.algorithm = algorithm;
    explained.chosen = name_of(algorithm) == chosen;
    explained.keeps_order = tuner.possible(algorithm, situation_of(ranks, transport, true));
    explained.result.transport = transport;
    explained.result.algorithm = name_of(algorithm);
    explained.result.ranks = ranks;
    explained.result.bytes = bytes;
    explained.result.registered = registered;
    explained.result.predicted_us =
        predict_operation_us(Operation::kAllReduce, algorithm, ranks, bytes, cluster.cost(transport, ranks));
    std::tie(explained.root, explained.others) =
        parse_traffic(crew.ask(fmt::format("traffic {} {}", name_of(algorithm), bytes)));
    explanation.algorithms.push_back(explained);
    contestants.push_back([&crew, algorithm, registered, bytes](int rounds) {
      std::string used;
      return ask_for_times(crew, measure_command(Operation::kAllReduce, algorithm, registered, bytes, rounds), &used);
    });
  }
  const auto times = alternate(contestants, bytes, options.seconds_per_point, [] {});
  for (size_t i = 0; i < times.size(); ++i) explanation.algorithms[i].result.summarise(times[i]);
  explanation.why = reason(tuner, algorithm_named(chosen), bytes, ranks, transport);
  return explanation;
}

}  // namespace

std::vector<Crossing> crossings(const Tuner& tuner, const Tuner::Situation& situation) {
  std::vector<Crossing> found;
  constexpr int kSteps = 8;  // to a doubling
  for (int step = 0; step <= 28 * kSteps; ++step) {
    const auto bytes = static_cast<uint64_t>(4 * std::llround(std::exp2(static_cast<double>(step) / kSteps)));
    const auto ranked = ranking(tuner, bytes, situation);
    if (ranked.empty()) return found;
    if (found.empty()) {
      found.push_back({bytes, ranked[0].second});
    } else if (tuner.predict_us(found.back().algorithm, bytes, situation) > ranked[0].first * (1 + 1e-9)) {
      found.push_back({bytes, ranked[0].second});  // equal formulas do not cross
    }
  }
  return found;
}

std::pair<Sent, Sent> parse_traffic(const std::string& answer) {
  std::istringstream numbers(answer);
  Sent root, others;
  int64_t messages = 0, sent = 0, ignored = 0, rounds = 0, ranks = 0;
  for (; numbers >> messages >> sent >> ignored >> ignored >> rounds; ++ranks) {
    Sent& of = ranks == 0 ? root : others;
    of = {std::max(of.messages, messages), std::max(of.bytes, sent), std::max(of.rounds, rounds)};
  }
  if (ranks == 0 || !numbers.eof()) throw Error(fmt::format("counts of messages were expected, not: {}", answer));
  return {root, others};
}

std::vector<ExplainedRanks> explain(const CommOptions& options, const ClusterFile& cluster, Guardian& guardian,
                                    const Crew::Variables& variables, CommRun& run) {
  ProgressOptions shown;
  shown.label = "explain";
  shown.total = options.ranks.size() * options.sizes.size();
  Progress progress(shown);
  uint64_t done = 0;
  std::vector<ExplainedRanks> all;
  for (const int ranks : options.ranks) {
    progress.update(done, fmt::format("{} ranks", ranks));
    const auto crew = start_ours(options.transport, ranks, options.bind, guardian, variables);
    const std::string transport = crew->wait_until_ready(std::chrono::seconds(60));
    ExplainedRanks explained;
    for (const uint64_t bytes : options.sizes) {
      explained.sizes.push_back(explain_size(options, *crew, cluster, transport, ranks, bytes));
      for (const ExplainedAlgorithm& each : explained.sizes.back().algorithms) run.results.push_back(each.result);
      progress.update(++done, fmt::format("{} on {} ranks", format_bytes(bytes), ranks));
    }
    const Tuner tuner(cluster, shares_memory(transport) ? "tcp" : transport);
    explained.ordered = crossings(tuner, situation_of(ranks, transport, true));
    explained.any_order = crossings(tuner, situation_of(ranks, transport, false));
    all.push_back(std::move(explained));
  }
  progress.finish();
  return all;
}

}  // namespace trireme::measure
