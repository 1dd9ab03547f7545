// The trainings of a calibration can run, differ, and tell the constants of the cost model apart.
#include "trireme/measure/train/calibrate.h"

#include <gtest/gtest.h>

#include <set>

#include "trireme/plan/config_job.h"
#include "trireme/simulate/simulate.h"

namespace trireme::measure {
namespace {

TEST(Calibration, TrainingsCanRunOnAnyNumberOfCores) {
  for (const int cores : {1, 2, 3, 8}) {
    std::set<std::string> names;
    for (const CalibrationTraining& training : calibration_trainings({}, /*on_gpu=*/false, cores)) {
      names.insert(training.name);
      const TrainPlan plan = plan_trainings(training.options);  // checks them
      ASSERT_EQ(plan.cases.size(), 1u) << training.name;
      EXPECT_EQ(plan.cases[0].num_workers % training.dp, 0) << training.name;
    }
    EXPECT_EQ(names.size(), 32u) << "no training twice";
  }
  EXPECT_EQ(calibration_trainings({}, /*on_gpu=*/true, 1).size(), 9u);
}

TEST(Calibration, WhatTheUserAsksForCounts) {
  TrainOptions asked;
  asked.config.words = {"--precision.compute=bfloat16"};
  asked.steps = 3;
  for (const CalibrationTraining& training : calibration_trainings(asked, /*on_gpu=*/false, 2)) {
    const TrainPlan plan = plan_trainings(training.options);
    EXPECT_EQ(plan.cases[0].config.precision.compute, NumberType::kBfloat16) << training.name;
    EXPECT_EQ(training.options.steps, 3);
  }
}

TEST(Calibration, FindsTheCoresThatMadeTheTimes) {
  const Cluster start = cores_of_this_machine(2);
  Cluster real = start;
  real.device.product_efficiency = 0.7 * start.device.product_efficiency;
  real.device.kernel_us = 3 * start.device.kernel_us;
  real.device.memory_efficiency = 0.6 * start.device.memory_efficiency;
  std::vector<MeasuredStep> steps;
  for (const CalibrationTraining& training : calibration_trainings({}, /*on_gpu=*/false, 2)) {
    const Config config = plan_trainings(training.options).cases.at(0).config;
    Job job = job_of(config, trireme_on(start));
    job.layout.dp = training.dp;
    const Simulation s = simulate(job, real);
    steps.push_back({training.name, job, s.step_seconds, s.memory_bytes()});
  }
  EXPECT_GT(compare_with(start, steps).time_error, 0.1);
  const DeviceFit fit = fit_device(start, steps);
  EXPECT_LT(fit.time_error, 0.02);
  EXPECT_LT(fit.memory_error, 0.02);
}

TEST(Calibration, TheQuietestRepeatCountsAndTheMostMemory) {
  const MeasuredStep step = quietest({{"a", {}, 2.0, 100}, {"a", {}, 1.5, 90}, {"a", {}, 1.8, 120}});
  EXPECT_EQ(step.seconds, 1.5);
  EXPECT_EQ(step.memory_bytes, 120);
}

}  // namespace
}  // namespace trireme::measure
