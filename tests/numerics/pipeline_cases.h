// Trainings in pipelines, to be compared with the one of a single worker.
#pragma once

#include "numerics/training.h"

namespace trireme {

struct PipelineCase {
  std::string schedule;
  int pp = 2;
  int dp = 1;
  std::string recompute = "none";

  std::string to_string() const { return fmt::format("{}, pp={}, dp={}, recompute {}", schedule, pp, dp, recompute); }
  Words words() const {
    return {"--parallel.schedule=" + schedule, fmt::format("--parallel.pp={}", pp), fmt::format("--parallel.dp={}", dp),
            "--train.recompute=" + recompute};
  }
};

/// Deep enough for four ranks with two stages each.
inline Config pipeline_config(const std::string& model, const Words& more) {
  Words words = {"--optimizer.warmup_steps=0", "--train.steps=20"};
  if (model != "resnet") words.push_back("--model.layers=7");
  words.insert(words.end(), more.begin(), more.end());
  return config_of(model, words);
}

/// Bit-equal losses, norms, weights, moments, buffers and evaluation.
inline void expect_equal_in_pipelines(const std::string& model, const std::vector<PipelineCase>& cases, int steps,
                                      const Words& more = {}) {
  const Outcome alone = train(pipeline_config(model, more), 1, steps, /*evaluates=*/true);
  for (const PipelineCase& each : cases) {
    SCOPED_TRACE(model + ", " + each.to_string());
    Words words = more;
    for (const std::string& word : each.words()) words.push_back(word);
    const Outcome outcome = train(pipeline_config(model, words), each.pp * each.dp, steps, /*evaluates=*/true);
    expect_equal(outcome, alone, each.to_string());
    EXPECT_EQ(outcome.evaluation.loss, alone.evaluation.loss);
    EXPECT_EQ(outcome.evaluation.accuracy, alone.evaluation.accuracy);
  }
}

}  // namespace trireme
