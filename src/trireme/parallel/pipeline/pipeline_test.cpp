#include "trireme/parallel/pipeline/pipeline.h"

#include <gtest/gtest.h>

#include "trireme/parallel/pipeline/pipeline_test_util.h"

namespace trireme {
namespace {

constexpr int kSteps = 3;

const Weights& expected(int micro_batches, int leaves) {
  static std::map<std::pair<int, int>, Weights> known;
  auto& weights = known[{micro_batches, leaves}];
  if (weights.values.empty()) weights = train_alone(small_model(), micro_batches, leaves, kSteps);
  return weights;
}

class EverySchedule : public testing::TestWithParam<std::string> {};

std::string difference(int num_ranks, const PipelineOptions& options) {
  const int micro_batches = options.num_micro_batches * options.num_replicas;
  const int leaves = options.num_leaves > 0 ? options.num_leaves : micro_batches;
  return differences(num_ranks * options.num_replicas, options, expected(micro_batches, leaves), kSteps);
}

TEST_P(EverySchedule, GivesTheWeightsOfOneRank) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const int micro_batches : {1, 2, 4, 6, 8}) {
      for (const bool recompute : {false, true}) {
        EXPECT_EQ(
            difference(ranks, {.schedule = GetParam(), .num_micro_batches = micro_batches, .recompute = {recompute}}),
            "")
            << ranks << " ranks, " << micro_batches << " micro-batches, recompute " << recompute;
      }
    }
  }
}

TEST_P(EverySchedule, GivesThemWithReplicas) {
  for (const int ranks : {2, 3, 4}) {
    for (const int micro_batches : {1, 4, 6, 8}) {
      for (const bool recompute : {false, true}) {
        const PipelineOptions options{.schedule = GetParam(),
                                      .num_micro_batches = micro_batches,
                                      .num_replicas = 2,
                                      .recompute = {recompute},
                                      .bucket_mb = 200.0 / (1 << 20)};
        EXPECT_EQ(difference(ranks, options), "")
            << ranks << " ranks, " << micro_batches << " micro-batches, recompute " << recompute;
      }
    }
  }
}

TEST_P(EverySchedule, GivesThemWithLeavesOfSeveralMicroBatches) {
  EXPECT_EQ(difference(2, {.schedule = GetParam(), .num_micro_batches = 6, .num_replicas = 2, .num_leaves = 6}), "");
  EXPECT_EQ(difference(3, {.schedule = GetParam(), .num_micro_batches = 8, .num_leaves = 2}), "");
}

