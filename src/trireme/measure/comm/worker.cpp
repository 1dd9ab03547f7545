#include "trireme/measure/comm/worker.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <istream>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

#include "trireme/comm/reduce/reduce.h"
#include "trireme/comm/world.h"
#include "trireme/measure/comm/operation.h"

namespace trireme::measure {
namespace {

constexpr int kWorkerWarmUps = 3;
constexpr auto kPatience = std::chrono::hours(24);  // peers are measured meanwhile, for as long as the user likes

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

/// What an operation reads and writes: from the communicator, or the user's own. Operations in place have no output.
class Operands {
 public:
  Operands(Communicator& comm, size_t in_count, size_t out_count, bool registered)
      : in_count_(in_count), out_count_(out_count) {
    if (registered) {
      registered_in_ = comm.allocate<float>(in_count);
      registered_out_ = comm.allocate<float>(out_count);
    } else {
      user_in_.resize(in_count);
      user_out_.resize(out_count);
    }
    in_ = registered ? registered_in_.data() : user_in_.data();
    out_ = registered ? registered_out_.data() : user_out_.data();
    std::fill_n(out_, out_count, 0.f);
  }

  Data in() const { return {in_, in_count_, DataType::kFloat}; }
  Data out() const { return {out_, out_count_, DataType::kFloat}; }
  void fill(float value) const { std::fill_n(in_, in_count_, value); }
  /// The first value of the result that is not as expected, or the expected one.
  float check(float expected) const {
    const float* begin = out_count_ > 0 ? out_ : in_;
    const float* end = begin + (out_count_ > 0 ? out_count_ : in_count_);
    const float* wrong = std::find_if(begin, end, [&](float value) { return value != expected; });
    return wrong == end ? expected : *wrong;
  }

 private:
  size_t in_count_, out_count_;
  std::vector<float> user_in_, user_out_;
  TypedBuffer<float> registered_in_, registered_out_;
  float *in_ = nullptr, *out_ = nullptr;
};

class Worker {
 public:
  Worker(World& world, std::istream& commands, std::ostream& answers)
      : comm_(world.comm()), commands_(commands), answers_(answers) {}

  void serve() {
    while (true) {
      // Rank 0 sleeps in read(), the others on rank 0: nobody takes a core from the peer that is being measured.
      std::vector<uint8_t> command(256);
      if (comm_.rank() == 0) {
        std::string line;
        std::getline(commands_, line);  // empty at the end of the input
        std::copy_n(line.begin(), std::min(line.size(), command.size() - 1), command.begin());
      }
      comm_.broadcast(command, 0, {.timeout = kPatience});
      if (command[0] == 0) return;
      std::string answer;
      try {
        answer = "ok" + perform(reinterpret_cast<const char*>(command.data()));
      } catch (const UsageError& error) {  // the same on all ranks, before anything was sent
        answer = std::string("error ") + error.what();
        if (const size_t end = answer.find("\n  "); end != std::string::npos) answer.replace(end, 3, "; ");
      }
      if (comm_.rank() == 0) {
        std::replace(answer.begin(), answer.end(), '\n', ' ');
        answers_ << answer << std::endl;
      }
    }
  }

 private:
  std::string perform(const std::string& command) {
    std::istringstream words(command);
    std::string what, operation, algorithm, buffers;
    size_t bytes = 0;
    int rounds = 0;
    words >> what;
    if (what == "measure") {
      words >> operation >> algorithm >> buffers >> bytes >> rounds;
      return measure(operation_named(operation), algorithm_named(algorithm), buffers == "registered", bytes, rounds);
    }
    if (what == "traffic") {
      words >> algorithm >> bytes;
      return traffic(algorithm_named(algorithm), bytes);
    }
    if (what == "exchange") {
      words >> bytes >> rounds;
      return exchange(bytes, rounds);
    }
    if (what == "barrier") {
      words >> rounds;
      return text_of(time_rounds(
          rounds, [] {}, [this] { comm_.barrier(); }));
    }
    words >> bytes;
    if (what == "combine" || what == "copy") return stream(what == "combine", bytes);
    throw UsageError("no such command: " + command);
  }

  static CallOptions options_for(Algorithm algorithm) {
    CallOptions options;
    options.algorithm = algorithm;
    options.ordered = algorithm == Algorithm::kAuto;  // a forced one may add in its own order
    return options;
  }

  template <typename Prepare, typename Body>
  std::vector<double> time_rounds(int rounds, Prepare prepare, Body body) {
    std::vector<double> us;
    for (int i = 0; i < rounds + kWorkerWarmUps; ++i) {
      prepare();
      comm_.barrier();
      const Clock::time_point start = Clock::now();
      body();
      const double time = microseconds_since(start);
      if (i >= kWorkerWarmUps) us.push_back(time);
    }
    return us;
  }

  static std::string text_of(const std::vector<double>& us) {
    std::string text;
    for (const double value : us) text += fmt::format(" {:.3f}", value);
    return text;
  }

