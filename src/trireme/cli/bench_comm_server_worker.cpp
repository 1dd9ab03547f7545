#include "trireme/cli/bench_comm_server_worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>

#include "trireme/base/error.h"
#include "trireme/observe/memory.h"
#include "trireme/server/job.h"
#include "trireme/server/worker.h"

namespace trireme::cli {
namespace {

constexpr int kServerWarmUps = 2;
constexpr size_t kLayerElements = 256 * 1024;

/// The kernel forgets the most that this process has had.
void reset_peak() { std::ofstream("/proc/self/clear_refs") << "5"; }

/// Members of ServerPoint, for sending and for text.
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

}  // namespace

ServerPoint measure_servers(Communicator& comm, int num_servers, uint64_t bytes, int rounds) {
  const server::ServersOfJob servers = server::start_servers(comm, num_servers);
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

std::string to_line(const ServerPoint& point) {
  ServerPoint copy = point;
  std::string line;
  for (const double* member : members_of(copy)) line += fmt::format(" {:.6g}", *member);
  return line;
}

ServerPoint parse_server_point(const std::string& line) {
  ServerPoint point;
  std::istringstream words(line);
  for (double* member : members_of(point)) {
    if (!(words >> *member)) throw Error("a rank of the benchmark answers with too little: " + line);
  }
  return point;
}

}  // namespace trireme::cli
