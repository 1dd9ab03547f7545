// Splitting, joining and the nearest name.
#include "trireme/base/text.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace trireme {
namespace {

TEST(Text, Trim) {
  EXPECT_EQ(trim("  a b\t\n"), "a b");
  EXPECT_EQ(trim(" \t"), "");
  EXPECT_EQ(trim(""), "");
}

TEST(Text, SplitKeepsEmptyParts) {
  EXPECT_EQ(split("a, b,,c ", ','), (std::vector<std::string_view>{"a", "b", "", "c"}));
  EXPECT_EQ(split("a,", ','), (std::vector<std::string_view>{"a", ""}));
  EXPECT_EQ(split("a", ','), (std::vector<std::string_view>{"a"}));
  EXPECT_TRUE(split("", ',').empty());
}

TEST(Text, Join) {
  EXPECT_EQ(join(std::vector<std::string>{"a", "b"}, ", "), "a, b");
  EXPECT_EQ(join(std::vector<std::string_view>{}, ", "), "");
}

TEST(Text, NaturalOrderOfNames) {
  std::vector<std::string> names = {"layers.10.b",  "layers.9.b", "head",    "layers.9.a",
                                    "layers.010.b", "layers",     "layers.2"};
  std::sort(names.begin(), names.end(), natural_less);
  EXPECT_EQ(names, (std::vector<std::string>{"head", "layers", "layers.2", "layers.9.a", "layers.9.b", "layers.010.b",
                                             "layers.10.b"}));
  for (const std::string& name : names) EXPECT_FALSE(natural_less(name, name));
}

TEST(Text, EditDistance) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("abc", ""), 3u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("trian", "train"), 1u);
  EXPECT_EQ(edit_distance("Ring", "rING"), 0u);
}

TEST(Text, Nearest) {
  const std::vector<std::string> names{"train", "launch", "plan", "bench"};
  EXPECT_EQ(nearest("trian", names), "train");
  EXPECT_EQ(nearest("banch", names), "bench");
  EXPECT_EQ(nearest("plan", names), "plan");
  EXPECT_EQ(nearest("checkpoint", names), std::nullopt);
  EXPECT_EQ(nearest("", names), std::nullopt);
  EXPECT_EQ(nearest("x", std::vector<std::string>{"a"}), std::nullopt);
}

}  // namespace
}  // namespace trireme
