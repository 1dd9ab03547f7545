// What `trireme train` hands to its workers is what they get: every value, every origin, and the prediction.
#include "trireme/config/training.h"

#include <gtest/gtest.h>

#include "trireme/config/resolve.h"

namespace trireme {
namespace {

TEST(Training, TravelsWithValuesOriginsAndPrediction) {
  const Config config =
      resolve({.file = "",
               .arguments = {"--model", "gpt2-tiny", "--optimizer.lr=1e-300", "--train.seed", "9007199254740991",
                             "--data.path=é \"\\\n.txt", "--parallel.overlap=false"},
               .default_preset = ""});
  const Training again = training_from_json(training_to_json({config, {81.5, 1e9 / 3}}));
  EXPECT_EQ(again.config, config);
  EXPECT_EQ(to_toml(again.config), to_toml(config));
  EXPECT_EQ(again.config.origins.of("model.layers"), "preset gpt2-tiny");
  EXPECT_EQ(again.config.origins.of("model.ffn"), config.origins.of("model.ffn"));
  EXPECT_TRUE(again.config.origins.is_default("server.count"));
  EXPECT_EQ(again.predicted, (PredictedStep{81.5, 1e9 / 3}));
}

}  // namespace
}  // namespace trireme
