// What the promises of docs/communication.md cost in each call: fingerprint, announcement, record, progress and failure
// check.
//
// Run it alone: bench_promises. It prints nanoseconds a call and their share of an all-reduce between two threads, and
// fails when they are more than 300 ns, or more than 1 % at 1 MiB.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "trireme/comm/communicator_impl.h"
#include "trireme/comm/world.h"

namespace trireme {
namespace {

/// The least of several rounds: what others do on the machine only adds.
template <typename Body>
double nanoseconds(int times, Body body) {
  double best = 1e18;
  for (int round = 0; round < 7; ++round) {
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < times; ++i) body();
    best = std::min(best, std::chrono::duration<double, std::nano>(Clock::now() - start).count() / times);
  }
  return best;
}

/// Added work of one call, by parts; the last is the whole, as Communicator::Impl::execute() does it.
std::vector<std::pair<std::string, double>> added_work(Communicator::Impl& group) {
  constexpr int kTimes = 200'000;
  OperationDigest digest;
  digest.kind = OperationKind::kAllReduce;
  digest.count = 1024;
  volatile uint64_t sink = 0;
  std::vector<std::pair<std::string, double>> parts;
  const auto measure = [&](const std::string& name, auto body) { parts.emplace_back(name, nanoseconds(kTimes, body)); };
  const Clock::time_point now = Clock::now();
  measure("failure check", [&] { sink = group.is_unusable(); });
  measure("clock, twice", [&] { sink = static_cast<uint64_t>((Clock::now() - Clock::now()).count()); });
  measure("progress, record", [&] {
    group.begin(digest, now);
    group.recorder.end(now);
  });
  measure("fingerprint", [&] {
    ++digest.sequence;
    sink = fingerprint(digest, group.group.id);
  });
  measure("announcement", [&] {
    ++digest.sequence;
    group.board->announce(digest, digest.sequence);
  });
  measure("all of it", [&] {
    const Clock::time_point start = Clock::now();
    ++digest.sequence;
    sink = group.is_unusable();
    group.begin(digest, start);
    const uint64_t print = fingerprint(digest, group.group.id);
    group.board->announce(digest, print);
    sink = print;
    group.end();
  });
  return parts;
}

int run() {
  std::vector<std::pair<std::string, double>> parts;
  double small_ns = 0, large_ns = 0;
  run_as_threads(2, [&](World& world) {
    Communicator& comm = world.comm();
    const auto all_reduce = [&](size_t num_bytes, int times) {
      auto data = comm.allocate<float>(num_bytes / sizeof(float));
      return nanoseconds(times, [&] { comm.all_reduce(data); });
    };
    const double small = all_reduce(4096, 2000), large = all_reduce(1 << 20, 100);
    if (world.rank() != 0) return;
    small_ns = small;
    large_ns = large;
    parts = added_work(comm.impl());
  });
  for (const auto& [name, ns] : parts) fmt::print("{:<20} {:7.1f} ns\n", name, ns);
  const double whole = parts.back().second;
  fmt::print("all-reduce of 4 KiB  {:7.1f} us, of which {:.2f} %\nall-reduce of 1 MiB  {:7.1f} us, of which {:.3f} %\n",
             small_ns / 1e3, 100 * whole / small_ns, large_ns / 1e3, 100 * whole / large_ns);
  const bool kept = whole < 300 && whole < 0.01 * large_ns;
  fmt::print("{}: at most 300 ns a call and 1 % at 1 MiB\n", kept ? "kept" : "NOT KEPT");
  return kept ? 0 : 1;
}

}  // namespace
}  // namespace trireme

int main() { return trireme::run(); }
