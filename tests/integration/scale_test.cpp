// A thousand ranks, as processes and as threads. Results and memory are judged here, time is only printed.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <thread>

#include "support/local_job.h"
#include "support/paths.h"
#include "trireme/base/deadline.h"
#include "trireme/comm/world.h"

namespace trireme {
namespace {

/// ThreadSanitizer leaves little of the address space for the memory of peers.
#if defined(__SANITIZE_THREAD__)
constexpr int kMostProcesses = 8;
#else
constexpr int kMostProcesses = 1000;
#endif

/// What the machine can still give to programs, in MiB.
long available_mib() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("MemAvailable:")) return std::stol(line.substr(13)) / 1024;
  }
  return 0;
}

class Processes : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Processes, testing::Values(200, 1000), testing::PrintToStringParamName());

TEST_P(Processes, JoinAllReduceAndEnd) {
  const int ranks = std::min(sanitized() ? GetParam() / 10 : GetParam(), kMostProcesses);
  const long before = available_mib();
  std::atomic<long> least = before;
  std::atomic<bool> done = false;
  std::thread watch([&] {
    while (!done) {
      least = std::min(least.load(), available_mib());
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
  LocalJob job;
  job.num_ranks = ranks;
  job.argv = {program_path("scale_program")};
  job.timeout = std::chrono::minutes(2);
  const JobResult result = run_job(job);
  done = true;
  watch.join();
  EXPECT_EQ(result.exit_code, 0) << result.output.substr(0, 5000);
  const std::string wanted = "all right: " + std::to_string(ranks) + " ranks over shared memory\n";
  EXPECT_NE(result.output.find(wanted), std::string::npos) << result.output.substr(0, 5000);
  std::printf("%d processes, %.1f s and %ld MiB in all:\n%s", ranks, result.seconds, before - least,
              result.output.substr(0, 1000).c_str());
  if (!sanitized()) {
    EXPECT_LT(before - least, 8L * ranks);  // 8 MiB a process
  }
}

TEST(ManyThreads, JoinAllReduceAndEnd) {
  const int ranks = sanitized() ? 100 : 1000;
  const auto start = Clock::now();
  std::atomic<int> wrong = 0;
  run_as_threads(ranks, [&](World& world) {
    for (const size_t count : {256, 16 * 1024}) {
      std::vector<int32_t> data(count);
      std::iota(data.begin(), data.end(), world.rank());
      world.comm().all_reduce(data);
      const int32_t p = world.size();
      for (size_t i = 0; i < count; ++i) {
        if (data[i] != p * (p - 1) / 2 + p * static_cast<int32_t>(i)) ++wrong;
      }
    }
    world.comm().barrier();
  });
  EXPECT_EQ(wrong, 0);
  std::printf("%d threads joined, all-reduced 1 KiB and 64 KiB and ended in %.2f s\n", ranks,
              std::chrono::duration<double>(Clock::now() - start).count());
}

}  // namespace
}  // namespace trireme
