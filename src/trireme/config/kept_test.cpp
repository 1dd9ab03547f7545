// Kept configs of older versions mean what they meant.
#include "trireme/config/kept.h"

#include <gtest/gtest.h>

#include "trireme/config/resolve.h"

namespace trireme {
namespace {

TEST(KeptConfig, AKeyThatIsYoungerThanTheRunHasWhatTheRunDid) {
  Config given = resolve_text("", "job.toml", {"--data.split=random"});
  add_younger_keys(given, "[data]\npath = \"my.txt\"\n", "config.toml");
  EXPECT_EQ(given.data.split, HoldOut::kRandom);
  EXPECT_EQ(resolve_kept("[data]\npath = \"my.txt\"\n", "config.toml").data.split, HoldOut::kEnd);
  EXPECT_EQ(resolve_text("[data]\npath = \"my.txt\"\n", "job.toml").data.split, HoldOut::kRandom);
}

TEST(KeptConfig, WhatItSaysStays) {
  const Config config = resolve_text("", "job.toml", {"--train.steps=7"});
  EXPECT_EQ(resolve_kept(to_toml(config), "config.toml"), config);
}

}  // namespace
}  // namespace trireme
