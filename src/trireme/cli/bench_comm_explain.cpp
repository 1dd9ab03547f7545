#include "trireme/cli/bench_comm_explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <sstream>

#include "trireme/base/json.h"
#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/cli/bench_comm_peers.h"
#include "trireme/cli/bench_comm_predict.h"
#include "trireme/comm/cost_model.h"
#include "trireme/comm/tuner.h"
#include "trireme/observe/style.h"
#include "trireme/observe/table.h"

namespace trireme::cli {
namespace {

std::string time_text(double us) { return format_duration(us * 1e-6); }

Tuner::Situation situation_of(int ranks, const std::string& transport, bool ordered) {
  const bool one_host = shares_memory(transport);
  return {ranks, one_host, one_host ? ranks : 1, true, ordered};
}

/// In place is no rival where memory is shared, and two levels need more than one.
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

std::string reason(const Tuner& tuner, Algorithm chosen, uint64_t bytes, int ranks, const std::string& transport) {
  if (const char* name = std::getenv("TRIREME_ALGORITHM"); name != nullptr && name_of(chosen) == name) {
    return fmt::format("{}, because TRIREME_ALGORITHM says so", name_of(chosen));
  }
  const Tuner::Situation fixed = situation_of(ranks, transport, true), any = situation_of(ranks, transport, false);
  const auto ordered = ranking(tuner, bytes, fixed), all = ranking(tuner, bytes, any);
  if (chosen == Algorithm::kInPlace) {
    return fmt::format("in-place: these ranks share memory, so nothing is sent; by messages {} would be next ({})",
                       name_of(ordered[0].second), time_text(ordered[0].first));
  }
  std::string text = fmt::format("{}, the lowest prediction of those that keep the order of additions ({}",
                                 name_of(chosen), time_text(tuner.predict_us(chosen, bytes, fixed)));
  for (const auto& [us, algorithm] : ordered) {
    if (algorithm == chosen) continue;
    text += fmt::format("; then {}, {}", name_of(algorithm), time_text(us));
    break;
  }
  text += ")";
  if (all[0].first < tuner.predict_us(chosen, bytes, fixed) * (1 - 1e-9)) {
    text += fmt::format("; in any order {} would be ({})", name_of(all[0].second), time_text(all[0].first));
  }
  return text;
}

void read_traffic(Crew& crew, uint64_t bytes, ExplainedAlgorithm& explained) {
  std::istringstream answer(crew.ask(fmt::format("traffic {} {}", name_of(explained.algorithm), bytes)));
  int64_t messages = 0, sent = 0, ignored = 0, rounds = 0;
  for (bool root = true; answer >> messages >> sent >> ignored >> ignored >> rounds; root = false) {
    Sent& of = root ? explained.root : explained.others;
    of = {std::max(of.messages, messages), std::max(of.bytes, sent), std::max(of.rounds, rounds)};
  }
}

Explanation explain_size(const BenchCommOptions& options, Crew& crew, const ClusterFile& cluster,
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
    read_traffic(crew, bytes, explained);
    explanation.algorithms.push_back(explained);
    contestants.push_back([&crew, algorithm, registered, bytes](int rounds) {
      std::string used;
      return ask_for_times(crew, measure_command(Operation::kAllReduce, algorithm, registered, bytes, rounds), &used);
    });
  }
  const auto times = alternate(contestants, bytes, options.seconds_per_point, [] {});
  for (size_t i = 0; i < times.size(); ++i) {
    BenchCommResult& result = explanation.algorithms[i].result;
    result.us = quantile(times[i], 0.5);
    result.fastest_us = times[i].front();
    result.slow_us = quantile(times[i], 0.9);
    result.rounds = times[i].size();
  }
  explanation.why = reason(tuner, algorithm_named(chosen), bytes, ranks, transport);
  return explanation;
}

std::string with_root(const std::string& others, const std::string& root) {
  return others == root ? others : fmt::format("{} (root {})", others, root);
}

std::string one_table(const Explanation& explanation, bool colour) {
  Table table({{"algorithm", Align::kLeft},
               {"growth with N ranks", Align::kLeft},
               {"messages a rank", Align::kLeft},
               {"bytes a rank", Align::kLeft},
               {"rounds", Align::kRight},
               {"predicted", Align::kRight},
               {"measured", Align::kRight},
               {"", Align::kLeft}});
  const auto bytes_text = [](int64_t bytes) { return format_bytes(static_cast<uint64_t>(bytes)); };
  for (const ExplainedAlgorithm& each : explanation.algorithms) {
    table.add_row({std::string(name_of(each.algorithm)), std::string(complexity_of(each.algorithm)),
                   with_root(format_count(each.others.messages), format_count(each.root.messages)),
                   with_root(bytes_text(each.others.bytes), bytes_text(each.root.bytes)),
                   format_count(std::max(each.others.rounds, each.root.rounds)), time_text(each.result.predicted_us),
                   time_text(each.result.us),
                   each.chosen        ? "← chosen"
                   : each.keeps_order ? ""
                                      : "own order"});
  }
  const std::string title = fmt::format("all-reduce of {} · {} ranks · {}", format_bytes(explanation.bytes),
                                        explanation.ranks, explanation.transport);
  return fmt::format("{}\n{}  chosen: {}\n\n", emphasised(title, Emphasis::kBold, colour), table.to_text({.indent = 2}),
                     explanation.why);
}

std::string crossings_text(const std::vector<Crossing>& list) {
  std::string text;
  for (size_t i = 0; i < list.size(); ++i) {
    text += i == 0 ? std::string(name_of(list[i].algorithm))
                   : fmt::format(", from {} on {}", format_bytes(list[i].from_bytes), name_of(list[i].algorithm));
  }
  return text;
}

Json crossings_json(const std::vector<Crossing>& list) {
  Json json = Json::array();
  for (const Crossing& crossing : list) {
    json.push_back({{"from_bytes", crossing.from_bytes}, {"algorithm", name_of(crossing.algorithm)}});
  }
  return json;
}

}  // namespace

