// Starts the ranks of a job on this host, watches them, and ends them together.
//
// Rank 0 inherits a socket that is listening already, so there is no port to guess and none to lose to another
// program. Ranks learn of a failure through the control plane; the launcher only ends those that do not go by
// themselves:
//
//   a rank fails ──grace──▶ SIGTERM to the others ──kill_after──▶ SIGKILL
//
// Nothing outlives the launcher, however it ends: ranks die with the thread that called launch_locally(), and a small
// guardian process kills what those ranks had started themselves.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/error.h"

namespace trireme {

struct LocalLaunch {
  int num_processes = 1;                                         ///< on this host
  std::vector<std::string> argv;                                 ///< the program, sought in PATH, and its arguments
  std::vector<std::pair<std::string, std::string>> environment;  ///< added to, or instead of, the launcher's own
  bool asks_why = false;                                         ///< ranks may tell_failure()
  bool prefix_output = false;  ///< "[rank 1] " before each line; otherwise output goes straight through
  std::chrono::milliseconds grace{10'000};
  std::chrono::milliseconds kill_after{5'000};
  std::chrono::milliseconds timeout{0};  ///< for the whole job; 0: none

  // A job over several hosts: one launcher a host, equal but for node_rank. Rank 0 then opens master_port itself.
  int num_nodes = 1;
  int node_rank = 0;
  std::string master_address;  ///< empty: this host alone
  uint16_t master_port = 0;
  std::string token;  ///< shared by all hosts, needed beyond loopback; for one host the launcher draws one
};

/// How one rank ended.
struct RankEnd {
  int rank = 0;
  int pid = 0;
  int exit_code = 0;
  int signal = 0;                    ///< not 0: killed by it
  bool stopped_by_launcher = false;  ///< after another's failure, a timeout or a signal to the launcher
  double seconds = 0;                ///< since the start of the job

  bool failed() const { return exit_code != 0 || signal != 0; }
};

struct LaunchReport {
  /// That of the first rank that failed (128 + signal); 130 after Ctrl-C; 124 after the timeout; 0 when all went well.
  int exit_code = 0;
  bool timed_out = false;
  int interrupted_by = 0;     ///< the signal that ended the job through the launcher, or 0
  std::vector<RankEnd> ends;  ///< in the order in which they ended
  std::optional<Error> told;  ///< why a rank failed, in its own words: one that blames no other, where there is one

  /// What ended the job, with its place: as a rank told it, or else text(), by the first rank that failed.
  Error failure() const;
  /// "rank 1 (pid 812) was killed by SIGKILL", then what became of the others. Empty when all went well.
  std::string text() const;
};

/// In a rank: whether the launcher asks why ranks fail, and the answer.
bool is_asked_why();
void tell_failure(const Error& error);

/// Blocks until every rank has ended. While it runs, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 to this
/// process go to the ranks instead; a second SIGINT or SIGTERM kills them. One call at a time in a process.
/// Throws UsageError (no such program, no token beyond loopback) or SystemError, and leaves nothing running.
LaunchReport launch_locally(const LocalLaunch& launch);

}  // namespace trireme