std::vector<std::string> synchronous_schedules() {
  std::vector<std::string> names;
  for (const ScheduleKind kind : schedule_kinds()) {
    if (is_synchronous(kind)) names.emplace_back(name_of(kind));
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Pipeline, EverySchedule, testing::ValuesIn(synchronous_schedules()), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(Pipeline, AnotherTreeGivesOtherBits) {
  const PipelineOptions options{.schedule = "1f1b", .num_micro_batches = 6, .num_leaves = 2};
  EXPECT_NE(differences(2, options, expected(6, 6), kSteps), "");
}

TEST(Pipeline, StagesMayBeCutByHandByCostsAndWithoutWeights) {
  const PipelineOptions plain{.schedule = "1f1b", .num_micro_batches = 4};
  PipelineOptions options = plain;
  options.split = "1,1,10";  // the second stage is a ReLU
  EXPECT_EQ(difference(3, options), "");
  options.schedule = "zb-h1";
  EXPECT_EQ(difference(3, options), "");
  options.num_replicas = 2;
  EXPECT_EQ(difference(3, options), "");
  options = plain;
  options.costs = {9, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  EXPECT_EQ(difference(2, options), "");
  options.recompute = {true, false};
  EXPECT_EQ(difference(2, options), "");
}

torch::nn::Sequential model_with_batch_norm() {
  torch::manual_seed(5);
  using namespace torch::nn;
  return Sequential(Linear(4, 8), BatchNorm1d(8), ReLU(), Linear(8, 8), BatchNorm1d(8), Linear(8, 3));
}

TEST(Pipeline, MovingAveragesMoveOnceAMicroBatch) {
  const Weights alone = train_alone(model_with_batch_norm(), 4, 4, kSteps, 5);
  for (const std::string schedule : {"gpipe", "1f1b", "zb-h1"}) {
    for (const bool recompute : {false, true}) {
      const PipelineOptions options{.schedule = schedule, .num_micro_batches = 4, .recompute = {recompute}};
      EXPECT_EQ(differences(2, options, alone, kSteps, model_with_batch_norm, 5), "") << schedule << recompute;
    }
  }
}

torch::nn::Sequential model_with_dropout() {
  torch::manual_seed(5);
  using namespace torch::nn;
  return Sequential(Linear(4, 8), Dropout(0.5), Linear(8, 8), Dropout(0.5), Linear(8, 3));
}

/// On one rank, for all rank threads draw from one generator. The first stage is computed again, with draws between.
TEST(Pipeline, RandomNumbersRepeatWhenComputedAgain) {
  const auto train = [](bool recompute) {
    std::vector<torch::Tensor> weights;
    run_as_threads(1, [&](World& world) {
      at::set_num_threads(1);
      Pipeline pipeline(world.comm(), model_with_dropout(),
                        {.schedule = "interleaved", .num_micro_batches = 4, .split = "2,3", .recompute = {recompute}});
      EXPECT_EQ(recompute, pipeline.program().to_string().find("Recompute") != std::string::npos);
      auto optimizer = optimizer_of(pipeline.parameters());
      torch::manual_seed(9);
      for (int step = 0; step < kSteps; ++step) {
        const Batch batch = batch_of(step, 8);
        pipeline.step(batch.input, batch.target, loss_of);
        optimizer.step();
      }
      weights = pipeline.parameters();
    });
    return weights;
  };
  const auto kept = train(false), again = train(true);
  for (size_t i = 0; i < kept.size(); ++i) EXPECT_TRUE(at::equal(kept[i], again[i])) << i;
}

TEST(Pipeline, SumsInsteadOfAveraging) {
  run_as_threads(2, [](World& world) {
    at::set_num_threads(1);
    const auto train = [&](bool average) {
      Pipeline pipeline(world.comm(), torch::nn::Sequential(torch::nn::Linear(4, 3), torch::nn::Linear(3, 3)),
                        {.schedule = "1f1b", .num_micro_batches = 4, .average = average});
      for (auto& parameter : pipeline.parameters()) torch::NoGradGuard(), parameter.detach().fill_(0.25);
      const Batch batch = batch_of(0, 8);
      const double loss = pipeline.step(batch.input, batch.target, loss_of);
      return std::pair{loss, pipeline.parameters()[0].grad().clone()};
    };
    const auto mean = train(true), sum = train(false);
    EXPECT_EQ(sum.first, mean.first * 4);  // four is exact
    EXPECT_TRUE(at::equal(sum.second, mean.second * 4));
  });
}

TEST(Pipeline, ReportsWhatTheCheckerFound) {
  run_as_threads(2, [](World& world) {
    Pipeline pipeline(world.comm(), small_model(), {.schedule = "1f1b", .num_micro_batches = 6, .split = "0-4,5-11"});
    EXPECT_EQ(pipeline.report().ranks[0].activations, 2);
    EXPECT_EQ(pipeline.report().ranks[1].activations, 1);
    EXPECT_EQ(partition_to_text(pipeline.partition()), "0-4,5-11");
    EXPECT_EQ(pipeline.named_parameters()[0].first, world.rank() == 0 ? "0.weight" : "6.unused");
  });
}

/// The first and the last layer are one, and another is used twice in the middle, and once before.
torch::nn::Sequential model_with_tied_weights() {
  torch::manual_seed(5);
  using namespace torch::nn;
  const Linear ends(4, 4), inner(4, 4);
  return Sequential(ends, Tanh(), inner, Tanh(), inner, inner, Tanh(), ends, Linear(4, 3));
}

/// Each parameter once, under its first name.
std::vector<std::pair<std::string, torch::Tensor>> parameters_of(const torch::nn::Sequential& model) {
  std::vector<std::pair<std::string, torch::Tensor>> parameters;
  for (const auto& item : model->named_parameters()) {
    const auto is_same = [&](const auto& known) { return known.second.is_same(item.value()); };
    if (std::none_of(parameters.begin(), parameters.end(), is_same)) parameters.emplace_back(item.key(), item.value());
  }
  return parameters;
}

/// Stages of layers first … last−1 use a copy each: sums are made apart, then added in their order.
Weights train_copies(const Partition& stages, int micro_batches, int steps) {
  at::set_num_threads(1);
  const auto named = parameters_of(model_with_tied_weights());
  std::vector<torch::Tensor> parameters;
  for (const auto& [name, parameter] : named) parameters.push_back(parameter);
  std::vector<torch::nn::Sequential> copies;
  for (size_t i = 0; i < stages.size(); ++i) copies.push_back(model_with_tied_weights());
  const auto parameter_of = [&](size_t stage, size_t i) { return parameters_of(copies[stage])[i].second; };
  auto optimizer = optimizer_of(parameters);
  Weights result;
  for (int step = 0; step < steps; ++step) {
    const Batch batch = batch_of(step, 2 * micro_batches);
    std::map<std::pair<size_t, size_t>, std::vector<torch::Tensor>> sums;  // by parameter and stage
    double sum = 0;
    for (size_t s = 0; s < stages.size(); ++s) {
      for (size_t i = 0; i < parameters.size(); ++i) parameter_of(s, i).set_data(parameters[i].detach().clone());
    }
    for (int m = 0; m < micro_batches; ++m) {
      torch::Tensor x = batch.input.narrow(0, 2 * m, 2);
      for (size_t s = 0; s < stages.size(); ++s) {
        for (int layer = stages[s].first; layer < stages[s].last; ++layer) {
          x = (copies[s]->begin() + layer)->forward<torch::Tensor>(x);
        }
      }
      const torch::Tensor loss = loss_of(x, batch.target.narrow(0, 2 * m, 2)) / micro_batches;
      sum += loss.item<double>();
      for (auto& copy : copies) copy->zero_grad();
      loss.backward();
      for (size_t s = 0; s < stages.size(); ++s) {
        for (size_t i = 0; i < parameters.size(); ++i) {
          const torch::Tensor gradient = parameter_of(s, i).grad();
          if (gradient.defined()) sums[{i, s}].push_back(gradient.clone());
        }
      }
    }
    for (size_t i = 0; i < parameters.size(); ++i) {
      torch::Tensor all;
      for (size_t s = 0; s < stages.size(); ++s) {
        if (!sums.contains({i, s})) continue;
        const torch::Tensor own = sum_leaves(sums[{i, s}]);
        all = all.defined() ? all + own : own;
      }
      parameters[i].mutable_grad() = all;
    }
    optimizer.step();
    result.losses.push_back(sum);
  }
  for (const auto& [name, parameter] : named) result.values[name] = parameter.detach();
  return result;
}

TEST(Pipeline, StagesMayTieWeights) {
  for (const auto& [schedule, ranks, split] :
       std::vector<std::tuple<std::string, int, std::string>>{{"1f1b", 2, "4,5"},
                                                              {"gpipe", 3, "3,2,4"},
                                                              {"zb-h1", 3, "2,3,4"},
                                                              {"zb-v", 2, "1,2,2,4"},
                                                              {"interleaved", 2, "3,2,2,2"},
                                                              {"zb-h2", 4, "2,3,2,2"},
                                                              {"interleaved", 1, "4,5"},
                                                              {"1f1b", 4, "1,6,1,1"}}) {
    const Partition stages = partition_from_text(split, 9);
    for (const int micro_batches : {2, 6}) {
      const Weights alone = train_copies(stages, micro_batches, kSteps);
      for (const bool recompute : {false, true}) {
        for (const int replicas : {1, 2}) {
          const PipelineOptions options{.schedule = schedule,
                                        .num_micro_batches = micro_batches / replicas,
                                        .num_replicas = replicas,
                                        .split = split,
                                        .recompute = {recompute}};
          EXPECT_EQ(differences(ranks * replicas, options, alone, kSteps, model_with_tied_weights), "")
              << schedule << " " << split << ", " << micro_batches << " micro-batches, recompute " << recompute << ", "
              << replicas << " replicas";
        }
      }
    }
  }
}

/// Counts its outputs of earlier micro-batches that are still alive.
struct CountingImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    size_t alive = 0;
    for (const auto& storage : outputs) alive += !storage.expired();
    most = std::max(most, alive + 1);
    torch::Tensor y = torch::tanh(x);
    outputs.push_back(y.storage().getWeakStorageImpl());
    return y;
  }
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> outputs;
  size_t most = 0;
};
TORCH_MODULE(Counting);

TEST(Pipeline, HoldsAsManyActivationsAsTheCheckerSays) {
  using namespace torch::nn;
  for (const ScheduleKind kind : schedule_kinds()) {
    if (!is_synchronous(kind) || stages_per_rank(kind) > 1) continue;
    const std::string schedule(name_of(kind));
    for (const bool recompute : {false, true}) {
      run_as_threads(3, [&](World& world) {
        at::set_num_threads(1);
        const auto rank = static_cast<size_t>(world.rank());
        std::vector<Counting> counting{Counting(), Counting(), Counting()};
        Sequential model(Linear(4, 5), counting[0], Linear(5, 5), Linear(5, 5), counting[1], Linear(5, 5), Linear(5, 5),
                         counting[2], Linear(5, 3));
        Pipeline pipeline(world.comm(), model,
                          {.schedule = schedule, .num_micro_batches = 7, .split = "3,3,3", .recompute = {recompute}});
        const Batch batch = batch_of(0, 14);
        for (int step = 0; step < 2; ++step) pipeline.step(batch.input, batch.target, loss_of);
        EXPECT_EQ(static_cast<double>(counting[rank]->most), pipeline.report().ranks[rank].activations)
            << schedule << ", recompute " << recompute << ", rank " << rank;
      });
    }
  }
}

/// Gradients outlive the pipeline that made them, and a step forgets those of the step before.
TEST(Pipeline, GradientsAreOfOneStepAndStay) {
  run_as_threads(1, [](World& world) {
    auto model = torch::nn::Sequential(torch::nn::Linear(4, 3));
    torch::Tensor first;
    {
      Pipeline pipeline(world.comm(), model, {.num_micro_batches = 2});
      const Batch batch = batch_of(0, 4);
      pipeline.step(batch.input, batch.target, loss_of);
      first = model->parameters()[0].grad().clone();
      pipeline.step(batch.input, batch.target, loss_of);
      EXPECT_TRUE(at::equal(model->parameters()[0].grad(), first));
    }
    EXPECT_TRUE(at::equal(model->parameters()[0].grad(), first));
  });
}

}  // namespace
}  // namespace trireme
