// The table of `trireme bench comm`: every point measured for us, the peers and the floor, in alternation.
//
// [Note: Fair timing]
// All measure alike: fill the operand with 1 (so that it has just been written, as a gradient has), barrier, clock,
// operation, clock, on rank 0; the first three rounds of a block do not count. A point is measured in blocks,
//
//   ours ours' MPI Gloo floor │ ours ours' MPI Gloo floor │ ours ours' MPI Gloo floor      (' in the user's memory)
//
// so that whatever else the machine does meets everybody alike. Who is not being measured sleeps. What is reported is
// the median of all rounds of all blocks.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trireme/measure/comm/operation.h"
#include "trireme/measure/crew.h"

namespace trireme::measure {

struct CommOptions {
  std::vector<int> ranks;
  std::vector<uint64_t> sizes;  ///< bytes of the whole vector, multiples of 4
  std::vector<Operation> operations;
  std::string transport = "auto";                          ///< "auto", "threads", "tcp" or "mpi"
  std::vector<Algorithm> algorithms = {Algorithm::kAuto};  ///< of the all-reduce
  std::vector<bool> buffers = {true};                      ///< registered or not, in the order of measurement
  bool compare_mpi = false, compare_gloo = false;
  bool bind = true;  ///< ours and MPI's ranks to cores, where there are enough; the scheduler places them otherwise
  std::optional<double> seconds_per_point;  ///< of each contestant; none: a fixed number of rounds

  size_t num_points() const { return ranks.size() * operations.size() * sizes.size(); }
};

struct CommResult {
  Operation operation = Operation::kAllReduce;
  std::string transport;  ///< as World names it
  std::string algorithm;
  int ranks = 0;
  uint64_t bytes = 0;
  bool registered = false;
  double us = 0, fastest_us = 0, slow_us = 0;  ///< median, minimum, nine tenths are below
  size_t rounds = 0;
  double predicted_us = 0;
  std::optional<double> floor_us, mpi_us, gloo_us;

  /// Takes the statistics of sorted times.
  void summarise(const std::vector<double>& sorted);
};

struct CommRun {
  std::vector<CommResult> results;
  std::string mpi_version, gloo_version;  ///< empty where not compared
  std::vector<std::string> notes;         ///< for people: what is missing, and how to get it
};

/// Measures the whole table; progress goes to stderr. Throws Error when somebody that takes part ends, or Interrupted.
CommRun measure_table(const CommOptions& options, const ClusterFile& cluster, Guardian& guardian,
                      const Crew::Variables& variables);

/// Times of `rounds` rounds, in µs; empty when it cannot be done.
using Contestant = std::function<std::vector<double>(int rounds)>;

/// Measures blocks in alternation, as the note says. Returns all times of each contestant, sorted.
std::vector<std::vector<double>> alternate(const std::vector<Contestant>& contestants, uint64_t bytes,
                                           std::optional<double> seconds, const std::function<void()>& on_block);
constexpr int kBlocks = 3;
/// Rounds of each contestant where no time is given.
int usual_rounds(uint64_t bytes);

/// The command for one of our ranks' measurements.
std::string measure_command(Operation operation, Algorithm algorithm, bool registered, uint64_t bytes, int rounds);
/// The times in an answer, after a first word that `algorithm`, where there is one, is set to. Throws Error for an
/// answer without times or with other words; `question` is quoted.
std::vector<double> parse_times(const std::string& answer, std::string* algorithm, const std::string& question);
/// Asks a crew and parses its answer.
std::vector<double> ask_for_times(Crew& crew, const std::string& command, std::string* algorithm = nullptr);

/// The algorithms that these ranks can perform in any order of additions.
std::vector<Algorithm> possible_algorithms(const std::vector<Algorithm>& algorithms, int ranks,
                                           const std::string& transport);

}  // namespace trireme::measure
