#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/comm/world.h"
#include "trireme/program/pipeline.h"
#include "trireme/runtime/executor.h"

namespace trireme {
namespace {

/// A stage is one number that multiplies: gradients can be computed by hand.
struct ToyStages {
  ToyStages(const PipelineShape& shape, World& world) : program(lower_pipeline(shape, world.rank())) {
    for (const int stage : program.own_stages()) {
      torch::Tensor weight = torch::full({1}, stage + 2.0, torch::requires_grad());
      stores[stage] = std::make_unique<GradientStore>(nullptr, std::vector<GradientSource>{{"weight", weight}},
                                                      GradientStoreOptions{.num_slots = program.num_slots});
      const bool is_last = stage == program.num_stages() - 1;
      const auto forward = [this, weight, is_last](const torch::Tensor& x, int micro_batch, const torch::Tensor&) {
        const torch::Tensor y = (x.defined() ? x : torch::full({1}, micro_batch + 1.0)) * weight;
        if (is_last) losses[micro_batch] = y.item<double>();
        return is_last ? y.sum() : y;
      };
      stages[stage] = {forward, stores[stage].get()};
    }
    executor = std::make_unique<Executor>(program, stages, ExecutorOptions{.pipeline = &world.comm()});
  }

  void run() {
    losses.clear();
    executor->run([this](int) { ++updates; });
  }

  Program program;
  std::map<int, std::unique_ptr<GradientStore>> stores;
  std::map<int, Stage> stages;
  std::map<int, double> losses;  ///< by micro-batch
  std::unique_ptr<Executor> executor;
  int updates = 0;
};

PipelineShape shape_of(const std::string& kind, int num_ranks, int num_micro_batches) {
  return {.schedule = make_schedule(
              {.kind = schedule_kind(kind), .num_ranks = num_ranks, .num_micro_batches = num_micro_batches})};
}

TEST(PipelineProgram, GradientsAreThoseOfTheProduct) {
  for (const std::string kind : {"naive", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v"}) {
    run_as_threads(3, [&](World& world) {
      const PipelineShape shape = shape_of(kind, 3, 5);
      ToyStages toy(shape, world);
      double product = 1;
      for (int stage = 0; stage < shape.schedule.num_stages(); ++stage) product *= stage + 2;
      for (int step = 0; step < 3; ++step) {
        toy.run();
        const bool has_last = shape.schedule.rank_of_stage.back() == world.rank();
        EXPECT_EQ(toy.losses.size(), has_last ? 5 : 0) << kind;
        for (const auto& [m, loss] : toy.losses) EXPECT_EQ(loss, product * (m + 1)) << kind;
        for (const auto& [stage, store] : toy.stores) {
          EXPECT_EQ(store->gradient(0, 0).item<double>(), 15 * product / (stage + 2)) << kind << ", stage " << stage;
        }
      }
      EXPECT_EQ(toy.updates, 3);
    });
  }
}

TEST(PipelineProgram, BuffersAreUsedAgainInEveryStep) {
  run_as_threads(3, [](World& world) {
    ToyStages toy(shape_of("1f1b", 3, 12), world);
    for (int step = 0; step < 2; ++step) toy.run();
    const size_t first = toy.executor->messages()->num_buffers();
    EXPECT_LE(first, 12);
    for (int step = 0; step < 4; ++step) toy.run();
    EXPECT_EQ(toy.executor->messages()->num_buffers(), first);
  });
}

TEST(PipelineProgram, ProgramsOfOthersAreRefused) {
  run_as_threads(1, [](World& world) {
    ToyStages toy(shape_of("gpipe", 1, 4), world);
    EXPECT_THROW(Executor(toy.program, {}, {.pipeline = &world.comm()}), Error);
    const Program other = lower_pipeline(
        {.schedule = make_schedule({.kind = ScheduleKind::kGPipe, .num_micro_batches = 4}), .groups = {3}}, 0);
    EXPECT_THROW(Executor(other, toy.stages, {.pipeline = &world.comm()}), Error);
  });
}

}  // namespace
}  // namespace trireme
