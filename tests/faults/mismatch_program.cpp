// A rank that plays its part in many cases of disagreement, one world after another: mismatch_program SEED:PORT:FD…
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string>

#include "support/mismatch_case.h"
#include "support/process_group.h"

namespace {

int count_in(const char* folder) {
  int count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace trireme;
  die_with_parent();
  const int descriptors = count_in("/proc/self/fd");
  const int rank = std::atoi(std::getenv("TRIREME_RANK"));
  const int max_ranks = std::atoi(std::getenv("TRIREME_WORLD_SIZE"));
  const std::string one_host = std::getenv("TRIREME_ONE_HOST");
  for (int i = 1; i < argc; ++i) {
    unsigned long long seed = 0;
    int port = 0, fd = 0;
    if (std::sscanf(argv[i], "%llu:%d:%d", &seed, &port, &fd) != 3) return 2;
    const MismatchCase plan = make_mismatch_case(seed, max_ranks, one_host == "1");
    if (rank >= plan.ranks) continue;
    const std::string size = std::to_string(plan.ranks);
    setenv("TRIREME_WORLD_SIZE", size.c_str(), 1);
    setenv("TRIREME_LOCAL_SIZE", size.c_str(), 1);
    setenv("TRIREME_MASTER", ("127.0.0.1:" + std::to_string(port)).c_str(), 1);
    setenv("TRIREME_LISTEN_FD", std::to_string(fd).c_str(), 1);
    if (rank != 0) unsetenv("TRIREME_LISTEN_FD");
    try {
      World world = World::join();
      std::printf("%llu %s\n", seed, to_line(play(world, plan)).c_str());
    } catch (const std::exception& error) {
      std::printf("%llu failed to join: %s\n", seed, error.what());
    }
    std::fflush(stdout);
  }
  std::printf("left: %d descriptors, %d threads\n", count_in("/proc/self/fd") - descriptors,
              count_in("/proc/self/task") - 1);
  return 0;
}
