#include "support/local_job.h"

#include <fmt/format.h>

#include "support/process_group.h"
#include "trireme/launch/local_launch.h"

namespace trireme {
namespace {

// As long as a boot id, which tells ranks that they compete for the cores of one machine: see World::join.
constexpr const char* kPretendedMachine = "one-machine-that-pretends-to-be-many";

/// Tells each rank its host, sends what it prints to a file, and becomes the program.
std::string shell_script(const std::vector<int>& host_of_rank, const std::string& output) {
  std::string script;
  for (size_t rank = 0; rank < host_of_rank.size(); ++rank) {
    script += fmt::format("[ $TRIREME_RANK != {} ] || export TRIREME_HOST_ID={}{}; ", rank, kPretendedMachine,
                          host_of_rank[rank]);
  }
  return script + fmt::format("exec \"$0\" \"$@\" >> {} 2>&1", output);
}

}  // namespace

JobResult run_job(const LocalJob& job) {
  const ScratchFolder folder;
  LocalLaunch launch;
  launch.num_processes = job.num_ranks > 0 ? job.num_ranks : static_cast<int>(job.host_of_rank.size());
  launch.argv = {"sh", "-c", shell_script(job.host_of_rank, folder.path() / "output")};
  launch.argv.insert(launch.argv.end(), job.argv.begin(), job.argv.end());
  launch.environment.assign(job.environment.begin(), job.environment.end());
  launch.timeout = job.timeout;
  const Clock::time_point start = Clock::now();
  const LaunchReport report = launch_locally(launch);
  JobResult result;
  result.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  result.exit_code = report.exit_code;
  result.output = folder.read("output") + report.text();
  return result;
}

}  // namespace trireme
