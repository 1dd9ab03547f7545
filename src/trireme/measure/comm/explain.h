// `trireme bench comm --explain`: every all-reduce algorithm, what it sends, what the formula says, what it took.
#pragma once

#include <string>
#include <vector>

#include "trireme/comm/algorithms/tuner.h"
#include "trireme/measure/comm/table.h"

namespace trireme::measure {

/// Counts of what one rank sent in one all-reduce.
struct Sent {
  int64_t messages = 0, bytes = 0, rounds = 0;
};

struct ExplainedAlgorithm {
  Algorithm algorithm = Algorithm::kAuto;
  Sent root, others;  ///< rank 0, and the most of any other rank
  bool keeps_order = true, chosen = false;
  CommResult result;
};

/// The algorithm with the lowest predicted time from this size on, up to that of the next crossing.
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
  std::string why;  ///< the reason for the choice
};

struct ExplainedRanks {
  std::vector<Explanation> sizes;
  std::vector<Crossing> ordered, any_order;  ///< of the algorithms by messages
};

/// Measures; progress goes to stderr. The results also go to `run`, as those of a table do.
std::vector<ExplainedRanks> explain(const CommOptions& options, const ClusterFile& cluster, Guardian& guardian,
                                    const Crew::Variables& variables, CommRun& run);

/// Where the lowest prediction changes from 4 bytes to 1 GiB, of the algorithms that the situation allows.
std::vector<Crossing> crossings(const Tuner& tuner, const Tuner::Situation& situation);
/// What an answer to "traffic" says of rank 0, then of the others. Throws Error for an answer of another form.
std::pair<Sent, Sent> parse_traffic(const std::string& answer);

}  // namespace trireme::measure
