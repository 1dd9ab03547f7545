// What parameter servers cost beside a ring, and why they are a bottleneck. Some ranks serve, the others train on
// nothing: a step pushes all gradients and pulls all weights.
//
//   trireme launch --nproc-per-node 6 -- build/release/bin/bench_servers 2 16MiB [ROUNDS]      4 workers, 2 servers
//
// Bytes are of one step. Queueing: of a pushed piece, from sending to its acknowledgement, without the server's own
// work on it. Memory: what a worker adds at its peak, with the whole model and with one layer at a time.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/units.h"
#include "trireme/comm/world.h"
#include "trireme/observe/memory.h"
#include "trireme/server/job.h"
#include "trireme/server/worker.h"

namespace trireme {
namespace {

constexpr int kServerWarmUps = 2;
constexpr size_t kLayerElements = 256 * 1024;

/// The kernel forgets the most that this process has had.
void reset_peak() { std::ofstream("/proc/self/clear_refs") << "5"; }

/// What one number of servers and workers costs.
struct ServerPoint {
  double us = 0;                     ///< of a step: median over steps, of the slowest worker
  double ring_us = 0;                ///< of a ring all-reduce of the same bytes between the workers
  double worker_bytes = 0;           ///< sent and received by a worker
  double server_bytes = 0;           ///< in and out of the busiest server
  double ring_bytes = 0;             ///< sent and received by a worker in the ring
  double queue_us = 0;               ///< of a piece that is pushed, between sending and acknowledgement, not served
  double blocked = 0;                ///< part of the time that workers spend waiting
  double busy = 0;                   ///< part of the time that the busiest server works
  double memory_bytes = 0;           ///< a worker that holds the model adds this much at its peak
  double memory_no_model_bytes = 0;  ///< the same, of one that has a layer at a time
};

std::vector<double*> members_of(ServerPoint& p) {
  return {&p.us,       &p.ring_us, &p.worker_bytes, &p.server_bytes, &p.ring_bytes,
          &p.queue_us, &p.blocked, &p.busy,         &p.memory_bytes, &p.memory_no_model_bytes};
}

struct ServerRounds {
  control::Credentials credentials;
  std::vector<SocketAddress> servers;
  std::vector<server::Key> keys;
  server::Settings settings;
};

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

class BenchWorker {
 public:
  BenchWorker(Communicator& workers, const ServerRounds& job) : workers_(workers), job_(job) {
    before_ = process_memory().now_bytes;
    reset_peak();
    server::WorkerOptions options;
    options.worker = workers.rank();
    options.settings = job.settings;
    options.keys = job.keys;
    options.servers = job.servers;
    options.credentials = job.credentials;
    options.timeout = std::chrono::minutes(5);
    worker_.emplace(std::move(options));
    layer_.resize(kLayerElements);
    if (workers.rank() == 0) {
      for (const server::Key& key : job.keys) {
        worker_->init(key.name, std::span(layer_).first(key.count)).wait();
      }
    }
  }

  /// A layer at a time: pulled, used, its gradient pushed, forgotten.
  void step_without_model() {
    for (const server::Key& key : job_.keys) {
      const std::span<float> layer = std::span(layer_).first(key.count);
      worker_->pull(key.name, layer, {.clock = clock_}).wait();
      worker_->push(key.name, layer, {.clock = clock_}).wait();
    }
    ++clock_;
  }

  void measure(ServerPoint& point, int rounds) {
    step_without_model();
    point.memory_no_model_bytes = peak();
    std::vector<std::vector<float>> weights, gradients;
    for (const server::Key& key : job_.keys) {
      weights.emplace_back(key.count, 0.f);
      gradients.emplace_back(key.count, 1.f);
    }
    std::vector<double> times;
    server::WorkerStats start{};
    double total = 0;
    for (int round = 0; round < rounds + kServerWarmUps; ++round) {
      workers_.barrier();
      if (round == kServerWarmUps) start = worker_->stats();
      const auto begin = Clock::now();
      std::vector<server::Pending> pending;
      for (size_t k = weights.size(); k-- > 0;) {  // as a backward pass makes them: the last layer first
        pending.push_back(
            worker_->push(job_.keys[k].name, gradients[k], {.clock = clock_, .priority = static_cast<uint32_t>(k)}));
      }
      ++clock_;
      for (size_t k = 0; k < weights.size(); ++k) {
        pending.push_back(
            worker_->pull(job_.keys[k].name, weights[k], {.clock = clock_, .priority = static_cast<uint32_t>(k)}));
      }
      for (server::Pending& p : pending) p.wait();
      if (round < kServerWarmUps) continue;
      times.push_back(1e6 * seconds_since(begin));
      total += times.back();
    }
    point.memory_bytes = peak();
    const server::WorkerStats end = worker_->stats();
    std::sort(times.begin(), times.end());
    point.us = times[times.size() / 2];
    point.worker_bytes =
        static_cast<double>(end.bytes_sent - start.bytes_sent + end.bytes_received - start.bytes_received) / rounds;
    const double pushes = static_cast<double>(std::max<uint64_t>(1, end.num_pushes - start.num_pushes));
    point.queue_us =
        static_cast<double>(end.push_ns - start.push_ns - (end.service_ns - start.service_ns)) / pushes / 1e3;
    point.blocked = static_cast<double>(end.blocked_ns - start.blocked_ns) / 1e3 / total;
    worker_->close();
  }

