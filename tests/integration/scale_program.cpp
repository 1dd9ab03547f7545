// One of very many ranks: joins, all-reduces 1 KiB and 64 KiB, waits for all, leaves. Rank 0 prints the times.
#include <cstdio>
#include <cstdlib>
#include <numeric>

#include "trireme/base/deadline.h"
#include "trireme/comm/world.h"

namespace {

using trireme::Clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

void check_all_reduce(trireme::World& world, size_t num_bytes) {
  const Clock::time_point start = Clock::now();
  std::vector<int32_t> data(num_bytes / sizeof(int32_t));
  std::iota(data.begin(), data.end(), world.rank());
  world.comm().all_reduce(data);
  const int32_t p = world.size();
  for (size_t i = 0; i < data.size(); ++i) {
    if (data[i] != p * (p - 1) / 2 + p * static_cast<int32_t>(i)) {
      throw std::runtime_error("element " + std::to_string(i) + " of " + std::to_string(num_bytes) + " bytes is wrong");
    }
  }
  if (world.rank() == 0) std::printf("all-reduce of %zu bytes: %.3f s\n", num_bytes, seconds_since(start));
}

}  // namespace

int main() {
  try {
    trireme::WorldOptions options;
    options.join_timeout = std::chrono::seconds(60);
    const Clock::time_point start = Clock::now();
    auto world = trireme::World::join(options);
    const double joined = seconds_since(start);
    if (world.rank() == 0) std::printf("joined: %.3f s after rank 0 began\n", joined);
    check_all_reduce(world, 1024);
    check_all_reduce(world, 64 * 1024);
    const Clock::time_point barrier = Clock::now();
    world.comm().barrier();
    if (world.rank() == 0) std::printf("barrier: %.3f s\n", seconds_since(barrier));
    world.leave();
    if (world.rank() == 0) std::printf("all right: %d ranks over %s\n", world.size(), world.transport().c_str());
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
