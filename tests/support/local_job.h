// A job of processes on this machine, run by the launcher to its end, with hosts that are only pretended.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

namespace trireme {

struct LocalJob {
  std::vector<std::string> argv;
  /// By rank: ranks with the same number believe that they share a host, the others that they do not. Empty: one host.
  std::vector<int> host_of_rank;
  int num_ranks = 0;  ///< 0: as many as host_of_rank has
  std::map<std::string, std::string> environment;
  std::chrono::milliseconds timeout{60'000};
};

struct JobResult {
  int exit_code = 0;
  std::string output;  ///< of all ranks together, and how they ended if not well
  double seconds = 0;
};

JobResult run_job(const LocalJob& job);

}  // namespace trireme
