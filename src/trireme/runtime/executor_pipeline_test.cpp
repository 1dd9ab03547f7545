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
      const auto forward = [this, weight, is_last](const Tensors& x, int micro_batch, const torch::Tensor&) {
        const torch::Tensor y = (x.empty() ? torch::full({1}, micro_batch + 1.0) : x[0]) * weight;
        if (is_last) losses[micro_batch] = y.item<double>();
        return Tensors{is_last ? y.sum() : y};
      };
      stages[stage] = {forward, stores[stage].get()};
    }
    executor = std::make_unique<Executor>(program, stages, ExecutorOptions{.pipeline = &world.comm()});
  }

  void run() {
    losses.clear();
    executor->run([this](const Instruction&) { ++updates; });
  }

  Program program;
  std::map<int, std::unique_ptr<GradientStore>> stores;
  std::map<int, Stage> stages;
  std::map<int, double> losses;  ///< by micro-batch
  std::unique_ptr<Executor> executor;
  int updates = 0;
};

PipelineShape shape_of(ScheduleKind kind, int num_ranks, int num_micro_batches) {
  return {.schedule = make_schedule({.kind = kind, .num_ranks = num_ranks, .num_micro_batches = num_micro_batches})};
}

TEST(PipelineProgram, GradientsAreThoseOfTheProduct) {
  for (const ScheduleKind kind : schedule_kinds()) {
    if (!is_synchronous(kind)) continue;
    run_as_threads(3, [&](World& world) {
      const PipelineShape shape = shape_of(kind, 3, 5);
      ToyStages toy(shape, world);
      double product = 1;
      for (int stage = 0; stage < shape.schedule.num_stages(); ++stage) product *= stage + 2;
      for (int step = 0; step < 3; ++step) {
        toy.run();
        const bool has_last = shape.schedule.rank_of_stage.back() == world.rank();
        EXPECT_EQ(toy.losses.size(), has_last ? 5 : 0) << name_of(kind);
        for (const auto& [m, loss] : toy.losses) EXPECT_EQ(loss, product * (m + 1)) << name_of(kind);
        for (const auto& [stage, store] : toy.stores) {
          EXPECT_EQ(store->gradient(0, 0).item<double>(), 15 * product / (stage + 2))
              << name_of(kind) << ", stage " << stage;
        }
      }
      EXPECT_EQ(toy.updates, 3);
    });
  }
}

/// A net with a skip: the first stage's output passes by the second, beside numbers that have no gradients.
///   0: x = a·n       1: (b·x, x, n)       2: n · (c·y + x), so that its gradients are those of n² · a · (b·c + 1)
TEST(PipelineProgram, ListsCrossItsCuts) {
  for (const ScheduleKind kind : schedule_kinds()) {
    if (!is_synchronous(kind) || stages_per_rank(kind) > 1) continue;
    run_as_threads(3, [&](World& world) {
      const PipelineShape shape = shape_of(kind, 3, 5);
      const Program program = lower_pipeline(shape, world.rank());
      const torch::Tensor weight = torch::full({1}, world.rank() + 2.0, torch::requires_grad());
      GradientStore store(nullptr, {{"weight", weight}}, GradientStoreOptions{.num_slots = program.num_slots});
      const auto forward = [&](const Tensors& x, int micro_batch, const torch::Tensor&) -> Tensors {
        if (world.rank() == 0) {
          const torch::Tensor number = torch::full({1}, micro_batch + 1, torch::kInt64);
          return {number * weight, number};
        }
        if (world.rank() == 1) return {weight * x[0], x[0], x[1]};
        EXPECT_EQ(x[2].scalar_type(), torch::kInt64);
        return {(x[2] * (weight * x[0] + x[1])).sum()};
      };
      Executor executor(program, {{world.rank(), {forward, &store}}}, ExecutorOptions{.pipeline = &world.comm()});
      const double squares = 55, a = 2, b = 3, c = 4;  // of n = 1 … 5
      const std::vector<double> expected = {squares * (b * c + 1), squares * a * c, squares * a * b};
      for (int step = 0; step < 2; ++step) {
        executor.run([](const Instruction&) {});
        EXPECT_EQ(store.gradient(0, 0).item<double>(), expected[static_cast<size_t>(world.rank())]) << name_of(kind);
      }
    });
  }
}

TEST(PipelineProgram, BuffersAreUsedAgainInEveryStep) {
  run_as_threads(3, [](World& world) {
    ToyStages toy(shape_of(ScheduleKind::k1F1B, 3, 12), world);
    for (int step = 0; step < 2; ++step) toy.run();
    const size_t first = toy.executor->messages()->num_buffers();
    EXPECT_LE(first, 12);
    for (int step = 0; step < 4; ++step) toy.run();
    EXPECT_EQ(toy.executor->messages()->num_buffers(), first);
  });
}

TEST(PipelineProgram, ProgramsOfOthersAreRefused) {
  run_as_threads(1, [](World& world) {
    ToyStages toy(shape_of(ScheduleKind::kGPipe, 1, 4), world);
    EXPECT_THROW(Executor(toy.program, {}, {.pipeline = &world.comm()}), Error);
    const Program other = lower_pipeline(
        {.schedule = make_schedule({.kind = ScheduleKind::kGPipe, .num_micro_batches = 4}), .groups = {3}}, 0);
    EXPECT_THROW(Executor(other, toy.stages, {.pipeline = &world.comm()}), Error);
  });
}

}  // namespace
}  // namespace trireme
