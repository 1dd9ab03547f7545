// ctest: timeout=900
// Training with tensor parallelism against one worker, in every layout. Sums inside operators are split, so bits
// differ; the bounds here are those of docs/tensor_parallelism.md.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "numerics/training.h"
#include "trireme/train/trainer.h"

namespace trireme {
namespace {

constexpr int kSteps = 20;
constexpr double kLossBound = 1e-5;  // relative

/// After all steps: of the gradients' norm, relative, and of weights, by the largest of their tensor. Where a ReLU
/// turns at a rounding error, BatchNorm makes it large: a ResNet's gradients part ways, its losses do not.
struct Bounds {
  double norm = 1e-5, weights = 2e-4;
  /// Of gradients, in units in the last place of the largest element of their tensor: of the first step, where all
  /// weights are equal, and of all steps, where weights have parted by what the bound above allows.
  double first_ulps = 32, ulps = 2048;
};
Bounds bounds_of(const std::string& model) {
  if (model != "resnet") return {};
  // Later, single elements of a gradient may be off by as much as its largest is.
  return {.norm = 1e-2, .weights = 0.2, .first_ulps = 256, .ulps = 0x1p23};
}

struct Workers {
  const char* model;
  int dp, tp;
  bool sequence;
};
std::ostream& operator<<(std::ostream& out, const Workers& l) {
  return out << fmt::format("{}_dp{}_tp{}{}", l.model, l.dp, l.tp, l.sequence ? "_sequence" : "");
}

std::string kind_of(const std::string& model) { return model.substr(0, model.find('_')); }

Words words_of(const std::string& model) {
  Words words = {"--train.leaves=4", "--train.global_batch=8", "--train.micro_batch=2", "--train.clip=0.5",
                 "--train.steps=20"};
  if (kind_of(model) == "gpt2") words.push_back("--model.heads=4");
  if (model == "resnet") {  // BatchNorm of few samples and a high learning rate would make rounding errors grow
    words.insert(words.end(), {"--train.micro_batch=8", "--train.global_batch=32", "--optimizer.lr=0.0003"});
  }
  if (model == "gpt2_untied") words.push_back("--model.tied=false");
  if (model == "gpt2") words.push_back("--model.vocab=257");  // cut unevenly
  if (model == "gpt2_dropout") words.push_back("--model.dropout=0.2");
  return words;
}

/// One worker's training, made once a model.
const Outcome& alone(const std::string& model) {
  static std::map<std::string, Outcome> known;
  if (!known.contains(model)) {
    known[model] = train(config_of(kind_of(model), words_of(model)), 1, kSteps, true, true);
  }
  return known[model];
}

class TensorParallel : public testing::TestWithParam<Workers> {};

/// Each rank makes its own part of them alone.
TEST(TensorParallelStart, FirstWeightsAreThoseOfOneWorker) {
  for (const auto& [model, layouts] : std::map<std::string, std::vector<Words>>{
           {"gpt2", {{"--parallel.tp=2"}, {"--parallel.tp=2", "--parallel.pp=2"}}},
           {"llama", {{"--parallel.tp=2"}, {"--parallel.tp=4"}}},
           {"mlp", {{"--parallel.tp=3"}, {"--parallel.tp=5"}}},
           {"resnet", {{"--parallel.tp=2"}, {"--parallel.tp=3"}}}}) {
    const Outcome alone = train(config_of(model), 1, 0);
    for (const Words& words : layouts) {
      const Config config = config_of(model, words);
      expect_equal(train(config, static_cast<int>(config.parallel.tp * config.parallel.pp), 0), alone,
                   model + " " + words[0]);
    }
  }
}

TEST_P(TensorParallel, EqualsOneWorker) {
  const Workers& layout = GetParam();
  const std::string model = layout.model;
  Words words = words_of(model);
  words.push_back(fmt::format("--parallel.dp={}", layout.dp));
  words.push_back(fmt::format("--parallel.tp={}", layout.tp));
  if (layout.sequence) words.push_back("--parallel.sequence");
  const Outcome& one = alone(model);
  const Outcome cut = train(config_of(kind_of(model), words), layout.dp * layout.tp, kSteps, true, true);
  double worst_loss = 0, worst_norm = 0, worst_ulps = 0;
  for (size_t step = 0; step < one.losses.size(); ++step) {
    worst_loss = std::max(worst_loss, std::abs(cut.losses[step] / one.losses[step] - 1));
    worst_norm = std::max(worst_norm, std::abs(cut.norms[step] / one.norms[step] - 1));
    worst_ulps = std::max(worst_ulps, ulps_apart(one.gradients[step], cut.gradients[step]));
  }
  const double weights = largest_difference(one, cut);
  const double first_ulps = ulps_apart(one.gradients[0], cut.gradients[0]);
  fmt::print("{}: loss {:.1e}, norm {:.1e}, weights {:.1e}, gradients {:.0f} and {:.0f} ulp\n",
             testing::PrintToString(layout), worst_loss, worst_norm, weights, first_ulps, worst_ulps);
  EXPECT_LT(worst_loss, kLossBound);
  EXPECT_LT(worst_norm, bounds_of(model).norm);
  EXPECT_LT(weights, bounds_of(model).weights);
  EXPECT_LT(first_ulps, bounds_of(model).first_ulps);
  EXPECT_LT(worst_ulps, bounds_of(model).ulps);
  EXPECT_NEAR(cut.evaluation.loss, one.evaluation.loss, kLossBound * one.evaluation.loss);
  EXPECT_NE(one.losses[0], one.losses[5]);
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, TensorParallel,
    testing::Values(Workers{"gpt2", 1, 2, false}, Workers{"gpt2", 1, 4, false}, Workers{"gpt2", 2, 2, false},
                    Workers{"gpt2", 1, 2, true}, Workers{"gpt2", 2, 2, true}, Workers{"gpt2", 1, 4, true},
                    Workers{"gpt2_untied", 1, 2, false}, Workers{"gpt2_dropout", 1, 2, false},
                    Workers{"gpt2_dropout", 1, 2, true}, Workers{"llama", 1, 2, false}, Workers{"llama", 1, 4, false},
                    Workers{"llama", 2, 2, false}, Workers{"llama", 1, 2, true}, Workers{"llama", 1, 4, true},
                    Workers{"llama", 2, 2, true}, Workers{"mlp", 1, 2, false}, Workers{"mlp", 1, 3, false},
                    Workers{"mlp", 2, 2, false}, Workers{"resnet", 1, 2, false}, Workers{"resnet", 1, 4, false},
                    Workers{"resnet", 2, 2, false}),
    testing::PrintToStringParamName());

}  // namespace
}  // namespace trireme
