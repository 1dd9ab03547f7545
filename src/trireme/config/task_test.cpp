#include "trireme/config/task.h"

#include <gtest/gtest.h>

#include "trireme/config/kept.h"
#include "trireme/config/resolve.h"

namespace trireme {
namespace {

TEST(Task, AKeptConfigMayAimAtItsPresetsTarget) {
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