  std::string measure(Operation operation, Algorithm algorithm, bool registered, size_t bytes, int rounds) {
    const size_t p = static_cast<size_t>(comm_.size()), count = bytes / sizeof(float);
    const size_t block = std::max<size_t>(count / p, 1);
    const float own = operation == Operation::kBroadcast && comm_.rank() != 0 ? 0.f : 1.f;
    float expected = 1;
    std::vector<double> us;
    const auto run = [&](size_t in_count, size_t out_count, auto body) {
      const Operands operands(comm_, in_count, out_count, registered);
      us = time_rounds(
          rounds, [&] { operands.fill(own); }, [&] { body(operands); });
      if (const float value = operands.check(expected); value != expected) {
        throw UsageError(
            fmt::format("{} of {} bytes gave {} where {} is right", name_of(operation), bytes, value, expected));
      }
    };
    switch (operation) {
      case Operation::kAllReduce: {
        expected = static_cast<float>(p);
        const CallOptions options = options_for(algorithm);
        run(count, 0, [&](const Operands& o) { comm_.all_reduce(o.in(), ReduceOp::kSum, options); });
        if (algorithm == Algorithm::kAuto) algorithm = comm_.choose(bytes);
        break;
      }
      case Operation::kReduceScatter:
        expected = static_cast<float>(p);
        run(block * p, block, [&](const Operands& o) { comm_.reduce_scatter(o.in(), o.out(), ReduceOp::kSum); });
        break;
      case Operation::kAllGather:
        run(block, block * p, [&](const Operands& o) { comm_.all_gather(o.in(), o.out()); });
        break;
      case Operation::kBroadcast:
        run(count, 0, [&](const Operands& o) { comm_.broadcast(o.in(), 0); });
        break;
      case Operation::kAllToAll:
        run(block * p, block * p, [&](const Operands& o) { comm_.all_to_all(o.in(), o.out()); });
        break;
    }
    return fmt::format(" {}{}", name_of(algorithm), text_of(us));
  }

  std::string traffic(Algorithm algorithm, size_t bytes) {
    const Operands operands(comm_, bytes / sizeof(float), 0, true);
    const CallOptions options = options_for(algorithm);
    comm_.all_reduce(operands.in(), ReduceOp::kSum, options);  // connections are opened on first use
    const Traffic before = comm_.traffic();
    comm_.all_reduce(operands.in(), ReduceOp::kSum, options);
    const Traffic after = comm_.traffic();
    const std::vector<int64_t> mine = {static_cast<int64_t>(after.messages_sent - before.messages_sent),
                                       static_cast<int64_t>(after.bytes_sent - before.bytes_sent),
                                       static_cast<int64_t>(after.messages_received - before.messages_received),
                                       static_cast<int64_t>(after.bytes_received - before.bytes_received),
                                       static_cast<int64_t>(after.rounds - before.rounds)};
    std::vector<int64_t> all(comm_.rank() == 0 ? mine.size() * static_cast<size_t>(comm_.size()) : 0);
    comm_.gather(mine, all, 0);
    std::string text;
    for (const int64_t value : all) text += fmt::format(" {}", value);
    return text;
  }

  /// A step of a ring: every rank sends to its right while it receives from its left.
  std::string exchange(size_t bytes, int rounds) {
    const int p = comm_.size(), steps = bytes < (size_t{1} << 20) ? 10 : 2;
    const Operands operands(comm_, bytes / sizeof(float), bytes / sizeof(float), true);
    operands.fill(1);
    std::vector<double> us = time_rounds(
        rounds, [] {},
        [&] {
          for (int step = 0; step < steps; ++step) {
            comm_.send_recv(operands.in(), (comm_.rank() + 1) % p, operands.out(), (comm_.rank() + p - 1) % p);
          }
        });
    for (double& value : us) value /= steps;
    return text_of(us);
  }

  /// Adding or copying vectors, on all ranks at once: they share the memory, and perhaps the cores.
  std::string stream(bool combines, size_t bytes) {
    const size_t count = bytes / sizeof(float), repeats = std::max<size_t>(1, (size_t{16} << 20) / bytes);
    std::vector<float> a(count, 1.f), b(count, 1.f), out(count);
    std::vector<double> us = time_rounds(
        5, [] {},
        [&] {
          for (size_t i = 0; i < repeats; ++i) {
            if (combines) {
              combine(ReduceOp::kSum, DataType::kFloat, out.data(), a.data(), b.data(), count);
            } else {
              copy_bytes(out.data(), a.data(), bytes);
            }
          }
        });
    for (double& value : us) value /= static_cast<double>(repeats);
    return text_of(us);
  }

  Communicator& comm_;
  std::istream& commands_;
  std::ostream& answers_;
};

/// Binds as mpirun does. Left to the scheduler, two ranks that wake each other may share a core, and then every
/// meeting takes the time of a spin.
void bind_to_core(const World& world) {
  cpu_set_t all, one;
  if (sched_getaffinity(0, sizeof all, &all) != 0 || world.size() > CPU_COUNT(&all)) return;
  int core = -1;
  for (int i = 0; i <= world.rank(); ++i) {
    do ++core;
    while (!CPU_ISSET(core, &all));
  }
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  sched_setaffinity(0, sizeof one, &one);
}

}  // namespace

void run_comm_worker(int threads, bool bind, std::istream& commands, std::ostream& answers) {
  WorldOptions options;
  options.call_timeout = std::chrono::minutes(20);
  const auto serve = [&](World& world) {
    if (bind) bind_to_core(world);
    if (world.rank() == 0) answers << "ready " << world.transport() << std::endl;
    Worker(world, commands, answers).serve();
    world.leave();
  };
  if (threads > 0) return run_as_threads(threads, serve, options);
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // under mpirun, which cannot see to it when it is killed itself
  World world = World::join(options);
  serve(world);
}

}  // namespace trireme::measure
