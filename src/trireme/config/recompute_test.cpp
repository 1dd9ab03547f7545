#include "trireme/config/recompute.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme {
namespace {

std::vector<int64_t> covered(std::string_view text, int64_t layers) {
  const Recompute recompute = parse_recompute(text);
  std::vector<int64_t> found;
  for (int64_t i = 0; i < layers; ++i) {
    if (recompute.covers(i)) found.push_back(i);
  }
  return found;
}

TEST(Recompute, Names) {
  EXPECT_EQ(parse_recompute("none"), Recompute{});
  EXPECT_EQ(covered("full", 3), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(parse_recompute("selective"), RecomputeKind::kSelective);
  EXPECT_TRUE(covered("selective", 3).empty());
}

TEST(Recompute, Numbers) {
  EXPECT_EQ(covered("0-3,7", 10), (std::vector<int64_t>{0, 1, 2, 3, 7}));
  EXPECT_EQ(covered(" 2 , 0 - 1", 10), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(covered("5", 10), (std::vector<int64_t>{5}));
  EXPECT_EQ(parse_recompute("1,9,0-3").last(), 9);
  EXPECT_EQ(parse_recompute("full").last(), -1);
}

TEST(Recompute, WhatItIsNot) {
  for (const char* text : {"", "attention", "3-1", "-1", "1-", "1,,2", "1,", "0x3", "1.5", "99999999999999999999", "+1",
                           "1-2-3", "full,1", "1000000"}) {
    EXPECT_THROW(parse_recompute(text), UsageError) << text;
  }
  try {
    parse_recompute("half");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("train.recompute = \"half\""), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace trireme
