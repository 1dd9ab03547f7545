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

TEST(KeptConfig, KnowsTheTargetOfItsPreset) {
  const auto kept = [](const std::vector<std::string>& words) {
    ConfigSources sources;
    sources.arguments = words;
    return resolve_kept(to_toml(resolve(sources)), "config.toml");
  };
  EXPECT_GT(kept({}).train.target_loss, 0);
  EXPECT_TRUE(has_target_of_preset(kept({})));
  EXPECT_TRUE(has_target_of_preset(kept({"--parallel.dp=2", "--optimizer.lr=1e-3"})));
  EXPECT_FALSE(has_target_of_preset(kept({"--train.target_loss=0.5"})));
  EXPECT_FALSE(has_target_of_preset(kept({"--train.steps=150"}))) << "it has none";
  EXPECT_FALSE(has_target_of_preset(kept({"--train.steps=150", "--train.target_loss=0.75"}))) << "a user's";
  EXPECT_FALSE(has_target_of_preset(kept({"--model=gpt2-tiny"})));
}

}  // namespace
}  // namespace trireme
