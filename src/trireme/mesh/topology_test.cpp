// Hosts and local ranks, and which topologies the two-level reduction order can use.
#include "trireme/mesh/topology.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme {
namespace {

using Ranks = std::vector<int>;

TEST(Topology, LocalRanks) {
  const Topology topology({0, 0, 1, 0, 1});
  EXPECT_EQ(topology.num_ranks(), 5);
  EXPECT_EQ(topology.num_hosts(), 2);
  EXPECT_EQ(topology.ranks_of_host(0), (Ranks{0, 1, 3}));
  EXPECT_EQ(topology.ranks_of_host(1), (Ranks{2, 4}));
  EXPECT_EQ(topology.local_rank(3), 2);
  EXPECT_EQ(topology.local_size(3), 3);
  EXPECT_EQ(topology.local_rank(4), 1);
  EXPECT_TRUE(topology.same_host(0, 3));
  EXPECT_FALSE(topology.same_host(0, 2));
}

TEST(Topology, Refused) {
  EXPECT_THROW(Topology({0, -1}), UsageError);
  EXPECT_THROW(Topology({0, 2, 2}), UsageError);
  EXPECT_THROW(Topology({1, 1}), UsageError);
  EXPECT_THROW(Topology({0, 2'000'000'000}), UsageError);
  EXPECT_THROW(Topology::uniform(0, 4), UsageError);
  EXPECT_THROW(Topology::one_host(2).host_of(2), UsageError);
  EXPECT_THROW(Topology::one_host(2).local_rank(-1), UsageError);
  EXPECT_THROW(Topology::one_host(2).ranks_of_host(1), UsageError);
}

TEST(Topology, FromNames) {
  const std::vector<std::string> names{"b", "b", "a", "a"};
  EXPECT_EQ(Topology::from_names(names), Topology::uniform(2, 2));
}

TEST(Topology, OfGroup) {
  const Topology all = Topology::uniform(3, 4);
  EXPECT_EQ(all.of_group(Ranks{8, 9, 4, 5}), Topology({0, 0, 1, 1}));
  EXPECT_EQ(all.of_group(Ranks{0, 4, 8}), Topology({0, 1, 2}));
  EXPECT_THROW(all.of_group(Ranks{12}), UsageError);
}

TEST(Topology, Aligned) {
  EXPECT_TRUE(Topology().is_aligned());
  EXPECT_TRUE(Topology::one_host(3).is_aligned());
  EXPECT_TRUE(Topology::uniform(3, 4).is_aligned());
  EXPECT_TRUE(Topology::uniform(5, 1).is_aligned());
  EXPECT_TRUE(Topology({0, 0, 0, 0, 1, 1, 1}).is_aligned());
  EXPECT_TRUE(Topology({1, 1, 0, 0, 2}).is_aligned());   // the numbers of the hosts do not matter
  EXPECT_FALSE(Topology({0, 1, 0, 1}).is_aligned());     // not consecutive
  EXPECT_FALSE(Topology({0, 0, 1, 1, 1}).is_aligned());  // the last has more
  EXPECT_FALSE(Topology({0, 0, 1, 2, 2}).is_aligned());  // a middle one has fewer
  EXPECT_FALSE(Topology::uniform(2, 3).is_aligned());    // not a power of two
}

TEST(Topology, Print) {
  EXPECT_EQ(Topology().to_string(), "0 hosts, 0 ranks");
  EXPECT_EQ(Topology::one_host(1).to_string(), "1 host, 1 rank");
  EXPECT_EQ(Topology::one_host(4).to_string(), "1 host, 4 ranks");
  EXPECT_EQ(Topology::uniform(2, 4).to_string(), "2 hosts × 4 ranks");
  EXPECT_EQ(Topology({0, 0, 0, 0, 1, 1, 1}).to_string(), "2 hosts: 0-3 | 4-6");
  EXPECT_EQ(Topology({0, 0, 1, 0}).to_string(), "2 hosts: 0-1, 3 | 2");
}

}  // namespace
}  // namespace trireme
