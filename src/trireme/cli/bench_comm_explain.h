// `trireme bench comm --explain`: every all-reduce algorithm, what it sends, what the formula says, what it took.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "trireme/cli/bench_comm_measure.h"

namespace trireme::cli {

/// What one rank sent in one all-reduce, counted.
struct Sent {
  int64_t messages = 0, bytes = 0, rounds = 0;
};

struct ExplainedAlgorithm {
  Algorithm algorithm = Algorithm::kAuto;
  Sent root, others;  ///< rank 0, and the most of any other rank
  bool keeps_order = true, chosen = false;
  BenchCommResult result;
};

/// From this size on, to that of the next one, this algorithm has the lowest predicted time.
struct Crossing {
  uint64_t from_bytes = 0;
  Algorithm algorithm = Algorithm::kAuto;
};

/// One size and number of ranks.
struct Explanation {
  int ranks = 0;
  uint64_t bytes = 0;
  std::string transport;
  std::vector<ExplainedAlgorithm> algorithms;
  std::string why;  ///< the chosen one was chosen
};

struct ExplainedRanks {
  std::vector<Explanation> sizes;
  std::vector<Crossing> ordered, any_order;  ///< of the algorithms by messages
};

/// Measures; progress goes to stderr. The results also go to `run`, as those of a table do.
std::vector<ExplainedRanks> explain(const BenchCommOptions& options, const ClusterFile& cluster, Guardian& guardian,
                                    const Crew::Variables& variables, BenchCommRun& run);

std::string explanation_text(const std::vector<ExplainedRanks>& explained, bool colour);
nlohmann::ordered_json explanation_json(const std::vector<ExplainedRanks>& explained);

}  // namespace trireme::cli
