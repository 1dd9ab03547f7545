// Kept configs of older versions mean what they meant.
#include "trireme/config/kept.h"

#include <gtest/gtest.h>

#include "trireme/config/resolve.h"

namespace trireme {
namespace {

TEST(KeptConfig, AKeyThatIsYoungerThanTheRunHasWhatTheRunDid) {
  EXPECT_EQ(words_of_older_version("[data]\npath = \"my.txt\"\n", "config.toml"),
            std::vector<std::string>{"--data.split=end"});
  EXPECT_EQ(resolve_kept("[data]\npath = \"my.txt\"\n", "config.toml").data.split, "end");
  EXPECT_EQ(resolve_text("[data]\npath = \"my.txt\"\n", "job.toml").data.split, "random");
}

TEST(KeptConfig, WhatItSaysStays) {
  const Config config = resolve_text("", "job.toml", {"--train.steps=7"});
  EXPECT_TRUE(words_of_older_version(to_toml(config), "config.toml").empty());
  EXPECT_EQ(resolve_kept(to_toml(config), "config.toml"), config);
}

}  // namespace
}  // namespace trireme
