// Synchronous rounds through real sockets: the bits of one machine, for any number of workers and servers.
#include <gtest/gtest.h>

#include "trireme/optimizer/kernels.h"
#include "trireme/server/server_test_util.h"

namespace trireme::server {
namespace {

using namespace testing;

/// Trains `num_steps` and gives every worker's last weights.
std::vector<Weights> train(const Group& group, uint64_t num_steps) {
  std::vector<Weights> all(static_cast<size_t>(group.settings.num_workers));
  group.run([&](Worker& worker, int w) {
    Weights weights;
    std::vector<Pending> pending;
    for (const Key& key : group.keys) {
      weights[key.name] = random_values(key.count, key.count);
      if (w == 0) worker.init(key.name, weights[key.name]).wait();
    }
    const LeafSchedule schedule = schedule_leaves(group.settings.leaves(), group.settings.leaves_of(w));
    for (uint64_t clock = 0; clock <= num_steps; ++clock) {
      for (const Key& key : group.keys) {
        pending.push_back(worker.pull(key.name, weights[key.name], {.clock = clock}));
      }
      for (Pending& p : pending) p.wait();
      pending.clear();
      if (clock == num_steps) break;
      std::vector<std::vector<std::vector<float>>> slots(group.keys.size());
      uint32_t priority = 0;
      for (size_t k = 0; k < group.keys.size(); ++k) {
        const Key& key = group.keys[k];
        slots[k].resize(static_cast<size_t>(schedule.num_slots));
        for (const LeafStep& step : schedule.steps) {
          slots[k][static_cast<size_t>(step.slot)] = gradient_of(key, clock, step.leaf);
          for (const Addition& a : step.additions) {
            auto& into = slots[k][static_cast<size_t>(a.into)];
            for (size_t i = 0; i < into.size(); ++i) into[i] += slots[k][static_cast<size_t>(a.from)][i];
          }
        }
        std::vector<PartialGradient> partials;
        for (size_t i = 0; i < schedule.partials.size(); ++i) partials.push_back({schedule.partials[i], slots[k][i]});
        const PushOptions options{
            .clock = clock, .lr = 0.1 / static_cast<double>(clock + 1), .factor = 0.25, .priority = priority++};
        pending.push_back(worker.push_partials(key.name, partials, options));
      }
      for (Pending& p : pending) p.wait();
      pending.clear();
    }
    all[static_cast<size_t>(w)] = std::move(weights);
  });
  return all;
}

void expect_reference(const Group& group, uint64_t num_steps, const std::vector<Weights>& all) {
  Reference reference(group.settings, group.keys);
  for (uint64_t clock = 0; clock < num_steps; ++clock) {
    reference.step(clock, 0.1 / static_cast<double>(clock + 1), 0.25);
  }
  for (const Weights& weights : all) EXPECT_TRUE(weights == reference.weights);
}

const std::vector<Key> kKeys = {{"embedding", 20'011, 0, true}, {"a", 1, 0, false},    {"b", 4096, 0, true},
                                {"c", 4097, 0, false},          {"d", 9'999, 0, true}, {"head", 77, 0, true}};

TEST(Synchronous, TwoWorkersAndOneServerSumAsOneMachine) {
  Group group;
  group.settings.num_workers = 2;
  group.settings.piece_elements = 4096;
  group.keys = kKeys;
  group.start(1);
  expect_reference(group, 3, train(group, 3));
}

TEST(Synchronous, AllNumbersOfWorkersAndServersGiveTheBitsOfOne) {
  for (int workers = 1; workers <= 5; ++workers) {
    for (int servers = 1; servers <= 4; ++servers) {
      Group group;
      group.settings.num_workers = workers;
      group.settings.num_leaves = servers % 2 == 0 ? 12 : 0;
      group.settings.piece_elements = 4096 * static_cast<size_t>(servers);
      group.settings.rule.kind = workers % 2 == 0 ? OptimizerKind::kAdamW : OptimizerKind::kSgd;
      group.settings.rule.momentum = workers == 3 ? 0.9 : 0;
      group.settings.rule.weight_decay = 0.01;
      group.settings.replicate = servers >= 2 && workers <= 3;
      group.shared_memory = workers != 2;
      group.keys = kKeys;
      group.start(servers);
      SCOPED_TRACE(::testing::Message() << workers << " workers, " << servers << " servers");
      expect_reference(group, 3, train(group, 3));
    }
  }
}

}  // namespace
}  // namespace trireme::server