std::vector<ExplainedRanks> explain(const BenchCommOptions& options, const ClusterFile& cluster, Guardian& guardian,
                                    const Crew::Variables& variables, BenchCommRun& run) {
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

std::string explanation_text(const std::vector<ExplainedRanks>& explained, bool colour) {
  std::string text;
  for (const ExplainedRanks& ranks : explained) {
    for (const Explanation& explanation : ranks.sizes) text += one_table(explanation, colour);
    const Explanation& first = ranks.sizes.at(0);
    text += fmt::format("lowest prediction by messages, {} ranks, {}\n", first.ranks, first.transport);
    text += "  fixed order  " + crossings_text(ranks.ordered) + "\n";
    text += "  any order    " + crossings_text(ranks.any_order) + "\n\n";
  }
  text +=
      "messages and bytes: what a rank sends in one call, counted; (root): rank 0, where it differs · rounds: "
      "messages\n"
      "that wait for each other · own order: fast, but the last bits depend on the number of ranks\n";
  return text;
}

Json explanation_json(const std::vector<ExplainedRanks>& explained) {
  Json rows = Json::array(), crossing_list = Json::array();
  for (const ExplainedRanks& ranks : explained) {
    for (const Explanation& explanation : ranks.sizes) {
      for (const ExplainedAlgorithm& each : explanation.algorithms) {
        rows.push_back({{"ranks", explanation.ranks},
                        {"bytes", explanation.bytes},
                        {"transport", explanation.transport},
                        {"algorithm", name_of(each.algorithm)},
                        {"complexity", complexity_of(each.algorithm)},
                        {"formula", formula_of(each.algorithm)},
                        {"messages_sent", each.others.messages},
                        {"root_messages_sent", each.root.messages},
                        {"bytes_sent", each.others.bytes},
                        {"root_bytes_sent", each.root.bytes},
                        {"rounds", std::max(each.others.rounds, each.root.rounds)},
                        {"predicted_us", each.result.predicted_us},
                        {"us", each.result.us},
                        {"keeps_order", each.keeps_order},
                        {"chosen", each.chosen},
                        {"why", each.chosen ? Json(explanation.why) : Json(nullptr)}});
      }
    }
    crossing_list.push_back({{"ranks", ranks.sizes.at(0).ranks},
                             {"ordered", crossings_json(ranks.ordered)},
                             {"any_order", crossings_json(ranks.any_order)}});
  }
  return {{"algorithms", rows}, {"crossings", crossing_list}};
}

}  // namespace trireme::cli
