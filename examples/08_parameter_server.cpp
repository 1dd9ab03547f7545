// Parameter servers: workers pull weights and push gradients, servers sum and update, and one of them dies on the way.
//
// It teaches how servers and workers are started, what a step looks like, and what replication is for. Everything runs
// as threads of one process; servers and workers in processes of their own do the same with the addresses of the
// others.
//
//   ./example_08_parameter_server
//
// prints the loss of a linear regression, and that nothing was lost:
//
//   step  0: loss 81.307
//   step 20: loss 2.014 (server 1 is killed)
//   step 40: loss 0.089
//   …
//   every worker has the same weights, 1 shard was taken over
#include <algorithm>
#include <cstdio>
#include <memory>
#include <thread>
#include <vector>

#include "trireme/trireme.h"

using namespace trireme;
using namespace trireme::server;

namespace {

constexpr int kWorkers = 3, kServers = 2, kSteps = 100, kPoints = 32;
constexpr int kFeatures = 6000;  // in pieces of 4096: two servers share them

const std::vector<Key> kKeys = {{.name = "weight", .count = kFeatures}, {.name = "bias", .count = 1}};

/// One worker's share of a linear regression: y = Σ x + 1 + noise over sparse x.
class Task {
 public:
  explicit Task(int worker) {
    const Philox random(7, "points", static_cast<uint64_t>(worker));
    for (uint64_t p = 0; p < kPoints; ++p) {
      std::vector<size_t> ones;
      for (uint64_t i = 0; i < 8; ++i) ones.push_back(random.below(kFeatures, p * 8 + i));
      points_.push_back(std::move(ones));
      noise_.push_back(0.1f * random.normal(p));
    }
  }
  /// Loss at the weights, and its gradient.
  double gradient(const std::vector<float>& weight, float bias, std::vector<float>& by_weight, float& by_bias) const {
    std::fill(by_weight.begin(), by_weight.end(), 0.f);
    by_bias = 0;
    double loss = 0;
    for (size_t p = 0; p < points_.size(); ++p) {
      float error = bias - (8 + 1 + noise_[p]);
      for (const size_t feature : points_[p]) error += weight[feature];
      loss += error * error / kPoints;
      for (const size_t feature : points_[p]) by_weight[feature] += 2 * error / kPoints;
      by_bias += 2 * error / kPoints;
    }
    return loss;
  }

 private:
  std::vector<std::vector<size_t>> points_;
  std::vector<float> noise_;
};

void work(WorkerOptions options, std::vector<float>& weight, std::vector<std::unique_ptr<Server>>& servers) {
  const int rank = options.worker;
  Worker worker(std::move(options));
  std::vector<float> bias(1), by_weight(kFeatures), by_bias(1);
  worker.init("weight", weight).wait();  // the first who says it is believed
  worker.init("bias", bias).wait();
  const Task task(rank);
  for (uint64_t clock = worker.clock(); clock < kSteps; ++clock) {
    Pending pulled = worker.pull("weight", weight, {.clock = clock});  // waits for the round before
    worker.pull("bias", bias, {.clock = clock}).wait();
    pulled.wait();
    const double loss = task.gradient(weight, bias[0], by_weight, by_bias[0]);
    // The last layer's gradient first, as a backward pass has it; the first layer's weights are needed first.
    Pending bias_pushed = worker.push("bias", by_bias, {.clock = clock, .lr = 0.5, .factor = 1.0 / kWorkers});
    Pending pushed = worker.push("weight", by_weight, {.clock = clock, .lr = 0.5, .factor = 1.0 / kWorkers});
    bias_pushed.wait();
    pushed.wait();  // acknowledged: from here on no single death can lose it
    if (rank == 0 && clock % 20 == 0) {
      std::printf("step %2d: loss %.3f%s\n", static_cast<int>(clock), loss, clock == 20 ? " (server 1 is killed)" : "");
    }
    if (rank == 0 && clock == 20) servers[1]->stop();
  }
  worker.pull("weight", weight, {.clock = kSteps}).wait();
  worker.close();
}

}  // namespace

int main() {
  try {
    ServerOptions server_options;
    server_options.credentials = {"a secret of this job", sha256("example")};
    server_options.replicate = true;
    auto servers = start_local_servers(kServers, server_options);

    WorkerOptions options;
    options.settings.num_workers = kWorkers;
    options.settings.replicate = true;
    options.settings.piece_elements = 4096;
    options.settings.rule.momentum = 0.9;  // workers hold no optimizer state
    options.keys = kKeys;
    options.servers = addresses_of(servers);
    options.credentials = server_options.credentials;

    std::vector<std::vector<float>> weights(kWorkers, std::vector<float>(kFeatures));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kWorkers; ++rank) {
      threads.emplace_back([&, rank] {
        WorkerOptions own = options;
        own.worker = rank;
        work(std::move(own), weights[static_cast<size_t>(rank)], servers);
      });
    }
    for (std::thread& thread : threads) thread.join();
    const bool same = weights[0] == weights[1] && weights[0] == weights[2];
    std::printf("%s, %d shard was taken over\n", same ? "every worker has the same weights" : "the weights differ",
                static_cast<int>(servers[0]->stats().num_takeovers));
    return same ? 0 : 1;
  } catch (const Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
