#include "trireme/cli/bench_train_report.h"

#include <gtest/gtest.h>

#include "trireme/base/json.h"
#include "trireme/config/model_flops.h"

namespace trireme::cli {
namespace {

using measure::TrainOptions, measure::TrainResult, measure::TrainRun;

/// Two modes with round numbers.
TrainRun made_up_run() {
  TrainOptions options;
  options.config.words = {"--train.device=cuda"};
  options.config = with_bench_defaults(options);
  TrainRun run;
  run.plan = plan_trainings(options);
  run.results.resize(2);
  for (size_t i = 0; i < 2; ++i) {
    TrainResult& r = run.results[i];
    r.step_ms = i == 0 ? 125 : 100;
    r.units_per_second = 65'536 / r.step_ms * 1000;
    r.each_step_ms = {r.step_ms, r.step_ms};
    r.loss = 10.5;
    r.loss_repeats = i == 0;
    r.said = {{"parameters", 124'475'904}};
    r.device_memory_bytes = uint64_t{22} << 30;
    r.kernels_us = {{"nvjet_sm90", 60'000}, {"cudnn_sdpa", 20'000}, {"other", 10'000}};
  }
  run.gpus = {{"NVIDIA H200", uint64_t{140} << 30, "9.0", "580.1"}};
  run.notes = {"something was left out"};
  return run;
}

void expect_parts(const std::string& text, std::initializer_list<const char*> parts) {
  for (const char* part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
}

TEST(BenchTrainGpuReport, TextHasSpeedMemoryAndLosses) {
  const std::string text = bench_train_text(made_up_run(), /*colour=*/false);
  expect_parts(text, {"gpt2 of 124M parameters · 64 samples a step · bfloat16 · NVIDIA H200\n", "tok/s", "TFLOP/s",
                      "GPU memory", "524,288", "655,360", "22 GiB", "72 %", "90 %",
                      "deterministic: loss 10.500000 after the last step, the same bits in",
                      "fastest: loss 10.500000 after the last step, with other bits in some repeats",
                      "medians of 2 repeats", "note: something was left out\n"});
  EXPECT_EQ(text.find("of the peak"), std::string::npos);
  EXPECT_EQ(text.find("exposed"), std::string::npos);
  EXPECT_EQ(text.find("DDP"), std::string::npos);
}

TEST(BenchTrainGpuReport, ThePeakIsShownWhereItIsKnown) {
  TrainRun run = made_up_run();
  run.peak_tflops = model_flops(run.main_case().config.model, 64) * 1e-12 / 0.05;  // twice the speed of the fastest
  const std::string text = bench_train_text(run, false);
  expect_parts(text, {"of the peak", "50.0 %", "40.0 %"});
  EXPECT_DOUBLE_EQ(bench_train_json(run)["of_peak"], 0.4);
}

TEST(BenchTrainGpuReport, ABusyFractionAboveOneIsShownAsAll) {
  TrainRun run = made_up_run();
  run.results[1].kernels_us = {{"nvjet_sm90", 104'000}};
  EXPECT_EQ(bench_train_text(run, false).find("104 %"), std::string::npos);
  EXPECT_DOUBLE_EQ(bench_train_json(run)["results"][1]["gpu_busy"], 1.04);
}

TEST(BenchTrainGpuReport, WithoutKernelsAndNamesItIsShorter) {
  TrainRun run = made_up_run();
  run.gpus.clear();
  for (TrainResult& result : run.results) result.kernels_us.clear();
  const std::string text = bench_train_text(run, false);
  expect_parts(text, {"bfloat16 · GPU\n", "–"});
  EXPECT_EQ(text.find("PyTorch"), std::string::npos);
  EXPECT_TRUE(bench_train_json(run)["gpu_busy"].is_null());
}

TEST(BenchTrainGpuReport, JsonHasTheSame) {
  const auto json = bench_train_json(made_up_run());
  EXPECT_EQ(json["layout"], "deterministic");
  EXPECT_EQ(json["deterministic"], true);
  EXPECT_EQ(json["results"].size(), 2u);
  EXPECT_EQ(json["results"][1]["layout"], "fastest");
  EXPECT_DOUBLE_EQ(json["tokens_per_second"], 524'288);
  EXPECT_NEAR(json["results"][1]["tflops"], 560.1, 0.1);
  EXPECT_DOUBLE_EQ(json["gpu_busy"], 0.72);
  EXPECT_DOUBLE_EQ(json["kernels_us"]["nvjet_sm90"], 60'000);
  EXPECT_EQ(json["device_memory_bytes"], uint64_t{22} << 30);
  EXPECT_TRUE(json["of_peak"].is_null());
  EXPECT_TRUE(json["ddp_tokens_per_second"].is_null());
  EXPECT_EQ(json["machine"]["gpus"][0]["name"], "NVIDIA H200");
}

TEST(BenchTrainReport, OnACpuHasTheOldTable) {
  TrainOptions options;
  options.config.num_processes = 2;
  options.config = with_bench_defaults(options);
  TrainRun run;
  run.plan = plan_trainings(options);
  run.results.resize(run.plan.cases.size());
  for (TrainResult& r : run.results) {
    r.step_ms = 100;
    r.units_per_second = 1000;
    r.said = {{"transport", "shared memory"}};
  }
  const std::string text = bench_train_text(run, false);
  expect_parts(text, {"shared memory\n", "exposed", "reduced a step", "efficiency 50 % of twice one worker"});
  EXPECT_EQ(text.find("TFLOP/s"), std::string::npos);
  EXPECT_FALSE(bench_train_json(run).contains("tflops"));
}

}  // namespace
}  // namespace trireme::cli
