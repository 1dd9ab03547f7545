// How much of an all-reduce hides behind computation: 2 ranks start one in the background and compute meanwhile.
//
//   bench_overlap [MIB] [REPEATS]      under any launcher; bench/overlap.sh runs it over a cable of 1 Gbit/s
//
// The computation alone takes at least 1.5 times as long as the communication alone. Printed are the lower quartiles of
// many short repetitions, since cores of a virtual machine are now fast and now slow:
//   compute 0.1064 s   all-reduce 0.0693 s   together 0.1155 s   hidden 87 %
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

/// What disturbs a machine only adds time: the lower quartile is that of a quieter one.
double quiet(std::vector<double> values) {
  const auto quarter = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 4);
  std::nth_element(values.begin(), quarter, values.end());
  return *quarter;
}

/// The ranks' mean time for `body`, which all begin together. (The slowest rank's time would be that of the core that
/// others use most at the moment.)
template <typename Body>
double measure(Communicator& comm, Body body) {
  comm.barrier();
  const Clock::time_point start = Clock::now();
  body();
  std::vector<double> seconds{seconds_since(start)};
  comm.all_reduce(seconds, ReduceOp::kAverage);
  return seconds[0];
}

void run(size_t mib, int repeats) {
  World world = World::join();
  Communicator& comm = world.comm();
  std::vector<float> data((mib << 20) / sizeof(float), 1.f);
  const auto reduce = [&] { comm.all_reduce(data, ReduceOp::kAverage); };
  reduce();  // opens connections

  // As much arithmetic as takes 1.5 times as long when the cores are at their fastest: it must be the longer of the
  // two.
  std::vector<double> trials, samples;
  for (int i = 0; i < 3; ++i) trials.push_back(measure(comm, reduce));
  long rounds = 1000;
  while (measure(comm, [&] { compute(rounds); }) < 0.05) rounds *= 2;
  for (int i = 0; i < 10; ++i) samples.push_back(measure(comm, [&] { compute(rounds); }));
  const double fastest = *std::min_element(samples.begin(), samples.end());
  rounds = static_cast<long>(static_cast<double>(rounds) * 1.5 * quiet(trials) / fastest) + 1;

  // In turn, so that whatever else the machine does meets all three.
  std::vector<double> computing, communicating, together;
  for (int i = 0; i < repeats; ++i) {
    together.push_back(measure(comm, [&] {
      Handle handle = comm.start_all_reduce(data, ReduceOp::kAverage);
      compute(rounds);
      handle.wait();
    }));
    computing.push_back(measure(comm, [&] { compute(rounds); }));
    communicating.push_back(measure(comm, reduce));
  }
  if (data.front() != 1.f || data.back() != 1.f) throw Error("the all-reduce is wrong");
  if (world.rank() == 0) {
    const double hidden = (quiet(computing) + quiet(communicating) - quiet(together)) / quiet(communicating);
    std::printf(
        "%d ranks over %s, %zu MiB, %zu times: compute %.4f s   all-reduce %.4f s   together %.4f s   "
        "hidden %.0f %%\n",
        world.size(), world.transport().c_str(), mib, together.size(), quiet(computing), quiet(communicating),
        quiet(together), 100 * hidden);
  }
  world.leave();
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  try {
    const int mib = argc > 1 ? std::atoi(argv[1]) : 8, repeats = argc > 2 ? std::atoi(argv[2]) : 100;
    if (mib < 1 || repeats < 1) throw trireme::UsageError("usage: bench_overlap [MIB] [REPEATS]");
    trireme::run(static_cast<size_t>(mib), repeats);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
