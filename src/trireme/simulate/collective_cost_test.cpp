#include "trireme/simulate/collective_cost.h"

#include <gtest/gtest.h>

#include "trireme/simulate/simulate_test_util.h"

namespace trireme {
namespace {

TEST(RankGroup, KnowsItsHosts) {
  const Cluster cluster = find_cluster("a100-80gb");
  EXPECT_EQ(group_on(cluster, 8, 1).hosts, 1);
  EXPECT_EQ(group_on(cluster, 8, 1).local, 8);
  EXPECT_EQ(group_on(cluster, 32, 1).hosts, 4);
  EXPECT_EQ(group_on(cluster, 32, 8).hosts, 32);
  EXPECT_EQ(group_on(cluster, 4, 4).hosts, 2);
  EXPECT_EQ(group_on(cluster, 4, 4).local, 2);
  EXPECT_EQ(group_on(cluster, 1, 1).hosts, 1);
}

TEST(Collectives, ARingMovesTwoVectors) {
  Cluster cluster = find_cluster("a100-80gb");
  cluster.inside = {.bandwidth = 100e9, .efficiency = 1, .latency_us = 0};
  const RankGroup group = group_on(cluster, 8, 1);
  EXPECT_NEAR(collective_seconds(CollectiveKind::kAllReduce, 1e9, group, cluster), 2 * 7.0 / 8 / 100, 1e-9);
  EXPECT_NEAR(collective_seconds(CollectiveKind::kAllGather, 1e9, group, cluster), 7.0 / 8 / 100, 1e-9);
  EXPECT_EQ(collective_seconds(CollectiveKind::kAllReduce, 1e9, group_on(cluster, 1, 1), cluster), 0);
}

TEST(Collectives, GroupsThatShareANetworkShareItsSpeed) {
  Cluster cluster = find_cluster("a100-80gb");
  cluster.between = {.bandwidth = 80e9, .efficiency = 1, .latency_us = 0};
  cluster.inside.latency_us = 0;
  // Eight groups of one rank per host each get an eighth of the network; one group of all ranks gets all of it.
  const double eighth = collective_seconds(CollectiveKind::kAllGather, 1e9, group_on(cluster, 4, 8), cluster);
  EXPECT_NEAR(eighth, 3.0 / 4 / 10, 1e-9);
  const double whole = collective_seconds(CollectiveKind::kAllGather, 1e9, group_on(cluster, 32, 1), cluster);
  EXPECT_NEAR(whole, 3.0 / 4 / 80, 1e-9);
}

TEST(Collectives, InsideAHostIsCheaperThanAcross) {
  for (const Cluster& cluster : cluster_presets()) {
    if (cluster.num_hosts == 1) continue;
    SCOPED_TRACE(cluster.name);
    for (const double bytes : {1e3, 1e6, 1e9}) {
      for (const int64_t size : {2, 4}) {
        const double inside =
            collective_seconds(CollectiveKind::kAllReduce, bytes, group_on(cluster, size, 1), cluster);
        const double across = collective_seconds(CollectiveKind::kAllReduce, bytes,
                                                 group_on(cluster, size, cluster.devices_per_host), cluster);
        EXPECT_LT(inside, across) << size << " ranks, " << bytes << " bytes";
      }
    }
    EXPECT_LT(message_seconds(1e7, 1, cluster), message_seconds(1e7, cluster.devices_per_host, cluster));
  }
}

TEST(Collectives, AreThePublishedOnesOfNccl) {
  for (const PublishedAllReduce& row : published_all_reduces()) {
    EXPECT_NEAR(predict(row) / row.microseconds, 1, row.ranks == 8 ? 0.06 : 0.1) << row.name << ", " << row.mib;
  }
}

}  // namespace
}  // namespace trireme
