// How much of an all-reduce hides behind computation: 2 ranks start one in the background and compute meanwhile.
//
//   bench_overlap [MIB] [REPEATS]      under any launcher; bench/overlap.sh runs it over a cable of 1 Gbit/s
//
// The computation alone takes about 1.5 times as long as the communication alone. Printed are the medians:
//   compute 0.812 s   all-reduce 0.541 s   together 0.833 s   hidden 96 %
// where hidden = (compute + all-reduce − together) / all-reduce.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "trireme/base/deadline.h"
#include "trireme/comm/world.h"

namespace trireme {
namespace {

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Busy arithmetic on a vector that stays in the first cache, like a matrix product.
void compute(long rounds) {
  static std::vector<float> x(2048, 1.f);
  for (long round = 0; round < rounds; ++round) {
    for (float& value : x) value = value * 0.9999f + 0.0001f;
    asm volatile("" ::: "memory");
  }
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

/// The slowest rank's time for `body`, which all begin together.
template <typename Body>
double measure(Communicator& comm, Body body) {
  comm.barrier();
  const Clock::time_point start = Clock::now();
  body();
  std::vector<double> slowest{seconds_since(start)};
  comm.all_reduce(slowest, ReduceOp::kMax);
  return slowest[0];
}

void run(size_t mib, int repeats) {
  World world = World::join();
  Communicator& comm = world.comm();
  std::vector<float> data((mib << 20) / sizeof(float), 1.f);
  const auto reduce = [&] { comm.all_reduce(data, ReduceOp::kAverage); };
  reduce();  // opens connections

  // As much arithmetic as takes 1.5 times as long.
  std::vector<double> trials;
  for (int i = 0; i < 3; ++i) trials.push_back(measure(comm, reduce));
  long rounds = 1000;
  while (measure(comm, [&] { compute(rounds); }) < 0.05) rounds *= 2;
  const double sample = measure(comm, [&] { compute(rounds); });
  rounds = static_cast<long>(static_cast<double>(rounds) * 1.5 * median(trials) / sample) + 1;

  // In turn, so that whatever else the machine does meets all three.
  std::vector<double> computing, communicating, together, hidden;
  for (int i = 0; i < repeats; ++i) {
    computing.push_back(measure(comm, [&] { compute(rounds); }));
    communicating.push_back(measure(comm, reduce));
    together.push_back(measure(comm, [&] {
      Handle handle = comm.start_all_reduce(data, ReduceOp::kAverage);
      compute(rounds);
      handle.wait();
    }));
    hidden.push_back((computing.back() + communicating.back() - together.back()) / communicating.back());
  }
  if (data.front() != 1.f || data.back() != 1.f) throw Error("the all-reduce is wrong");
  if (world.rank() == 0) {
    std::printf("%d ranks over %s, %zu MiB: compute %.3f s   all-reduce %.3f s   together %.3f s   hidden %.0f %%\n",
                world.size(), world.transport().c_str(), mib, median(computing), median(communicating),
                median(together), 100 * median(hidden));
    // More than all, or computation that takes now this long and now that, says only that others used the cores.
    const auto [least, most] = std::minmax_element(computing.begin(), computing.end());
    if (median(hidden) > 1 || *most > 1.1 * *least) {
      std::printf("  do not trust this: the computation alone took %.3f to %.3f s; run it on a quiet machine\n", *least,
                  *most);
    }
  }
  world.leave();
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  try {
    const int mib = argc > 1 ? std::atoi(argv[1]) : 64, repeats = argc > 2 ? std::atoi(argv[2]) : 5;
    if (mib < 1 || repeats < 1) throw trireme::UsageError("usage: bench_overlap [MIB] [REPEATS]");
    trireme::run(static_cast<size_t>(mib), repeats);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
