// Ranks that disagree, made from a number: the same case on every rank, whether it is a thread or a process.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/comm/record/operation.h"
#include "trireme/comm/world.h"

namespace trireme {

/// What is different about the odd rank.
enum class Mismatch { kOperation, kType, kCount, kRoot, kReduction, kOrder, kAlgorithm, kCounts, kMissing };
inline constexpr int kNumMismatches = 9;
std::string_view name_of(Mismatch mismatch);

/// One collective as one rank means it.
struct PlannedCall {
  OperationKind kind = OperationKind::kBarrier;
  DataType type = DataType::kFloat;
  size_t count = 0;
  int root = 0;
  ReduceOp op = ReduceOp::kSum;
  Algorithm algorithm = Algorithm::kAuto;
  bool registered = false;     ///< its operands come from the communicator
  bool in_background = false;  ///< started, then waited for
  /// Of the variants with lists: elements from rank a to rank b; all-gather takes the first column.
  std::vector<std::vector<size_t>> counts;
};

struct MismatchCase {
  uint64_t seed = 0;
  int ranks = 2;
  int odd = 0;  ///< the rank that differs
  Mismatch mismatch{};
  std::vector<PlannedCall> before;      ///< all agree
  std::vector<PlannedCall> most, odds;  ///< what the others do, and what the odd one does
  bool calls_again = true;              ///< once more after that, before they leave
  std::chrono::milliseconds timeout{0};

  std::string describe() const;
};

/// `max_ranks` at least 2. On one host every algorithm is possible.
MismatchCase make_mismatch_case(uint64_t seed, int max_ranks, bool one_host);

/// How one rank fared.
struct MismatchOutcome {
  enum class Where { kNowhere, kThere, kNextCall, kLeave };
  Where where = Where::kNowhere;  ///< the first error
  std::string message;
  int culprit = -1;
  bool usage_error = false;
  double seconds = 0;   ///< from the calls in question to the error
  std::string trouble;  ///< what must not be: wrong data, another error the second time, a slow second time

  bool gave_up() const { return message.find("gave up") != std::string::npos; }
};

/// Plays this rank's part, then one more call, then leaves.
MismatchOutcome play(World& world, const MismatchCase& plan);

/// What is wrong with how all ranks fared, or nothing.
std::string judge(const MismatchCase& plan, const std::vector<MismatchOutcome>& outcomes);

/// One line, for processes to print and tests to read.
std::string to_line(const MismatchOutcome& outcome);
MismatchOutcome parse_outcome(const std::string& line);

}  // namespace trireme
