// Servers and workers that end in the middle: nothing that was acknowledged is lost, and the others go on.
#include <gtest/gtest.h>

#include <atomic>

#include "trireme/base/error.h"
#include "trireme/server/server_test_util.h"

namespace trireme::server {
namespace {

using namespace testing;

void wait_for(const std::function<bool()>& condition, const char* what) {
  const Deadline deadline = Deadline::after(30s);
  while (!condition()) {
    ASSERT_FALSE(deadline.expired()) << what;
    std::this_thread::sleep_for(5ms);
  }
}

/// All shards have a primary, and all primaries a replica with everything.
bool is_replicated(const Group& group) {
  uint64_t primary = 0, replicated = 0;
  for (const auto& server : group.servers) {
    if (!server) return false;
    primary += server->stats().num_primary;
    replicated += server->stats().num_replicated;
  }
  return primary == group.servers.size() && replicated == primary;
}

class Takeover : public ::testing::TestWithParam<Mode> {};

TEST_P(Takeover, AKilledServerLosesNothingAndANewOneTakesItsPlace) {
  Group group;
  group.settings.mode = GetParam();
  group.settings.num_workers = 3;
  group.settings.replicate = true;
  group.settings.piece_elements = 4096;
  group.settings.rule.kind = GetParam() == Mode::kSynchronous ? OptimizerKind::kAdamW : OptimizerKind::kSgd;
  group.settings.staleness_bound = GetParam() == Mode::kBounded ? 2 : 0;
  group.keys = {{"a", 10'001, 0, true}, {"b", 5, 0, true}, {"c", 4'100, 0, true}};
  group.start(3);
  const std::vector<SocketAddress> addresses = addresses_of(group.servers);
  constexpr uint64_t kSteps = 120;
  std::atomic<uint64_t> slowest{0};
  std::atomic<bool> finished{false};
  std::vector<Weights> last(3);

  std::jthread killer([&] {
    for (int i = 0; i < 3; ++i) {
      while (slowest < 20u * static_cast<uint64_t>(i + 1) && !finished) std::this_thread::sleep_for(1ms);
      const auto victim = static_cast<size_t>((i * 2 + 1) % 3);
      group.servers[victim]->stop();
      if (i == 1) std::this_thread::sleep_for(300ms);
      ServerOptions options = group.server_options;
      options.index = static_cast<int>(victim);
      options.num_servers = 3;
      options.port = addresses[victim].port;
      auto fresh = std::make_unique<Server>(options);
      fresh->start(addresses);
      group.servers[victim] = std::move(fresh);
      wait_for([&] { return is_replicated(group); }, "no replication after a new server");
    }
  });
  std::vector<std::jthread> workers;
  std::vector<std::string> errors(3);
  const WorkerOptions base = [&] {
    WorkerOptions options = group.worker_options(0);
    options.servers = addresses;
    return options;
  }();
  for (int w = 0; w < 3; ++w) {
    workers.emplace_back([&, w] {
      try {
        WorkerOptions options = base;
        options.worker = w;
        Worker worker(options);
        Weights weights = Reference(group.settings, group.keys).weights;
        if (w == 0) {
          for (const Key& key : group.keys) worker.init(key.name, weights[key.name]).wait();
        }
        for (uint64_t clock = 0; clock <= kSteps; ++clock) {
          for (const Key& key : group.keys) worker.pull(key.name, weights[key.name], {.clock = clock}).wait();
          if (clock == kSteps) break;
          std::vector<Pending> pending;
          Weights gradients;
          for (const Key& key : group.keys) {
            // Sums of ones are exact in any order: in the modes without rounds, too, each push must count once.
            gradients[key.name] =
                GetParam() == Mode::kSynchronous ? gradient_of(key, clock, w) : std::vector<float>(key.count, 1.f);
            pending.push_back(
                worker.push(key.name, gradients[key.name],
                            {.clock = clock, .lr = GetParam() == Mode::kSynchronous ? 0.01 : 1.0, .factor = 1}));
          }
          pending.push_back(worker.finish_step(clock));
          for (Pending& p : pending) p.wait();
          if (w == 0) slowest = clock;
        }
        last[static_cast<size_t>(w)] = std::move(weights);
        worker.close();
      } catch (const std::exception& error) {
        errors[static_cast<size_t>(w)] = error.what();
      }
    });
  }
  workers.clear();
  finished = true;
  killer.join();
  for (const std::string& error : errors) EXPECT_EQ(error, "");

  Reference reference(group.settings, group.keys);
  if (GetParam() == Mode::kSynchronous) {
    for (uint64_t clock = 0; clock < kSteps; ++clock) reference.step(clock, 0.01, 1);
    for (const Weights& weights : last) EXPECT_TRUE(weights == reference.weights);
  } else {
    WorkerOptions options = base;
    Worker reader(options);
    for (const Key& key : group.keys) {
      std::vector<float> weight(key.count), expected = reference.weights[key.name];
      reader.pull(key.name, weight).wait();
      for (uint64_t n = 0; n < 3 * kSteps; ++n) {
        for (float& value : expected) value -= 1.f;
      }
      EXPECT_TRUE(weight == expected) << key.name << ": " << weight[0] << " " << expected[0];
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Of, Takeover, ::testing::Values(Mode::kSynchronous, Mode::kAsynchronous, Mode::kBounded),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST(Loss, WithoutReplicationTheServerIsNamed) {
  Group group;
  group.keys = {{"a", 10, 0, true}, {"b", 10, 0, true}};
  group.start(2);
  const std::string address = to_string(group.servers[1]->address());
  Worker worker(group.worker_options(0));
  const std::vector<float> ten(10);
  std::vector<float> into(10);
  worker.init("a", ten).wait();
  worker.init("b", ten).wait();
  group.servers[1]->stop();
  try {
    for (;;) {
      worker.pull("a", into).wait();
      worker.pull("b", into).wait();
    }
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("server 1 at " + address), std::string::npos) << text;
    EXPECT_NE(text.find("switch it on, or go on from a checkpoint"), std::string::npos) << text;
  }
}

TEST(Loss, OfBothServersOfAShardIsSaid) {
  Group group;
  group.settings.replicate = true;
  group.keys = {{"a", 10, 0, true}, {"b", 10, 0, true}};
  group.start(2);
  WorkerOptions options = group.worker_options(0);
  options.reconnect = 1s;
  Worker worker(options);
  const std::vector<float> ten(10);
  std::vector<float> into(10);
  worker.init("a", ten).wait();
  for (auto& server : group.servers) server->stop();
  try {
    for (;;) worker.pull("a", into).wait();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("both servers that had it are gone"), std::string::npos) << error.what();
  }
}

TEST(Loss, OfAWorkerClosesTheRoundWithTheOthers) {
  for (const int servers : {1, 2}) {
    Group group;
    group.settings.num_workers = 3;
    group.settings.replicate = servers == 2;
    group.server_options.worker_grace = 50ms;
    group.keys = {{"w", 100, 0, true}, {"v", 3, 0, true}};
    group.start(servers);
    std::vector<std::unique_ptr<Worker>> workers;
    for (int w = 0; w < 3; ++w) workers.push_back(std::make_unique<Worker>(group.worker_options(w)));
    const std::vector<float> zeros(100, 0.f), ones(100, 1.f), twos(100, 2.f);
    std::vector<float> weight(100);
    workers[0]->init("w", zeros).wait();
    const PushOptions first{.clock = 0, .lr = 1, .factor = 1.0 / 3};
    workers[0]->push("w", ones, first).wait();
    workers[1]->push("w", twos, first).wait();
    workers[2].reset();  // without a goodbye
    workers[0]->pull("w", weight, {.clock = 1}).wait();
    for (const float value : weight) ASSERT_FLOAT_EQ(value, -1.5f);
    // A replacement is told where the others are, and counts from there on.
    Worker replacement(group.worker_options(2));
    EXPECT_EQ(replacement.clock(), servers == 1 ? 0u : replacement.clock());  // "v" has seen no round
    const PushOptions second{.clock = 1, .lr = 1, .factor = 1.0 / 3};
    for (Worker* worker : {workers[0].get(), workers[1].get()}) worker->push("w", ones, second).wait();
    Pending waits = workers[0]->pull("w", weight, {.clock = 2});
    try {
      waits.wait(700ms);
      ADD_FAILURE() << "the round closed without the replacement";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("worker 2 (host "), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("has not pushed clock 1"), std::string::npos) << error.what();
    }
    replacement.push("w", ones, second).wait();
    waits.wait();
    for (const float value : weight) ASSERT_FLOAT_EQ(value, -2.5f);
  }
}

}  // namespace
}  // namespace trireme::server
