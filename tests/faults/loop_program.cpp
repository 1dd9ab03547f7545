// A rank that works until something happens to it: loop_program [KEY=VALUE]…
//
//   steps=N        stop after that many (0: never)          pause_us=N    between two of them
//   join_ms=N      patience for joining                     call_ms=N     patience for a call
//   allocate=N     bytes taken from the communicator first  fsize=N       largest file, for which memory counts
//   stuck=RANK     that one computes for ever after a step  throw=RANK    that one throws at step 5
//   split=1        works in sub-groups as well              R:KEY=VALUE   for rank R only
//
// Prints "joined", then one line about its end: "done", "caught NS CULPRIT MESSAGE" for a CommError (exit code 3),
// "usage MESSAGE" (2) or "error MESSAGE" (1). NS is the time by the steady clock, which is one for the machine.
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>

#include "support/process_group.h"
#include "trireme/comm/world.h"

namespace trireme {
namespace {

void check(bool right, const char* what) {
  if (!right) throw Error(fmt::format("wrong result of {}", what));
}

/// One round of mixed operations; all values are small whole numbers, so sums are exact.
void work(Communicator& comm, uint64_t step) {
  constexpr size_t kCounts[] = {1, 100, 5'000, 300, 60'000, 17, 1'000, 9};
  const size_t count = kCounts[step % 8];
  const int p = comm.size(), me = comm.rank();
  const float sum = static_cast<float>(p * (p + 1) / 2);
  std::vector<float> data(count, static_cast<float>(me + 1));
  switch (step % 7) {
    case 0:
    case 1:
      comm.all_reduce(data);
      check(data.front() == sum && data.back() == sum, "all-reduce");
      break;
    case 2: {
      auto host_shared = comm.allocate<float>(count);
      for (float& x : host_shared) x = static_cast<float>(me + 1);
      comm.start_all_reduce(host_shared).wait();
      check(host_shared[count - 1] == sum, "all-reduce in the background");
      break;
    }
    case 3:
      comm.broadcast(data, static_cast<int>(step) % p);
      check(data.back() == static_cast<float>(static_cast<int>(step) % p + 1), "broadcast");
      break;
    case 4: {
      std::vector<float> all(count * static_cast<size_t>(p));
      comm.all_gather(data, all);
      check(all.front() == 1 && all.back() == static_cast<float>(p), "all-gather");
      break;
    }
    case 5: {
      std::vector<float> in(count);
      comm.send_recv(data, (me + 1) % p, in, (me + p - 1) % p, 1);
      check(in.back() == static_cast<float>((me + p - 1) % p + 1), "send-recv");
      break;
    }
    default: {
      std::vector<float> all(count * static_cast<size_t>(p), static_cast<float>(me + 1)), own(count);
      comm.reduce_scatter(all, own, ReduceOp::kSum);
      check(own.back() == sum, "reduce-scatter");
      comm.barrier();
      break;
    }
  }
}

/// KEY=NUMBER, or RANK:KEY=NUMBER, from the command line.
class Numbers {
 public:
  Numbers(int argc, char** argv) {
    const char* rank = std::getenv("TRIREME_RANK");
    for (int i = 1; i < argc; ++i) {
      std::string word = argv[i];
      if (const size_t colon = word.find(':'); colon != std::string::npos) {
        if (rank == nullptr || word.substr(0, colon) != rank) continue;
        word = word.substr(colon + 1);
      }
      values_[word.substr(0, word.find('='))] = std::strtoull(word.substr(word.find('=') + 1).c_str(), nullptr, 10);
    }
  }
  bool has(const std::string& key) const { return values_.contains(key); }
  uint64_t get(const std::string& key, uint64_t otherwise) const { return has(key) ? values_.at(key) : otherwise; }

 private:
  std::map<std::string, uint64_t> values_;
};

void loop(World& world, const Numbers& number) {
  Communicator& comm = world.comm();
  Buffer taken;
  if (number.has("allocate")) taken = comm.allocate(number.get("allocate", 0));
  std::unique_ptr<Communicator> half;
  if (number.has("split")) half = comm.split(world.rank() % 2);
  const uint64_t steps = number.get("steps", 0);
  for (uint64_t step = 1; steps == 0 || step <= steps; ++step) {
    world.set_step(step);
    work(comm, step);
    if (half) work(*half, step + 3);
    if (step == 5) {
      fmt::print("working\n");
      std::fflush(stdout);
      if (number.get("throw", UINT64_MAX) == static_cast<uint64_t>(world.rank()))
        throw std::runtime_error("out of coffee");
      while (number.get("stuck", UINT64_MAX) == static_cast<uint64_t>(world.rank())) std::this_thread::yield();
    }
    if (number.has("pause_us")) std::this_thread::sleep_for(std::chrono::microseconds(number.get("pause_us", 0)));
  }
  world.leave();
}

int run(const Numbers& number) {
  if (number.has("fsize")) {
    const rlimit limit{number.get("fsize", 0), number.get("fsize", 0)};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  WorldOptions world_options;
  world_options.join_timeout = std::chrono::milliseconds(number.get("join_ms", 30'000));
  world_options.call_timeout = std::chrono::milliseconds(number.get("call_ms", 60'000));
  World world = World::join(world_options);
  fmt::print("joined {} of {} over {} with pid {}.\n", world.rank(), world.size(), world.transport(), getpid());
  std::fflush(stdout);

  try {
    loop(world, number);
  } catch (const CommError& error) {
    fmt::print("caught {} {} {}\n", Clock::now().time_since_epoch().count(), error.culprit(), error.what());
    std::fflush(stdout);
    return 3;
  }
  fmt::print("done\n");
  return 0;
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  using namespace trireme;
  die_with_parent();
  try {
    return run(Numbers(argc, argv));
  } catch (const UsageError& error) {
    fmt::print("usage {}\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print("error {}\n", error.what());
    return 1;
  }
}