 private:
  double peak() const {
    const uint64_t now = process_memory().peak_bytes;
    return static_cast<double>(now - std::min(now, before_));
  }

  Communicator& workers_;
  const ServerRounds& job_;
  uint64_t before_ = 0;
  std::optional<server::Worker> worker_;
  std::vector<float> layer_;
  uint64_t clock_ = 0;
};

void measure_ring(Communicator& workers, ServerPoint& point, uint64_t bytes, int rounds) {
  auto data = workers.allocate<float>(bytes / sizeof(float));
  CallOptions options;
  options.algorithm = Algorithm::kRing;
  options.ordered = false;
  std::vector<double> times;
  Traffic start;
  for (int round = 0; round < rounds + kServerWarmUps; ++round) {
    workers.barrier();
    if (round == kServerWarmUps) start = workers.traffic();
    const auto begin = Clock::now();
    workers.all_reduce(data, ReduceOp::kSum, options);
    if (round >= kServerWarmUps) times.push_back(1e6 * seconds_since(begin));
  }
  const Traffic end = workers.traffic();
  std::sort(times.begin(), times.end());
  point.ring_us = times[times.size() / 2];
  point.ring_bytes =
      static_cast<double>(end.bytes_sent - start.bytes_sent + end.bytes_received - start.bytes_received) / rounds;
}

/// All ranks of `comm` call it: the first `num_servers` serve, the others work. Every rank gets the result.
ServerPoint measure_servers(Communicator& comm, int num_servers, uint64_t bytes, int rounds) {
  static const server::ServerOptions kDefault;
  const server::ServersOfJob servers = server::start_servers(comm, num_servers, kDefault);
  const bool serves = !servers.own.empty();
  ServerRounds job{servers.credentials, servers.addresses, {}, {}};
  job.settings.num_workers = comm.size() - num_servers;
  for (size_t first = 0, count = bytes / sizeof(float); first < count; first += kLayerElements) {
    job.keys.push_back({fmt::format("layer {}", job.keys.size()), std::min(kLayerElements, count - first), 0, true});
  }
  const std::unique_ptr<Communicator> workers = comm.split(serves ? -1 : 0);
  ServerPoint point;
  const auto begin = Clock::now();
  if (workers) BenchWorker(*workers, job).measure(point, rounds);
  comm.barrier({.timeout = std::chrono::minutes(20)});
  if (serves) {
    const double seconds = seconds_since(begin);
    servers.own[0]->stop();  // what it has answered last is then counted
    const server::ServerStats stats = servers.own[0]->stats();
    point.busy = static_cast<double>(stats.busy_ns) / 1e9 / seconds;
    // Pieces that pass through shared memory are not on the socket: count what was applied and answered.
    const double piece = static_cast<double>(bytes) / static_cast<double>(job.keys.size());
    const double steps = rounds + kServerWarmUps + 1;
    point.server_bytes = piece * static_cast<double>(stats.shards.num_pushes + stats.shards.num_pulls) / steps;
  }
  if (workers) measure_ring(*workers, point, bytes, rounds);
  // The slowest, the busiest, the largest: a maximum for each number.
  std::vector<double> mine;
  for (const double* member : members_of(point)) mine.push_back(*member);
  comm.all_reduce(mine, ReduceOp::kMax);
  size_t i = 0;
  for (double* member : members_of(point)) *member = mine[i++];
  return point;
}

void print(const ServerPoint& p, int workers, int servers, uint64_t bytes) {
  const auto bytes_text = [](double value) { return format_bytes(static_cast<uint64_t>(value)); };
  fmt::print("{} of weights, {} workers, {} servers\n", format_bytes(bytes), workers, servers);
  fmt::print(
      "  step {:.0f} µs, {:.1f} times the ring's {:.0f} µs; workers wait {:.0f} % of it, a server works {:.0f} %\n",
      p.us, p.ring_us > 0 ? p.us / p.ring_us : 0, p.ring_us, 100 * p.blocked, 100 * p.busy);
  fmt::print("  bytes: busiest server {}, a worker {}, a rank of the ring {}\n", bytes_text(p.server_bytes),
             bytes_text(p.worker_bytes), bytes_text(p.ring_bytes));
  fmt::print("  queueing of a piece {:.0f} µs; memory of a worker {}, with one layer at a time {}\n", p.queue_us,
             bytes_text(p.memory_bytes), bytes_text(p.memory_no_model_bytes));
}

int run(const std::vector<std::string>& words) {
  if (words.size() < 2 || words.size() > 3)
    throw UsageError("what to measure is missing", "bench_servers SERVERS SIZE");
  World world = World::join();
  const int servers = std::stoi(words[0]);
  const uint64_t bytes = parse_bytes(words[1]);
  const int rounds = words.size() == 3 ? std::stoi(words[2]) : 20;
  if (servers < 1 || servers >= world.size()) {
    throw UsageError(fmt::format("{} of {} ranks cannot all serve", servers, world.size()), "leave one to work");
  }
  const ServerPoint point = measure_servers(world.comm(), servers, bytes, rounds);
  if (world.rank() == 0) print(point, world.size() - servers, servers, bytes);
  return 0;
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  try {
    return trireme::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 2;
  }
}
