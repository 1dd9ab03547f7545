// Trainings that compute layers again in the backward pass: not a bit differs, and less memory is held.
#include <gtest/gtest.h>

#include "numerics/training.h"
#include "trireme/base/error.h"
#include "trireme/models/built_in.h"
#include "trireme/tensor/held_memory.h"
#include "trireme/tensor/random_scope.h"

namespace trireme {
namespace {

Words with(const Words& words, const std::string& recompute) {
  Words all = words;
  all.push_back("--train.recompute=" + recompute);
  return all;
}

void expect_same(const std::string& model, const Words& words, std::initializer_list<const char*> ways,
                 int workers = 1) {
  const Outcome kept = train(config_of(model, words), 1, 3);
  for (const char* way : ways) {
    expect_equal(train(config_of(model, with(words, way)), workers, 3), kept, model + " " + way);
  }
}

TEST(Recompute, ChangesNoBitOfGpt2) {
  expect_same("gpt2", {"--model.dropout=0.1"}, {"full", "selective", "1"});
  expect_same("gpt2", {}, {"full", "selective", "0"});
}

TEST(Recompute, ChangesNoBitOfLlama) { expect_same("llama", {}, {"full", "selective", "0-1"}); }

TEST(Recompute, ChangesNoBitOfAnMlp) { expect_same("mlp", {"--model.dropout=0.2"}, {"full", "0"}); }

TEST(Recompute, ChangesNoBitOfAResNetNorOfItsStatistics) { expect_same("resnet", {}, {"full", "0,3-5"}); }

TEST(Recompute, ChangesNoBitInShortTypes) {
  for (const char* type : {"bfloat16", "float16"}) {
    expect_same("gpt2", {"--model.dropout=0.1", std::string("--precision.compute=") + type}, {"full", "selective"});
  }
}

TEST(Recompute, ChangesNoBitOverSeveralWorkers) {
  expect_same("gpt2", {"--model.dropout=0.1"}, {"full"}, 3);
  const Words synchronized = {"--model.sync_statistics"};
  const Outcome kept = train(config_of("resnet", synchronized), 2, 2);
  expect_equal(train(config_of("resnet", with(synchronized, "full")), 2, 2), kept, "synchronized statistics");
}

TEST(Recompute, ChangesNoBitWhereOnlyEarlyStagesDoIt) {
  const Words words = {"--model.dropout=0.1", "--model.layers=4", "--parallel.pp=2", "--parallel.dp=1"};
  const Outcome kept = train(config_of("gpt2", words), 2, 3);
  for (const char* way : {"0-1", "full"}) expect_equal(train(config_of("gpt2", with(words, way)), 2, 3), kept, way);
}

TEST(Recompute, LayersThatAreNotThere) {
  EXPECT_THROW(train(config_of("gpt2", {"--train.recompute=0-2"}), 1, 1), UsageError);
  EXPECT_THROW(train(config_of("resnet", {"--train.recompute=9"}), 1, 1), UsageError);
  EXPECT_THROW(train(config_of("resnet", {"--train.recompute=selective"}), 1, 1), UsageError);
  EXPECT_THROW(train(config_of("mlp", {"--train.recompute=some"}), 1, 1), UsageError);
}

struct HeldActivations {
  int64_t between = 0;  ///< after the forward
  int64_t most = 0;     ///< in forward and backward
};

/// For a batch of 8, beside the model.
HeldActivations memory_of(const std::string& name, const std::string& way) {
  const Config config = config_of(name, {"--model.layers=6", "--model.dropout=0.1"});
  const auto model = make_model(config.model, 1);
  model->set_recompute(parse_recompute(way));
  const auto input = name == "gpt2" ? torch::randint(0, config.model.vocab, {8, config.model.seq}, torch::kInt64)
                                    : torch::randn({8, config.model.channels, config.model.image, config.model.image});
  const auto target = name == "gpt2" ? input : torch::zeros({8}, torch::kInt64);
  const auto step = [&] {
    const RandomScope scope({1, 0, 0});
    return model->forward_loss({input}, {target});
  };
  step().backward();  // gradients are there from now on
  const HeldMemory memory;
  const auto loss = step();
  const int64_t between = memory.now_bytes();
  loss.backward();
  return {between, memory.most_bytes()};
}

TEST(RecomputeMemory, HoldsLess) {
  const HeldActivations none = memory_of("gpt2", "none"), half = memory_of("gpt2", "0-2"),
                        full = memory_of("gpt2", "full"), attention = memory_of("gpt2", "selective");
  EXPECT_LT(full.between, none.between / 3) << none.between;
  EXPECT_LT(full.most, none.most * 2 / 3) << none.most;
  EXPECT_LT(half.between, none.between * 3 / 4);
  EXPECT_GT(half.between, full.between);
  EXPECT_LT(attention.between, none.between * 4 / 5);
  EXPECT_GT(attention.between, full.between);
  EXPECT_LT(memory_of("resnet", "full").between, memory_of("resnet", "none").between / 2);
}

}  // namespace
}  // namespace trireme
