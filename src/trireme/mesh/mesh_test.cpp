// Ranks and coordinates, groups, parts of a mesh, and which meshes are refused.
#include "trireme/mesh/mesh.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <unordered_set>

#include "trireme/base/error.h"

namespace trireme {
namespace {

using Ranks = std::vector<int>;
using Groups = std::vector<Ranks>;

template <typename Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Mesh, RowMajor) {
  const Mesh mesh({{"dp", 2}, {"tp", 4}});
  EXPECT_EQ(mesh.size(), 8);
  EXPECT_EQ(mesh.num_axes(), 2);
  EXPECT_EQ(mesh.coordinates(5), (Ranks{1, 1}));
  EXPECT_EQ(mesh.coordinate(5, "dp"), 1);
  EXPECT_EQ(mesh.rank_at({1, 1}), 5);
  EXPECT_EQ(mesh.ranks(), (Ranks{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(mesh.axis_size("tp"), 4);
  EXPECT_EQ(mesh.degree("pp"), 1);
  EXPECT_TRUE(mesh.has("dp"));
  EXPECT_FALSE(mesh.has("pp"));
}

TEST(Mesh, CoordinatesRoundTrip) {
  const Mesh mesh({{"a", 3}, {"one", 1}, {"b", 2}, {"c", 4}});
  for (int rank = 0; rank < mesh.size(); ++rank) EXPECT_EQ(mesh.rank_at(mesh.coordinates(rank)), rank);
}

TEST(Mesh, OutsideIsRefused) {
  const Mesh mesh({{"dp", 2}, {"tp", 4}});
  EXPECT_THROW(mesh.coordinates(8), UsageError);
  EXPECT_THROW(mesh.coordinates(-1), UsageError);
  EXPECT_THROW(mesh.rank_at({1}), UsageError);
  EXPECT_THROW(mesh.rank_at({2, 0}), UsageError);
  EXPECT_THROW(mesh.rank_at({0, -1}), UsageError);
  EXPECT_THROW(mesh.axis_size("pp"), UsageError);
  EXPECT_THROW(mesh.groups("pp"), UsageError);
  EXPECT_THROW(mesh.group_of(0, "pp"), UsageError);
  EXPECT_THROW(mesh.sub_mesh("tp", 4), UsageError);
}

TEST(Mesh, Groups) {
  const Mesh mesh({{"pp", 2}, {"dp", 2}, {"tp", 2}});
  EXPECT_EQ(mesh.groups("tp"), (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(mesh.groups("dp"), (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(mesh.groups("pp"), (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  const std::vector<std::string> both{"tp", "pp"};
  EXPECT_EQ(mesh.groups(both), (Groups{{0, 1, 4, 5}, {2, 3, 6, 7}}));
  EXPECT_EQ(mesh.group_of(6, "dp"), (Ranks{4, 6}));
  EXPECT_EQ(mesh.group_of(6, both), (Ranks{2, 3, 6, 7}));
  EXPECT_EQ(mesh.groups(std::vector<std::string>{}).size(), 8u);
}

TEST(Mesh, EachRankIsInItsGroup) {
  const Mesh mesh({{"a", 3}, {"b", 2}, {"c", 4}});
  for (const Axis& axis : mesh.axes()) {
    Ranks all;
    for (const Ranks& group : mesh.groups(axis.name)) {
      EXPECT_EQ(group.size(), static_cast<size_t>(axis.size));
      for (const int rank : group) EXPECT_EQ(mesh.group_of(rank, axis.name), group);
      all.insert(all.end(), group.begin(), group.end());
    }
    std::sort(all.begin(), all.end());
    EXPECT_EQ(all, mesh.ranks());
  }
}

TEST(Mesh, SubMesh) {
  const Mesh mesh({{"dp", 2}, {"tp", 4}});
  const Mesh column = mesh.sub_mesh("tp", 1);
  EXPECT_EQ(column.ranks(), (Ranks{1, 5}));
  EXPECT_EQ(column.size(), 2);
  EXPECT_EQ(column.coordinates(5), (Ranks{1}));
  EXPECT_FALSE(column.contains(2));
  EXPECT_FALSE(column.contains(0));
  EXPECT_FALSE(column.contains(9));
  EXPECT_EQ(column.to_string(), "{dp=2} of ranks 1, 5");
  EXPECT_EQ(mesh.sub_mesh("dp", 0), Mesh({{"tp", 4}}));
  EXPECT_NE(mesh.sub_mesh("dp", 1), Mesh({{"tp", 4}}));
  EXPECT_EQ(mesh.sub_mesh("dp", 1).groups("tp"), (Groups{{4, 5, 6, 7}}));
  EXPECT_EQ(column.sub_mesh("dp", 1).to_string(), "{} of rank 5");
  EXPECT_EQ(Mesh({{"dp", 20}, {"tp", 2}}).sub_mesh("tp", 1).to_string(),
            "{dp=20} of ranks 1, 3, 5, 7, 9, 11, 13, 15, …");
}

TEST(Mesh, Rest) {
  EXPECT_EQ(Mesh({{"dp", -1}, {"tp", 4}}, 8), Mesh({{"dp", 2}, {"tp", 4}}));
  EXPECT_EQ(Mesh::parse("dp=-1", 6).axis_size("dp"), 6);
  EXPECT_EQ(Mesh({{"dp", -1}, {"tp", 8}}, 8).axis_size("dp"), 1);
}

TEST(Mesh, ParseAndPrint) {
  EXPECT_EQ(Mesh::parse("dp=2,tp=4"), Mesh({{"dp", 2}, {"tp", 4}}));
  EXPECT_EQ(Mesh::parse(" dp = 2 , tp=4 ").to_string(), "{dp=2, tp=4}");
  EXPECT_EQ(Mesh::parse(Mesh::parse("dp=2,tp=4").to_string()), Mesh::parse("dp=2,tp=4"));
  EXPECT_EQ(Mesh::parse(""), Mesh());
  EXPECT_EQ(Mesh().to_string(), "{}");
  EXPECT_EQ(Mesh().size(), 1);
  EXPECT_EQ(Mesh().ranks(), (Ranks{0}));
  for (const char* text :
       {"dp", "dp=", "=2", "dp=x", "dp=2;tp=4", "dp=2,", "dp=2.5", "2=dp", "d p=2", "dp=99999999999"}) {
    EXPECT_THROW(Mesh::parse(text), UsageError) << text;
  }
}

TEST(Mesh, BadOnesCannotBeBuilt) {
  EXPECT_NE(error_of([] { Mesh({{"dp", 2}, {"dp", 4}}); }).find("axis dp is there twice"), std::string::npos);
  EXPECT_NE(error_of([] { Mesh({{"dp", 0}}); }).find("axis dp has size 0"), std::string::npos);
  EXPECT_NE(error_of([] { Mesh({{"dp", -2}}, 4); }).find("axis dp has size -2"), std::string::npos);
  EXPECT_NE(error_of([] { Mesh({{"dp", -1}}); }).find("needs a world size"), std::string::npos);
  EXPECT_NE(error_of([] { Mesh({{"dp", -1}, {"tp", -1}}, 4); }).find("only one axis"), std::string::npos);
  EXPECT_NE(error_of([] { Mesh({{"a", 1 << 20}, {"b", 1 << 20}}); }).find("too many ranks"), std::string::npos);
  EXPECT_NE(error_of([] { Mesh({{"", 2}}); }).find("is not a name"), std::string::npos);
  EXPECT_THROW(Mesh({{"dp", -1}}, 0), UsageError);
  EXPECT_THROW(Mesh({}, 2), UsageError);
}

TEST(Mesh, NearestIsShown) {
  EXPECT_EQ(error_of([] {
              Mesh({{"dp", 2}, {"tp", 3}}, 8);
            }),
            "mesh {dp=2, tp=3} needs 6 ranks, but the world has 8\n  nearest: {dp=2, tp=4}");
  EXPECT_EQ(error_of([] {
              Mesh({{"dp", 2}, {"tp", 4}}, 16);
            }),
            "mesh {dp=2, tp=4} needs 8 ranks, but the world has 16\n  nearest: {dp=4, tp=4}");
  EXPECT_EQ(error_of([] {
              Mesh({{"dp", -1}, {"tp", 3}}, 8);
            }),
            "mesh {dp=-1, tp=3}: a world of 8 cannot be split by 3\n  nearest: {dp=2, tp=4}");
  EXPECT_NE(error_of([] { Mesh({{"dp", 7}}, 13); }).find("nearest: {dp=13}"), std::string::npos);
  const std::vector<Axis> many{{"dp", 7}, {"tp", 9}, {"pp", 11}, {"cp", 5}, {"ep", 3}};
  EXPECT_NE(error_of([&] { Mesh(many, 55440); }).find("nearest: "), std::string::npos) << "and quickly";
}

TEST(Mesh, EqualityAndHash) {
  std::unordered_set<Mesh> set{Mesh::parse("dp=2,tp=4"), Mesh::parse("dp=2,tp=4"), Mesh::parse("tp=4,dp=2"), Mesh()};
  EXPECT_EQ(set.size(), 3u);
  // An axis of one rank has no stride to differ in.
  EXPECT_EQ(Mesh::parse("dp=1,tp=2").sub_mesh("tp", 0), Mesh::parse("dp=1"));
}

}  // namespace
}  // namespace trireme
