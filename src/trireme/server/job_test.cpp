// Servers on the ranks of a job, beside an all-reduce of the same gradients: the same bits.
#include "trireme/server/job.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/comm/world.h"
#include "trireme/server/server_test_util.h"

namespace trireme::server {
namespace {

using namespace testing;

TEST(ServersOfJob, GiveTheBitsOfAnAllReduce) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const int servers : {1, 2, 5}) {
      run_as_threads(ranks, [servers](World& world) {
        const std::vector<Key> keys = {{"a", 30'001, 0, true}, {"b", 4'097, 0, true}};
        ServerOptions server_options;
        server_options.replicate = servers > 1;
        const ServersOfJob job = start_servers(world.comm(), servers, server_options);
        EXPECT_EQ(job.addresses.size(), static_cast<size_t>(servers));
        WorkerOptions options;
        options.worker = world.rank();
        options.settings.num_workers = world.size();
        options.settings.replicate = servers > 1;
        options.settings.piece_elements = 8192;
        options.settings.rule.kind = OptimizerKind::kAdamW;
        options.keys = keys;
        options.servers = job.addresses;
        options.credentials = job.credentials;
        Worker worker(options);
        for (const Key& key : keys) {
          std::vector<float> weight = random_values(key.count, 1), first(key.count), second(key.count),
                             pulled(key.count);
          if (world.rank() == world.size() - 1) worker.init(key.name, weight).wait();
          for (uint64_t clock = 0; clock < 3; ++clock) {
            worker.pull(key.name, pulled, {.clock = clock}).wait();
            EXPECT_TRUE(pulled == weight);
            std::vector<float> gradient = gradient_of(key, clock, world.rank());
            worker.push(key.name, gradient, {.clock = clock, .lr = 0.1, .factor = 0.5}).wait();
            world.comm().all_reduce(gradient);
            options.settings.rule.apply({.factor = 0.5, .lr = 0.1, .step = static_cast<int64_t>(clock)}, weight.data(),
                                        gradient.data(), first.data(), second.data(), key.count);
          }
        }
        worker.close();
        world.comm().barrier();  // servers end with the rank that has them
      });
    }
  }
}

TEST(ServersOfJob, BadInput) {
  run_as_threads(1, [](World& world) {
    EXPECT_THROW(start_servers(world.comm(), 0), UsageError);
    ServerOptions options;
    options.bind = "0.0.0.0";
    EXPECT_THROW(start_servers(world.comm(), 1, options), UsageError);
  });
}

}  // namespace
}  // namespace trireme::server
