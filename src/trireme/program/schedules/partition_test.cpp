#include "trireme/program/schedules/partition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "trireme/base/error.h"

namespace trireme {
namespace {

/// Every way to cut.
std::vector<Partition> all_partitions(int num_layers, int num_stages) {
  if (num_stages == 1) return {{{0, num_layers}}};
  std::vector<Partition> all;
  for (int cut = num_stages - 1; cut < num_layers; ++cut) {
    for (Partition rest : all_partitions(cut, num_stages - 1)) {
      rest.push_back({cut, num_layers});
      all.push_back(std::move(rest));
    }
  }
  return all;
}

double memory_of(const PartitionProblem& problem, const Partition& stages) {
  double most = 0;
  for (size_t s = 0; s < stages.size(); ++s) {
    double bytes = 0;
    for (int i = stages[s].first; i < stages[s].last; ++i) {
      bytes += static_cast<double>(problem.bytes[size_t(i)]) +
               problem.in_flight[s] * static_cast<double>(problem.activation_bytes[size_t(i)]);
    }
    most = std::max(most, bytes);
  }
  return most;
}

std::vector<double> costs_of(const Partition& stages, const std::vector<double>& costs) {
  std::vector<double> sums;
  for (const LayerRange& range : stages) {
    sums.push_back(std::accumulate(costs.begin() + range.first, costs.begin() + range.last, 0.0));
  }
  return sums;
}

double slowest_stage(const Partition& stages, const std::vector<double>& costs) {
  const std::vector<double> sums = costs_of(stages, costs);
  return *std::max_element(sums.begin(), sums.end());
}

double squares(const Partition& stages, const std::vector<double>& costs) {
  const std::vector<double> sums = costs_of(stages, costs);
  return std::inner_product(sums.begin(), sums.end(), sums.begin(), 0.0);
}

TEST(Partition, RanksWithSeveralStagesHaveEqualShares) {
  // Embedding, six blocks, output; down two ranks and up again.
  const std::vector<double> costs{0, 1, 1, 1, 1, 1, 1, 0.1};
  const Partition stages = partition_over_ranks({.num_stages = 4, .costs = costs}, {0, 1, 1, 0});
  const std::vector<double> sums = costs_of(stages, costs);
  EXPECT_LE(*std::max_element(sums.begin(), sums.end()), 2.1);
  EXPECT_NEAR(sums[0] + sums[3], sums[1] + sums[2], 0.11);
  EXPECT_EQ(partition_over_ranks({.num_stages = 2, .costs = costs}, {0, 1}),
            partition({.num_stages = 2, .costs = costs}));
}

TEST(Partition, IsAsGoodAsTryingEverything) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 400; ++trial) {
    const int layers = 1 + static_cast<int>(random() % 11), stages = 1 + static_cast<int>(random() % size_t(layers));
    PartitionProblem problem{.num_stages = stages, .costs = {}};
    for (int i = 0; i < layers; ++i) {
      problem.costs.push_back(static_cast<double>(random() % 20));
      problem.bytes.push_back(random() % 50);
      problem.activation_bytes.push_back(random() % 10);
    }
    for (int s = 0; s < stages; ++s) problem.in_flight.push_back(stages - s);
    if (trial % 2 == 0) problem.limit_bytes = 1 + random() % 150;
    double best = -1, most_alike = -1;
    for (const Partition& stages_of : all_partitions(layers, stages)) {
      if (problem.limit_bytes > 0 && memory_of(problem, stages_of) > static_cast<double>(problem.limit_bytes)) continue;
      const double slowest = slowest_stage(stages_of, problem.costs), sum = squares(stages_of, problem.costs);
      if (best >= 0 && std::pair(slowest, sum) >= std::pair(best, most_alike)) continue;
      best = slowest;
      most_alike = sum;
    }
    if (best < 0) {
      EXPECT_THROW(partition(problem), UsageError);
      continue;
    }
    const Partition found = partition(problem);
    EXPECT_EQ(slowest_stage(found, problem.costs), best);
    EXPECT_EQ(squares(found, problem.costs), most_alike);
    EXPECT_EQ(partition_from_text(partition_to_text(found), layers), found);
  }
}

TEST(Partition, BalancesEqualLayers) {
  EXPECT_EQ(partition_to_text(partition({.num_stages = 3, .costs = std::vector<double>(12, 1)})), "0-3,4-7,8-11");
  EXPECT_EQ(partition_to_text(partition({.num_stages = 4, .costs = std::vector<double>(6, 1)})), "0-0,1-1,2-3,4-5");
  EXPECT_EQ(partition_to_text(partition({.num_stages = 2, .costs = {0, 0, 0}})), "0-0,1-2") << "costs may be 0";
}

TEST(Partition, FasterStagesGetMore) {
  const PartitionProblem problem{.num_stages = 3, .costs = std::vector<double>(8, 1.0), .speeds = {1, 2, 1}};
  EXPECT_EQ(partition_to_text(partition(problem)), "0-1,2-5,6-7");
  EXPECT_THROW(partition({.num_stages = 2, .costs = {1, 1}, .speeds = {1}}), UsageError);
}

TEST(Partition, ReadsBothSpellings) {
  EXPECT_EQ(partition_from_text("4,4,4", 12), partition_from_text("0-3,4-7, 8-11", 12));
  EXPECT_EQ(partition_from_text("4+4+4", 12), partition_from_text("0-3+4-7+8-11", 12));
  for (const char* bad : {"", "4,4", "4,4,5", "0-3,5-11", "0-3,4-12", "4,x", "3-0", "0-3,4-7,8-11,", "-1,13", "12,0",
                          "4;4;4", "4+4+", "+12", "99999999999"}) {
    EXPECT_THROW(partition_from_text(bad, 12), UsageError) << bad;
  }
}

TEST(Partition, RefusesWhatCannotBe) {
  EXPECT_THROW(partition({.num_stages = 3, .costs = {1, 1}}), UsageError);
  EXPECT_THROW(partition({.num_stages = 0, .costs = {1, 1}}), UsageError);
  EXPECT_THROW(partition({.num_stages = 1, .costs = {1, -1}}), UsageError);
  EXPECT_THROW(partition({.num_stages = 1, .costs = {1, std::nan("")}}), UsageError);
  EXPECT_THROW(partition({.num_stages = 1, .costs = {1, 1}, .bytes = {1}}), UsageError);
  try {
    partition({.num_stages = 2, .costs = {1, 1, 1}, .bytes = {4096, 4096, 4096}, .limit_bytes = 4096});
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("8 KiB"), std::string::npos) << "the least limit: " << error.what();
  }
}

}  // namespace
}  // namespace trireme
